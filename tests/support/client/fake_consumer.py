"""A consumer without a broker: what offsets outside need of one, over logs in memory."""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from penstock.client.consumer.record import OffsetAndMetadata
from penstock.core.ids import TopicPartition

Logs = dict[TopicPartition, list[str]]


class Read(NamedTuple):
    partition: TopicPartition
    offset: int
    value: str


class MemoryReader:
    """Reads `logs`, which other readers may share and tests may append to."""

    def __init__(self, logs: Logs, *, first: int = 0) -> None:
        self.logs = logs
        self.first = first
        """Where partitions without an offset start; -1 for their end."""

        self.sought: list[tuple[TopicPartition, int]] = []
        self._positions: dict[TopicPartition, int] = {}
        self._consumed: dict[TopicPartition, OffsetAndMetadata] = {}

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Adds partitions, which have no position until a seek."""
        for partition in partitions:
            self._positions.setdefault(partition, -1)

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._positions.pop(partition, None)

    def poll(self, most: int = 2) -> list[Read]:
        """Up to so many records of each partition."""
        polled: list[Read] = []
        for partition, position in self._positions.items():
            if position < 0:
                position = self.start(partition).offset
            log = self.logs[partition]
            end = min(position + most, len(log))
            polled += [Read(partition, number, log[number]) for number in range(position, end)]
            self._positions[partition] = end
            if end > position:
                self._consumed[partition] = OffsetAndMetadata(end, leader_epoch=7)
        return polled

    def assignment(self) -> Collection[TopicPartition]:
        return self._positions.keys()

    def consumed(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        return self._consumed

    def start(self, partition: TopicPartition) -> OffsetAndMetadata:
        return OffsetAndMetadata(self.first if self.first >= 0 else len(self.logs[partition]))

    def seek(self, partition: TopicPartition, position: OffsetAndMetadata) -> None:
        self._consumed.pop(partition, None)
        if partition in self._positions:
            self._positions[partition] = position.offset
            self.sought.append((partition, position.offset))
