"""The interface of a consumer to its group; `ConsumerCoordinator` implements it."""

from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from penstock.client.consumer.group.actions import RebalanceEvent
from penstock.client.consumer.record import ConsumerGroupMetadata, OffsetAndMetadata
from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition


class Membership(Protocol):
    """A member of a group, on the client's loop."""

    events: deque[RebalanceEvent]
    """The events for the listener. Thread-safe; the group waits for the first one."""

    on_event: Callable[[], None]
    is_polling: Callable[[], bool]
    """Whether a poll is under way: a poll that waits longer than the poll interval is fine."""

    @property
    def last_error(self) -> KafkaError | None:
        """The error that poll raises."""

    async def start(self) -> None: ...

    async def close(self, deadline_ms: int) -> None: ...

    def prepare_leave(self) -> RebalanceEvent | None:
        """Returns the event to notify the listener of, at once, before the member leaves."""

    async def leave(self, deadline_ms: int | None = None) -> None: ...

    def subscription_changed(self) -> None: ...

    def polled(self, now_ms: int) -> None: ...

    def callback_done(self, event: RebalanceEvent, error: Exception | None) -> None: ...

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        deadline_ms: int,
        *,
        retry: bool = True,
    ) -> None: ...

    async def committed(
        self, partitions: Collection[TopicPartition], deadline_ms: int
    ) -> dict[TopicPartition, OffsetAndMetadata | None]: ...

    def group_metadata(self) -> ConsumerGroupMetadata: ...
