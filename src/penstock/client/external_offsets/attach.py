"""Offsets outside for our own consumers: what `Consumer.transaction` does the first time."""

from collections.abc import Awaitable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from penstock.client.consumer.record import OffsetAndMetadata, RebalanceListener
from penstock.client.errors import ConfigError, IllegalStateError, NoOffsetForPartitionError
from penstock.client.settings import ConsumerOptions
from penstock.core.ids import TopicPartition

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    from penstock.client.aio.consumer import Consumer as AioConsumer
    from penstock.client.consumer.base import ConsumerBase
    from penstock.client.consumer.consumer import Consumer
    from penstock.client.external_offsets.aio import AioOutsideOffsets
    from penstock.client.external_offsets.store import OffsetStore
    from penstock.client.external_offsets.transaction import OutsideOffsets


def attach(
    consumer: "Consumer",
    engine: "Engine",
    store: "OffsetStore | None",
    group_id: str | None,
    *,
    commit_to_group: bool,
) -> "OutsideOffsets":
    """From now on the consumer reads from where the database says."""
    try:
        from penstock.client.external_offsets.transaction import OutsideOffsets
    except ImportError as error:
        raise _missing(error) from error
    settings = consumer._settings
    name = _name(settings, group_id)

    def mirror(saved: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        if commit_to_group and settings["group_id"] and not consumer._is_closed:
            consumer.commit_async(saved)

    offsets = OutsideOffsets(_Reader(consumer), engine, name, store=store, mirror=mirror)
    consumer._first_listener = _Listener(offsets)
    return offsets


def attach_aio(
    consumer: "AioConsumer",
    engine: "AsyncEngine",
    store: "OffsetStore | None",
    group_id: str | None,
    *,
    commit_to_group: bool,
) -> "AioOutsideOffsets":
    """As `attach`, for a consumer on an event loop."""
    try:
        from penstock.client.external_offsets.aio import AioOutsideOffsets
    except ImportError as error:
        raise _missing(error) from error
    settings = consumer._settings
    name = _name(settings, group_id)

    def mirror(saved: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        if commit_to_group and settings["group_id"] and not consumer._is_closed:
            consumer.commit_async(saved)

    offsets = AioOutsideOffsets(_AioReader(consumer), engine, name, store=store, mirror=mirror)
    consumer._first_listener = _Listener(offsets)
    return offsets


def check_same(
    offsets: "OutsideOffsets | AioOutsideOffsets",
    engine: object,
    store: object | None,
    group_id: str | None,
) -> None:
    """`ConfigError` if a later transaction is to be in another database, or under another name."""
    if (
        offsets.engine is not engine
        or store not in (None, offsets.store)
        or group_id not in (None, offsets.group_id)
    ):
        raise ConfigError(
            f"the offsets of this consumer are kept in {offsets.engine.url!r} under the group_id "
            f"{offsets.group_id!r} since its first transaction(): pass the same engine, store and "
            "group_id each time, or make another consumer"
        )


def _name(settings: ConsumerOptions, group_id: str | None) -> str:
    """The name that offsets are stored under. `ConfigError` for settings that do not go with it."""
    if settings["enable_auto_commit"] and settings["group_id"] is not None:
        raise ConfigError(
            "enable_auto_commit must be False for transaction(): the offsets belong to the "
            "database, and the group's would run ahead of it"
        )
    name = group_id or settings["group_id"]
    if not name:
        raise ConfigError(
            "this consumer has no group_id: say transaction(engine, group_id=…), the name that "
            "its offsets are stored under"
        )
    return name


def _missing(error: ImportError) -> ConfigError:
    return ConfigError(
        f"transaction() needs SQLAlchemy and a driver ({error}): pip install 'penstock[sql]'"
    )


class _Positions:
    """Where a consumer is in each partition."""

    def __init__(self, consumer: "ConsumerBase") -> None:
        self._consumer = consumer
        self._subscriptions = consumer._subscriptions
        self._given_out = consumer._driver.buffer.given_out
        if self._given_out:
            raise IllegalStateError(
                "this consumer has given out records already, from offsets that the database does "
                "not know: call transaction() before the first poll()"
            )

    def assignment(self) -> Collection[TopicPartition]:
        return self._subscriptions.assigned_partitions()

    def consumed(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        consumed = {
            partition: OffsetAndMetadata(position.offset, "", position.offset_epoch)
            for partition, position in self._given_out.items()
        }
        # What an iteration has still to give out is not.
        for record in reversed(self._consumer._leftover):
            consumed[record.topic_partition] = OffsetAndMetadata(record.offset)
        return consumed

    def seek(self, partition: TopicPartition, position: OffsetAndMetadata) -> None:
        self._given_out.pop(partition, None)
        if self._subscriptions.is_assigned(partition):
            self._consumer._seek(partition, position)

    def _reset(self, partition: TopicPartition) -> None:
        """Asks for the offset that `auto_offset_reset` says; commits of the group do not count."""
        if not self._subscriptions.has_default_reset:
            raise NoOffsetForPartitionError(
                f"no offset is stored in the database for {partition} and auto_offset_reset is "
                "none: put one there with OffsetStore.put(), or set auto_offset_reset"
            )
        self._consumer._seek_to([partition], self._subscriptions.default_reset)


class _Reader(_Positions):
    def __init__(self, consumer: "Consumer") -> None:
        super().__init__(consumer)
        self._position = consumer.position

    def start(self, partition: TopicPartition) -> OffsetAndMetadata:
        self._reset(partition)
        return OffsetAndMetadata(self._position(partition))


class _AioReader(_Positions):
    def __init__(self, consumer: "AioConsumer") -> None:
        super().__init__(consumer)
        self._position = consumer.position

    async def start(self, partition: TopicPartition) -> OffsetAndMetadata:
        self._reset(partition)
        return OffsetAndMetadata(await self._position(partition))


class _Rebalanced(Protocol):
    def assigned(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None: ...

    def revoked(self, partitions: Collection[TopicPartition]) -> None: ...


class _Listener(RebalanceListener):
    """Tells offsets outside what the group gives and takes."""

    def __init__(self, offsets: _Rebalanced) -> None:
        self._offsets = offsets

    def on_partitions_assigned(
        self, partitions: Sequence[TopicPartition]
    ) -> Awaitable[None] | None:
        return self._offsets.assigned(partitions)

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._offsets.revoked(partitions)
