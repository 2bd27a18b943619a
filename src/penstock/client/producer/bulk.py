"""Many records in one call: checked as a whole, sorted by partition, and filled in by loops."""

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from penstock.client.errors import RecordTooLargeError, SerializationError, UnknownTopicError
from penstock.client.producer.batch import Headers
from penstock.client.producer.buffer_pool import BufferPool
from penstock.client.producer.bulk_future import BulkFuture, BulkPart, SentRecords
from penstock.client.producer.future import BatchResult
from penstock.core.errors import InvalidRecordError, KafkaError
from penstock.core.ids import TopicPartition
from penstock.net.client.cluster import Cluster
from penstock.records._encode import Filler, measure_records, size_upper_bound
from penstock.records._murmur2 import partition_keys

if TYPE_CHECKING:
    from penstock.client.producer.accumulator import RecordAccumulator

_ANY: Final = -1

_CHUNK: Final = 16384
"""Records that are sorted by partition at a time: few enough to be in the processor's cache still
when they are copied.
"""

_LEAST_RUN: Final = 256
"""Or more than that, so that there are about so many for each partition."""


class Spare:
    """Memory that was waited for, until a batch takes it."""

    __slots__ = ("_buffer",)

    def __init__(self, buffer: bytearray | None = None) -> None:
        self._buffer = buffer

    def take(self) -> bytearray | None:
        buffer, self._buffer = self._buffer, None
        return buffer

    def give_back(self, pool: BufferPool) -> None:
        """What no batch took."""
        buffer = self.take()
        if buffer is not None:
            pool.deallocate(buffer, len(buffer))


class BulkRecords:
    """The records of one call."""

    def __init__(
        self,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None,
        timestamps: Sequence[int] | None,
        timestamp: int,
        headers: Headers,
    ) -> None:
        self.values = values if type(values) is list else list(values)
        self.keys = keys if keys is None or type(keys) is list else list(keys)
        self.total = len(self.values)
        self.headers = headers
        self.timestamp = timestamp
        self.timestamps: memoryview | None = None
        self.order: memoryview | None = None
        """Their numbers in the order of partitions, where they go to several."""
        self.batch_size = 0
        for name, column in (("keys", self.keys), ("timestamps", timestamps)):
            if column is not None and len(column) != self.total:
                raise ValueError(f"{self.total} values and {len(column)} {name}: as many of each")
        if timestamps is not None:
            if self.total and min(timestamps) < 0:
                raise InvalidRecordError(f"timestamp {min(timestamps)} is below 0")
            self.timestamps = memoryview(array("q", timestamps))
        self.sizes = memoryview(bytearray(8 * self.total)).cast("i")
        try:
            self._largest = measure_records(self.values, self.keys, self.sizes)
        except TypeError as error:
            raise SerializationError(
                f"keys and values must be bytes or None ({error}): set key_serializer and "
                "value_serializer, or encode them before"
            ) from None
        self._overhead = size_upper_bound(None, None, headers) + 8

    def check_sizes(self, max_request_size: int, buffer_memory: int) -> None:
        """`RecordTooLargeError` if one of them could never be sent."""
        limit = min(max_request_size, buffer_memory)
        if self._largest + self._overhead <= limit:
            return
        for index, value in enumerate(self.values):
            key = self.keys[index] if self.keys is not None else None
            size = size_upper_bound(key, value, self.headers)
            if size > limit:
                raise RecordTooLargeError(
                    f"record {index} takes {size} bytes, more than max_request_size "
                    f"({max_request_size}) or buffer_memory ({buffer_memory}): raise them, or "
                    "send less"
                )

    def size_of(self, count: int) -> int:
        """Bytes of so many records, at most."""
        return count * (self._largest + self._overhead)

    def room_for(self, start: int, stop: int, block: int, memory: int) -> int:
        """The size of a batch for the records from `start` on: no larger than they can need."""
        index = start if self.order is None else self.order[start]
        key = self.keys[index] if self.keys is not None else None
        first = size_upper_bound(key, self.values[index], self.headers)
        size = max(block, min(self.batch_size, self.size_of(stop - start), memory))
        return max(size, first)

    def fill(self, filler: Filler, start: int, stop: int) -> int:
        """Append as many as have room; the position of the first that has none."""
        return filler.fill(
            self.values,
            self.keys,
            self.timestamps,
            self.timestamp,
            self.headers,
            self.order,
            start,
            stop,
        )


class BulkAppend:
    """A call under way: `run` until it needs no more memory, then ask for its future."""

    def __init__(self, accumulator: "RecordAccumulator", topic: str, records: BulkRecords) -> None:
        self.spare = Spare()
        self._accumulator = accumulator
        self._topic = topic
        self._records = records
        self._groups: list[tuple[int, int]] = []
        """Partition and end of each run of records, the last first."""
        self._position = 0
        self._parts: list[BulkPart] = []

    def whole(self, partition: int) -> None:
        """All records go to one partition, or to the sticky ones."""
        self._groups = [(partition, self._records.total)]

    def by_key(self, cluster: Cluster) -> None:
        """Each record goes where its key says; those without one to a sticky partition."""
        records = self._records
        if records.keys is None:
            self.whole(_ANY)
            return
        count = cluster.partition_count(self._topic)
        if count is None:
            raise UnknownTopicError(
                f"topic {self._topic!r} has no partitions that this client knows of"
            )
        records.order = memoryview(bytearray(4 * records.total)).cast("i")
        ends = memoryview(bytearray(4 * (count + 1))).cast("i")
        chunk = max(_CHUNK, _LEAST_RUN * count)
        for start in range(0, records.total, chunk):
            stop = min(start + chunk, records.total)
            partition_keys(records.keys, start, stop, count, records.order, ends)
            if start < ends[0] < stop:
                size = records.size_of(ends[0] - start)
                sticky = self._accumulator.sticky_partition(self._topic, size, cluster)
                _merge_unkeyed(records.order, ends, start, sticky)
            self._groups += [(group - 1, end) for group, end in enumerate(ends)]
        self._groups.reverse()

    def run(self, cluster: Cluster, now_ms: int) -> int:
        """Append until all records are in batches (0), or so many bytes of memory are missing."""
        try:
            while self._groups:
                partition, stop = self._groups[-1]
                while self._position < stop:
                    part = self._accumulator.fill(
                        self._topic,
                        partition,
                        self._records,
                        self._position,
                        stop,
                        cluster,
                        now_ms,
                        self.spare,
                    )
                    if isinstance(part, int):
                        return part
                    self._parts.append(part)
                    self._position += part.size
                self._groups.pop()
        finally:
            self.spare.give_back(self._accumulator.pool)
        return 0

    def failed(self, error: KafkaError) -> BulkFuture:
        """The rest cannot be appended. If nothing was yet, the error is raised."""
        if not self._parts:
            raise error
        result = BatchResult(TopicPartition(self._topic, _ANY))
        result.settle(-1, -1, error)
        self._parts.append(
            BulkPart(result, 0, self._position, self._records.total - self._position)
        )
        return self.future()

    def future(self) -> BulkFuture:
        records = self._records
        return BulkFuture(
            SentRecords(
                records.total, records.sizes, records.timestamps, records.timestamp, records.order
            ),
            self._parts,
        )


def _merge_unkeyed(order: memoryview, ends: memoryview, start: int, partition: int) -> None:
    """Put records without a key among those of this partition, in the order of the call.

    `ends` has where the groups of `partition_keys` end: that of no key is empty afterwards.
    """
    unkeyed = ends[0] - start
    group = partition + 1
    before = order[ends[0] : ends[group - 1]].tolist()
    merged = sorted(order[start : ends[0]].tolist() + order[ends[group - 1] : ends[group]].tolist())
    order[start : ends[group]] = memoryview(array("i", before + merged))
    for each in range(group):
        ends[each] -= unkeyed
