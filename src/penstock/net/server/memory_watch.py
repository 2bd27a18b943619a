"""Closes connections that hold memory which others wait for: slow senders and slow readers."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.core.memory_budget import MemoryBudget
from penstock.net.server.connection import Connection
from penstock.net.server.limits import Limits

_FAST_ENOUGH: Final = 1024 * 1024
"""Bytes per second at which a request is received fast enough, whatever its size."""
_STALLED_MS: Final = 3_000
"""Without a byte for that long, a request is not received fast enough, however fast it was."""


class _Receipt(NamedTuple):
    """A request that an earlier sweep saw waiting for memory or being received."""

    number: int
    """Counts the requests of the connection."""
    since_ms: int
    received: int
    """Bytes that had been received then."""
    progress_ms: int
    """When a sweep last saw more bytes than the one before."""
    latest: int


class MemoryWatch:
    """The part of the sweep for idle connections that is about memory.

    - A request that waits for memory for longer than `Limits.memory_wait_ms` is refused.
    - While requests wait, a request that has memory must arrive within that time, or with 1 MiB
      per second, and without long breaks; otherwise its connection is closed.
    - While too many bytes of responses are queued, the connections of clients that do not read are
      closed, beginning with the largest queue.
    """

    def __init__(self, budget: MemoryBudget, limits: Limits) -> None:
        self._budget = budget
        self._limits = limits
        self._receipts: dict[Connection, _Receipt] = {}

    def sweep(self, connections: Sequence[Connection], now_ms: int) -> None:
        """Checks all connections; call it before their `active` is reset."""
        budget = self._budget
        budget.collect()
        receipts: dict[Connection, _Receipt] = {}
        response_bytes = 0
        slow_readers: list[Connection] = []
        for connection in connections:
            if connection.waits_for_memory or connection.reader.large:
                receipt = self._receipt(connection, now_ms)
                receipts[connection] = receipt
                if connection.waits_for_memory:
                    self._check_waiting(connection, now_ms - receipt.since_ms)
                elif budget.waiting:
                    self._check_pace(connection, receipt, now_ms)
            unsent = connection.unsent
            if unsent:
                response_bytes += unsent
                if not connection.active:
                    slow_readers.append(connection)
        self._receipts = receipts
        excess = response_bytes - budget.response_limit
        slow_readers.sort(key=lambda connection: connection.unsent)
        while excess > 0 and slow_readers:
            connection = slow_readers.pop()
            unsent = connection.unsent
            excess -= unsent
            response_bytes -= unsent
            connection.close(
                f"the client does not read {unsent} bytes of responses, and those of all clients "
                f"exceed their part of request.memory.max.bytes={budget.total}"
            )
        budget.response_bytes = response_bytes

    def _receipt(self, connection: Connection, now_ms: int) -> _Receipt:
        """Returns the state of the request at the first sweep that saw it in its current phase."""
        reader = connection.reader
        receipt = self._receipts.get(connection)
        came = reader.came
        if receipt is None or receipt.number != reader.begun_frames:
            return _Receipt(reader.begun_frames, now_ms, came, now_ms, came)
        if came > receipt.latest:
            return receipt._replace(progress_ms=now_ms, latest=came)
        return receipt

    def _check_waiting(self, connection: Connection, elapsed_ms: int) -> None:
        if elapsed_ms > self._limits.memory_wait_ms:
            connection.close(
                f"no memory for its request within request.timeout.ms="
                f"{self._limits.memory_wait_ms}; request.memory.max.bytes={self._budget.total} may "
                f"be too low"
            )

    def _check_pace(self, connection: Connection, receipt: _Receipt, now_ms: int) -> None:
        reader = connection.reader
        seconds = (now_ms - receipt.since_ms) / 1000
        pace = min(reader.size * 1000 / max(self._limits.memory_wait_ms, 1), _FAST_ENOUGH)
        received = reader.came - receipt.received
        if received < seconds * pace or now_ms - receipt.progress_ms >= _STALLED_MS:
            connection.close(
                f"{received} of the {reader.size} bytes of a request in {seconds:.0f} s are too "
                f"few while other requests wait for memory (request.memory.max.bytes)"
            )
