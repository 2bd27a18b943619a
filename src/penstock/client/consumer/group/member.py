"""The common part of both membership machines: requests, the listener, owned partitions."""

from abc import ABC, abstractmethod
from collections.abc import Callable

from penstock.client.consumer.group.actions import (
    Action,
    Assign,
    CallListener,
    MemberSettings,
    RebalanceEvent,
    RebalanceKind,
    Send,
)
from penstock.client.consumer.group.timers import HeartbeatTimers
from penstock.core.ids import TopicPartition
from penstock.protocol.fields import Message

NO_PARTITIONS: frozenset[TopicPartition] = frozenset()
Continuation = Callable[[Exception | None, int], None]
"""Is called after the listener: with the error that it raised, and the time."""


class Member(ABC):
    """A membership machine. At most one event waits for the listener."""

    def __init__(self, settings: MemberSettings) -> None:
        self._settings = settings
        self.actions: list[Action] = []
        self.owned = NO_PARTITIONS
        self._timers = HeartbeatTimers(settings)
        self._request_count = 0
        self._event: RebalanceEvent | None = None
        self._continuation: Continuation | None = None

    @abstractmethod
    def _advance(self, now: int) -> None:
        """Takes all steps that are possible now. Called after every event."""

    def callback_done(self, event: RebalanceEvent, error: Exception | None, now: int) -> None:
        if event is not self._event:
            return
        continuation, self._event, self._continuation = self._continuation, None, None
        if continuation is not None:
            continuation(error, now)
        self._advance(now)

    def _call_listener(
        self,
        kind: RebalanceKind,
        partitions: frozenset[TopicPartition],
        continuation: Continuation | None,
    ) -> None:
        self._event = RebalanceEvent(kind, partitions)
        self._continuation = continuation
        self.actions.append(CallListener(self._event))

    def _set_owned(
        self,
        partitions: frozenset[TopicPartition],
        added: frozenset[TopicPartition] = NO_PARTITIONS,
    ) -> None:
        if partitions != self.owned or added:
            self.owned = partitions
            self.actions.append(Assign(partitions, added))

    def _send(
        self, request: Message, response_type: type[Message], timeout_ms: int | None = None
    ) -> int:
        self._request_count += 1
        if timeout_ms is None:
            timeout_ms = self._settings.request_timeout_ms
        self.actions.append(Send(self._request_count, request, response_type, timeout_ms))
        return self._request_count
