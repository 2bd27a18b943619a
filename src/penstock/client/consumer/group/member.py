"""The interface of membership machines, and the common part of both: requests, the listener, owned
partitions."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from uuid import UUID

from penstock.client.consumer.assignors import TopicRacks
from penstock.client.consumer.group.actions import (
    Action,
    Assign,
    CallListener,
    ForgetCoordinator,
    Identity,
    MemberSettings,
    RebalanceEvent,
    RebalanceKind,
    Send,
    TopicMatcher,
)
from penstock.client.consumer.group.explain import coordinator_error
from penstock.client.consumer.group.timers import HeartbeatTimers
from penstock.core.errors import ErrorCode, KafkaError, nested_text
from penstock.core.ids import TopicPartition
from penstock.protocol.fields import Message

COORDINATOR_MOVED = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
NO_PARTITIONS: frozenset[TopicPartition] = frozenset()
Continuation = Callable[[Exception | None, int], None]
"""Is called after the listener: with the error that it raised, and the time."""


class Member(ABC):
    """A membership without I/O. `now` is a monotonic time in milliseconds.

    After every call its driver removes the `actions` and performs them in their order. At most one
    event waits for the listener.
    """

    def __init__(self, settings: MemberSettings) -> None:
        self._settings = settings
        self.actions: list[Action] = []
        self.owned = NO_PARTITIONS
        self._timers = HeartbeatTimers(settings)
        self._request_count = 0
        self._event: RebalanceEvent | None = None
        self._continuation: Continuation | None = None

    # --- state

    @property
    @abstractmethod
    def is_member(self) -> bool:
        """Whether the coordinator has accepted the member, and has not removed it since."""

    @property
    @abstractmethod
    def is_stable(self) -> bool:
        """Whether it is a member that owns its whole assignment, and has nothing to do."""

    @property
    @abstractmethod
    def needs_poll(self) -> bool:
        """Whether the driver must call `polled` at once with the next poll."""

    @abstractmethod
    def identity(self) -> Identity:
        """Returns the member that commits. Raises CommitFailedError or RebalanceInProgressError."""

    @abstractmethod
    def metadata_identity(self) -> Identity:
        """Returns the identity for transactions, member or not."""

    # --- events

    @abstractmethod
    def subscribe(
        self, topics: frozenset[str], now: int, matches: TopicMatcher | None = None
    ) -> None:
        """Subscribes to topics; `matches` is the pattern that they come from, if any."""

    @abstractmethod
    def subscribe_regex(self, regex: str, now: int) -> None:
        """Subscribes to a pattern that the broker resolves."""

    @abstractmethod
    def polled(self, at: int, now: int) -> None:
        """Notes a poll at time `at`; a member joins with the first one."""

    @abstractmethod
    def handle_response(self, number: int, response: Message, now: int) -> None: ...

    @abstractmethod
    def handle_failure(self, number: int, error: KafkaError, now: int) -> None:
        """Handles a request without a response: disconnected, timed out, or not sent at all."""

    @abstractmethod
    def metadata_changed(self, topics: TopicRacks, names: Mapping[UUID, str], now: int) -> None: ...

    def topics_fetched(self, number: int, topics: TopicRacks, now: int) -> None:
        """Continues after `FetchTopics`, which only a leader of the classic protocol needs."""
        return

    def topics_resolved(self, names: Mapping[UUID, str], now: int) -> None:
        """Continues after `ResolveTopics`, which only the consumer protocol needs."""
        return

    @abstractmethod
    def tick(self, now: int) -> None:
        """Handles expired timers; must be called at `wake_at` at the latest."""

    @abstractmethod
    def wake_at(self) -> int | None: ...

    @abstractmethod
    def prepare_leave(self) -> RebalanceEvent | None:
        """Returns the event to call the listener with, at once, before the member leaves."""

    @abstractmethod
    def leave(self, reason: str, now: int) -> None:
        """Leaves the group and clears the subscription and the assignment."""

    @abstractmethod
    def handle_commit_error(self, code: int, identity: Identity, now: int) -> KafkaError | None:
        """Handles a membership error of a commit; returns the error to raise, or None to retry."""

    # --- common parts

    @abstractmethod
    def _advance(self, now: int) -> None:
        """Takes all steps that are possible now. Called after every event."""

    def _error_to_report(self, error: KafkaError) -> KafkaError | None:
        """Returns the error of a failed request for the user.

        Returns None for a retriable error: the coordinator is looked up again.
        """
        if error.code.retriable:
            self.actions.append(ForgetCoordinator())
            return None
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            return coordinator_error(error.code, self._settings, nested_text(error))
        return error

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
