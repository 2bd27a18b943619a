"""External offsets of our own consumers: what the first `Consumer.transaction` sets up."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from penstock.client.consumer.core import ConsumerCore
from penstock.client.consumer.record import OffsetAndMetadata, RebalanceListener
from penstock.client.errors import ConfigError, IllegalStateError, NoOffsetForPartitionError
from penstock.client.external_offsets.model import Mirror
from penstock.client.settings import ConsumerOptions
from penstock.core.ids import TopicPartition

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    from penstock.client.aio.consumer import Consumer as AioConsumer
    from penstock.client.consumer.consumer import Consumer
    from penstock.client.external_offsets.aio import AioExternalOffsets
    from penstock.client.external_offsets.store import OffsetStore
    from penstock.client.external_offsets.transaction import ExternalOffsets


class _RebalanceTarget(Protocol):
    def assigned(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None: ...

    def revoked(self, partitions: Collection[TopicPartition]) -> None: ...


OffsetsT = TypeVar("OffsetsT", bound=_RebalanceTarget)


def attach(
    consumer: "Consumer",
    engine: "Engine",
    store: "OffsetStore | None",
    group_id: str | None,
    *,
    commit_to_group: bool,
) -> "ExternalOffsets":
    """Has the consumer read from the offsets in the database from now on."""

    def create(name: str, mirror: Mirror) -> "ExternalOffsets":
        from penstock.client.external_offsets.transaction import ExternalOffsets

        return ExternalOffsets(_Reader(consumer), engine, name, store=store, mirror=mirror)

    return _attach(consumer, group_id, create, commit_to_group=commit_to_group)


def attach_aio(
    consumer: "AioConsumer",
    engine: "AsyncEngine",
    store: "OffsetStore | None",
    group_id: str | None,
    *,
    commit_to_group: bool,
) -> "AioExternalOffsets":
    """Does the same as `attach` for an asyncio consumer."""

    def create(name: str, mirror: Mirror) -> "AioExternalOffsets":
        from penstock.client.external_offsets.aio import AioExternalOffsets

        return AioExternalOffsets(_AioReader(consumer), engine, name, store=store, mirror=mirror)

    return _attach(consumer, group_id, create, commit_to_group=commit_to_group)


def _attach(
    consumer: "Consumer | AioConsumer",
    group_id: str | None,
    create: Callable[[str, Mirror], OffsetsT],
    *,
    commit_to_group: bool,
) -> OffsetsT:
    core = consumer._core

    def mirror(positions: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        if commit_to_group and core.settings["group_id"] and not core.is_closed:
            consumer.commit_async(positions)

    name = _group_id_of(core.settings, group_id)
    try:
        offsets = create(name, mirror)
    except ImportError as error:
        raise ConfigError(
            f"transaction() needs SQLAlchemy and a driver ({error})",
            remedy="run pip install 'penstock[sql]'",
        ) from error
    core.internal_listener = _Listener(offsets)
    return offsets


def check_same(
    offsets: "ExternalOffsets | AioExternalOffsets",
    engine: object,
    store: object | None,
    group_id: str | None,
) -> None:
    """Raises ConfigError if a later transaction names another database, store or group id."""
    if (
        offsets.engine is not engine
        or store not in (None, offsets.store)
        or group_id not in (None, offsets.group_id)
    ):
        raise ConfigError(
            f"the offsets of this consumer are kept in {offsets.engine.url!r} under the group_id "
            f"{offsets.group_id!r} since its first transaction()",
            remedy="pass the same engine, store and group_id each time, or create another consumer",
        )


def _group_id_of(settings: ConsumerOptions, group_id: str | None) -> str:
    """Returns the name to store offsets under. Raises ConfigError for unsuitable settings."""
    if settings["enable_auto_commit"] and settings["group_id"] is not None:
        raise ConfigError(
            "enable_auto_commit must be False for transaction(): the offsets belong to the "
            "database, and those of the group would be ahead of it"
        )
    name = group_id or settings["group_id"]
    if not name:
        raise ConfigError(
            "this consumer has no group_id",
            remedy="call transaction(engine, group_id=…) with the name to store its offsets under",
        )
    return name


class _Positions:
    """The positions of a consumer, in the form that external offsets need."""

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core
        self._subscriptions = core.subscriptions
        self._consumed_positions = core.driver.buffer.consumed_positions
        if self._consumed_positions:
            raise IllegalStateError(
                "this consumer has already polled records, from offsets that are not in the "
                "database",
                remedy="call transaction() before the first poll()",
            )

    def assignment(self) -> Collection[TopicPartition]:
        return self._subscriptions.assigned_partitions()

    def consumed(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        consumed = {
            partition: OffsetAndMetadata(position.offset, "", position.offset_epoch)
            for partition, position in self._consumed_positions.items()
        }
        # Records that an iteration has not yielded yet are not consumed.
        for record in reversed(self._core.iteration_buffer):
            consumed[record.topic_partition] = OffsetAndMetadata(record.offset)
        return consumed

    def seek(self, partition: TopicPartition, position: OffsetAndMetadata) -> None:
        self._consumed_positions.pop(partition, None)
        if self._subscriptions.is_assigned(partition):
            self._core.seek(partition, position)

    def _reset(self, partition: TopicPartition) -> None:
        """Seeks as `auto_offset_reset` says; offsets that the group has committed do not count."""
        if not self._subscriptions.has_default_reset:
            raise NoOffsetForPartitionError(
                f"the database has no offset for {partition} and auto_offset_reset is none",
                remedy="store one with OffsetStore.put(), or set auto_offset_reset",
            )
        self._core.seek_to([partition], self._subscriptions.default_reset)


class _Reader(_Positions):
    def __init__(self, consumer: "Consumer") -> None:
        super().__init__(consumer._core)
        self._position = consumer.position

    def start(self, partition: TopicPartition) -> OffsetAndMetadata:
        self._reset(partition)
        return OffsetAndMetadata(self._position(partition))


class _AioReader(_Positions):
    def __init__(self, consumer: "AioConsumer") -> None:
        super().__init__(consumer._core)
        self._position = consumer.position

    async def start(self, partition: TopicPartition) -> OffsetAndMetadata:
        self._reset(partition)
        return OffsetAndMetadata(await self._position(partition))


class _Listener(RebalanceListener):
    """Passes rebalances on to external offsets."""

    def __init__(self, offsets: _RebalanceTarget) -> None:
        self._offsets = offsets

    def on_partitions_assigned(
        self, partitions: Sequence[TopicPartition]
    ) -> Awaitable[None] | None:
        return self._offsets.assigned(partitions)

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._offsets.revoked(partitions)
