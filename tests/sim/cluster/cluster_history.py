"""What clients and replicas of a simulated cluster have observed: it must never change again.

A record that was acknowledged, that a consumer has read, or that is below the high watermark of any
replica has its place in the partition permanently. `History` has one map for all of them, so that
each observation is compared with all earlier ones.
"""

from typing import NamedTuple

from penstock.core.ids import TopicPartition
from penstock.records.batch import split
from penstock.records.read import read_records
from penstock.storage.log.log import Log
from penstock.storage.log.results import FetchIsolation


class Observation(NamedTuple):
    """A record at an offset, and how it was observed first."""

    value: bytes | None
    """None for the marker of a transaction."""
    origin: str


class History:
    """The records of all partitions, by offset."""

    def __init__(self) -> None:
        self.records: dict[TopicPartition, dict[int, Observation]] = {}
        self.acknowledged_ends: dict[TopicPartition, int] = {}
        """The offset behind the last acknowledged record."""
        self._batches: dict[TopicPartition, dict[int, tuple[int, int]]] = {}
        """The CRC and the leader epoch of committed batches, by base offset."""

    def observe(self, origin: str, key: TopicPartition, offset: int, value: bytes | None) -> None:
        """Raises AssertionError if another record was observed at this offset."""
        records = self.records.setdefault(key, {})
        earlier = records.setdefault(offset, Observation(value, origin))
        assert earlier.value == value, (
            f"{key}@{offset} was {earlier.origin} as {earlier.value!r}, "
            f"now it is {origin} as {value!r}"
        )

    def acknowledge(self, key: TopicPartition, offset: int, values: list[bytes]) -> None:
        for index, value in enumerate(values):
            self.observe("acknowledged", key, offset + index, value)
        end = offset + len(values)
        self.acknowledged_ends[key] = max(self.acknowledged_ends.get(key, 0), end)

    def follow(self, log: Log, start: int, end: int, origin: str) -> int:
        """Compares the committed batches of a replica; returns the next offset."""
        key = log.partition
        batches = self._batches.setdefault(key, {})
        while start < end:
            result = log.read(start, 1 << 20, FetchIsolation.HIGH_WATERMARK).records
            data = b"" if result is None else result.read()
            if not data:
                break
            for position, header in split(data):
                identity = (header.crc, header.partition_leader_epoch)
                earlier = batches.get(header.base_offset)
                if earlier is None:
                    batches[header.base_offset] = identity
                    for record in read_records(data, position, header):
                        value = None if header.is_control else bytes(record.value or b"")
                        self.observe(origin, key, record.offset, value)
                else:
                    assert earlier == identity, (
                        f"{origin}: the batch {key}@{header.base_offset} differs from another "
                        "replica below the high watermark"
                    )
                start = header.last_offset + 1
        return start

    def log_end(self, key: TopicPartition) -> int:
        """Returns the offset behind the last record that was observed."""
        return max(self.records.get(key, {}), default=-1) + 1

    def values(self, key: TopicPartition) -> list[bytes]:
        """Returns the values of a partition in order, without markers."""
        records = self.records.get(key, {})
        return [value for offset in sorted(records) if (value := records[offset].value) is not None]
