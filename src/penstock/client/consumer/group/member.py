"""What members of both protocols do alike: send, call the listener, and own partitions."""

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
Then = Callable[[Exception | None, int], None]
"""What follows once the listener was called: with what it raised, and the time."""


class Member(ABC):
    """One event at a time is with the listener; the machine waits for it."""

    def __init__(self, settings: MemberSettings) -> None:
        self._settings = settings
        self.actions: list[Action] = []
        self.owned = NO_PARTITIONS
        self._timers = HeartbeatTimers(settings)
        self._count = 0
        self._event: RebalanceEvent | None = None
        self._then: Then | None = None

    @abstractmethod
    def _advance(self, now: int) -> None:
        """Do whatever can be done now. Called after everything that happens."""

    def callback_done(self, event: RebalanceEvent, error: Exception | None, now: int) -> None:
        if event is not self._event:
            return
        then, self._event, self._then = self._then, None, None
        if then is not None:
            then(error, now)
        self._advance(now)

    def _call(
        self, kind: RebalanceKind, partitions: frozenset[TopicPartition], then: Then | None
    ) -> None:
        self._event = RebalanceEvent(kind, partitions)
        self._then = then
        self.actions.append(CallListener(self._event))

    def _set_owned(
        self,
        partitions: frozenset[TopicPartition],
        added: frozenset[TopicPartition] = NO_PARTITIONS,
    ) -> None:
        if partitions != self.owned or added:
            self.owned = partitions
            self.actions.append(Assign(partitions, added))

    def _send(self, request: Message, answer: type[Message], timeout_ms: int | None = None) -> int:
        self._count += 1
        if timeout_ms is None:
            timeout_ms = self._settings.request_timeout_ms
        self.actions.append(Send(self._count, request, answer, timeout_ms))
        return self._count
