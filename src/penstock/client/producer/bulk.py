"""Many records in one call: checked as a whole, sorted by partition, then copied in loops."""

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from penstock.client.errors import RecordTooLargeError, SerializationError, UnknownTopicError
from penstock.client.producer.batch import Headers
from penstock.client.producer.buffer_pool import ReservedBuffer
from penstock.client.producer.bulk_future import BulkFuture, BulkPart, SentRecords
from penstock.client.producer.future import BatchResult
from penstock.core.errors import InvalidRecordError, KafkaError
from penstock.core.ids import TopicPartition
from penstock.net.client.cluster import Cluster
from penstock.records._encode import Filler, measure_records, size_upper_bound
from penstock.records._murmur2 import partition_keys

if TYPE_CHECKING:
    from penstock.client.producer.appender import RecordAppender

_UNKNOWN_PARTITION: Final = -1

_CHUNK: Final = 16384
"""How many records are sorted by partition at a time. Few enough to be still in the processor's
cache when they are copied."""

_MIN_PER_PARTITION: Final = 256
"""Chunks of topics with many partitions are larger: about as many records for each partition."""


class BulkRecords:
    """The records of one `send_many` call.

    `timestamp` applies to all records if there are no `timestamps`; `headers` always do. With a
    `batch_size` above the setting, records that do not fit into the existing batches get larger
    ones. Raises ValueError when keys or timestamps are not as many as values, SerializationError
    for a key or value that is not bytes.
    """

    def __init__(
        self,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None,
        timestamps: Sequence[int] | None,
        timestamp: int,
        headers: Headers = (),
        batch_size: int = 0,
    ) -> None:
        self.values = values if type(values) is list else list(values)
        self.keys = keys if keys is None or type(keys) is list else list(keys)
        self.total = len(self.values)
        self.headers = headers
        self.timestamp = timestamp
        self.timestamps: memoryview | None = None
        self.order: memoryview | None = None
        """The indexes of the records in the order of partitions, if there are several."""
        self.batch_size = batch_size
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
                f"keys and values must be bytes or None ({error})",
                remedy="set `key_serializer` and `value_serializer`, or encode them before",
            ) from None
        self._overhead = size_upper_bound(None, None, headers) + 8

    def check_sizes(self, max_request_size: int, buffer_memory: int) -> None:
        """Raises RecordTooLargeError if a record can never be sent."""
        limit = min(max_request_size, buffer_memory)
        if self._largest + self._overhead <= limit:
            return
        for index, value in enumerate(self.values):
            key = self.keys[index] if self.keys is not None else None
            size = size_upper_bound(key, value, self.headers)
            if size > limit:
                raise RecordTooLargeError(
                    f"record {index} takes {size} bytes, more than `max_request_size` "
                    f"({max_request_size}) or `buffer_memory` ({buffer_memory})",
                    remedy="raise them, or send less",
                )

    def size_of(self, count: int) -> int:
        """Returns an upper bound for the bytes of `count` records."""
        return count * (self._largest + self._overhead)

    def block_size(self, start: int, stop: int, block: int, memory: int) -> int:
        """Returns the size of a block for the records from `start` on, no larger than needed."""
        index = start if self.order is None else self.order[start]
        key = self.keys[index] if self.keys is not None else None
        first = size_upper_bound(key, self.values[index], self.headers)
        size = max(block, min(self.batch_size, self.size_of(stop - start), memory))
        return max(size, first)

    def fill(self, filler: Filler, start: int, stop: int) -> int:
        """Appends as many records as fit; returns the position of the first that does not."""
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
    """A `send_many` call in progress: `run` until it needs no more memory, then take `future`."""

    def __init__(self, appender: "RecordAppender", topic: str, records: BulkRecords) -> None:
        self.reserved = ReservedBuffer()
        self._appender = appender
        self._topic = topic
        self._records = records
        self._groups: list[tuple[int, int]] = []
        """The partition and end position of each run of records, the last run first."""
        self._position = 0
        self._parts: list[BulkPart] = []

    def assign_partition(self, partition: int) -> None:
        """Sends all records to one partition, or to the sticky partitions if it is -1."""
        self._groups = [(partition, self._records.total)]

    def assign_by_key(self, cluster: Cluster) -> None:
        """Sends each record to the partition of its key, those without a key to a sticky one."""
        records = self._records
        if records.keys is None:
            self.assign_partition(_UNKNOWN_PARTITION)
            return
        count = cluster.partition_count(self._topic)
        if count is None:
            raise UnknownTopicError(
                f"topic {self._topic!r} has no partitions in the metadata of this client"
            )
        records.order = memoryview(bytearray(4 * records.total)).cast("i")
        ends = memoryview(bytearray(4 * (count + 1))).cast("i")
        chunk = max(_CHUNK, _MIN_PER_PARTITION * count)
        for start in range(0, records.total, chunk):
            stop = min(start + chunk, records.total)
            partition_keys(records.keys, start, stop, count, records.order, ends)
            if start < ends[0] < stop:
                size = records.size_of(ends[0] - start)
                sticky = self._appender.choose_sticky_partition(self._topic, size, cluster)
                _merge_unkeyed(records.order, ends, start, sticky)
            self._groups += [(group - 1, end) for group, end in enumerate(ends)]
        self._groups.reverse()

    def run(self, cluster: Cluster, now_ms: int) -> int:
        """Appends records; returns 0 once all are in batches, or the bytes of memory needed."""
        try:
            while self._groups:
                partition, stop = self._groups[-1]
                while self._position < stop:
                    part = self._appender.fill_batch(
                        self._topic,
                        partition,
                        self._records,
                        self._position,
                        stop,
                        cluster,
                        now_ms,
                        self.reserved,
                    )
                    if isinstance(part, int):
                        return part
                    self._parts.append(part)
                    self._position += part.size
                self._groups.pop()
        finally:
            self.reserved.release(self._appender.pool)
        return 0

    def fail_rest(self, error: KafkaError) -> BulkFuture:
        """Returns a future in which the remaining records have failed; raises `error` if no
        record was appended yet."""
        if not self._parts:
            raise error
        result = BatchResult(TopicPartition(self._topic, _UNKNOWN_PARTITION))
        result.set_outcome(-1, -1, error)
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
    """Merges the records without keys into those of a partition, in the order of the call.

    `ends` are the ends of the groups of `partition_keys`; that of records without keys becomes
    empty.
    """
    unkeyed = ends[0] - start
    group = partition + 1
    before = order[ends[0] : ends[group - 1]].tolist()
    merged = sorted(order[start : ends[0]].tolist() + order[ends[group - 1] : ends[group]].tolist())
    order[start : ends[group]] = memoryview(array("i", before + merged))
    for index in range(group):
        ends[index] -= unkeyed
