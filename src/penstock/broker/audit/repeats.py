"""Limits identical events of the audit log: a client in a loop must not fill the disk."""

from collections import Counter
from collections.abc import Hashable, Iterator
from typing import Final

from msgspec.structs import replace

from penstock.broker.audit.events import AuditEvent, Suppressed, to_time

WINDOW_MS: Final = 60_000
MAX_PER_CLIENT: Final = 100
"""Different events of one principal at one address that are written in a window."""
MAX_EVENTS: Final = 1000
"""Different events of all clients that are written in a window."""
_MAX_CLIENTS: Final = 1000


class _Entry:
    __slots__ = ("event", "repeats")

    def __init__(self, event: AuditEvent) -> None:
        self.event = event
        self.repeats = 0


class RepeatLimiter:
    """Admits each event once in a window, and counts its repetitions.

    A window begins with the first event after the previous window. The caller calls `end_window`
    when `is_over` says so.
    """

    def __init__(self) -> None:
        self._entries: dict[Hashable, _Entry] = {}
        self._by_client: Counter[Hashable] = Counter()
        self._suppressed: dict[Hashable, _Entry] = {}
        self._since_ms: int | None = None

    def admit(self, event: AuditEvent, now_ms: int) -> bool:
        """Returns whether the event is written now."""
        if self._since_ms is None:
            self._since_ms = now_ms
        identity = event.identity()
        entry = self._entries.get(identity)
        if entry is not None:
            entry.repeats += 1
            return False
        client = event.principal, event.address
        if self._by_client[client] >= MAX_PER_CLIENT or len(self._entries) >= MAX_EVENTS:
            self._suppress(client, event)
            return False
        self._by_client[client] += 1
        self._entries[identity] = _Entry(event)
        return True

    def _suppress(self, client: tuple[str, str], event: AuditEvent) -> None:
        key: tuple[str, str] | None = client
        if client not in self._suppressed and len(self._suppressed) >= _MAX_CLIENTS:
            key = None  # many addresses: their events are counted together
        entry = self._suppressed.get(key)
        if entry is None:
            entry = self._suppressed[key] = _Entry(
                Suppressed(
                    time=event.time,
                    broker_id=event.broker_id,
                    principal=event.principal if key else "*",
                    address=event.address if key else "*",
                    listener=event.listener if key else "*",
                    result="SUPPRESSED",
                )
            )
        entry.repeats += 1

    def is_over(self, now_ms: int) -> bool:
        return self._since_ms is not None and not 0 <= now_ms - self._since_ms < WINDOW_MS

    def end_window(self, now_ms: int) -> Iterator[AuditEvent]:
        """Yields a line for all events that were repeated or suppressed, and starts again."""
        entries = [*self._entries.values(), *self._suppressed.values()]
        self._entries.clear()
        self._by_client.clear()
        self._suppressed.clear()
        self._since_ms = None
        time = to_time(now_ms)
        for entry in entries:
            if entry.repeats:
                yield replace(entry.event, time=time, count=entry.repeats)
