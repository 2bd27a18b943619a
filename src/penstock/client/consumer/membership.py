"""What a consumer needs of its group. `group/group.py` has it, for both protocols."""

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
    """What the listener must be told. Thread-safe; the first is the one that is waited for."""

    on_event: Callable[[], None]
    is_polling: Callable[[], bool]
    """Whether a poll is under way: however long it waits, it counts as polling."""

    @property
    def last_error(self) -> KafkaError | None:
        """For poll to raise."""

    async def start(self) -> None: ...

    async def close(self, deadline_ms: int) -> None: ...

    def release(self) -> RebalanceEvent | None:
        """What the listener must hear before the member leaves; it is called at once."""

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
