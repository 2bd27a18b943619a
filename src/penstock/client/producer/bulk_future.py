"""The one future of many records that were sent in one call."""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import NamedTuple, overload

from penstock.client.producer.future import (
    BatchResult,
    RecordMetadata,
    Remaining,
    timed_out,
    wake_loop,
    when_all_done,
)
from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition


class BulkPart(NamedTuple):
    """Records that went into one batch, one after the other."""

    result: BatchResult
    first_number: int
    """Of the first of them, in the batch."""

    position: int
    """Of the first of them, among all records of the call in the order they were appended."""

    size: int
    """How many they are."""


class SentRecords(NamedTuple):
    """What is kept of the records of a call."""

    total: int
    sizes: memoryview
    """int32, two for each: key and value."""

    timestamps: memoryview | None
    """int64, one for each."""

    timestamp: int
    """Of all, where there are no `timestamps`."""

    order: memoryview | None
    """int32: the numbers of the records in the order they were appended, if not their own."""


class BulkMetadata(Sequence[RecordMetadata]):
    """The metadata of all records of a call, in its order. Each is made when asked for."""

    def __init__(self, records: SentRecords, parts: list[BulkPart]) -> None:
        self._records = records
        self._parts = parts
        self._starts = [part.position for part in parts]
        self._positions: Sequence[int] = range(records.total)
        if records.order is not None:
            positions = [0] * records.total
            for position, index in enumerate(records.order):
                positions[index] = position
            self._positions = positions

    def __len__(self) -> int:
        return self._records.total

    @overload
    def __getitem__(self, index: int) -> RecordMetadata: ...
    @overload
    def __getitem__(self, index: slice) -> list[RecordMetadata]: ...
    def __getitem__(self, index: int | slice) -> RecordMetadata | list[RecordMetadata]:
        if isinstance(index, slice):
            return [self._make(each) for each in range(*index.indices(len(self)))]
        return self._make(range(len(self))[index])

    def __iter__(self) -> Iterator[RecordMetadata]:
        return map(self._make, range(len(self)))

    def _make(self, index: int) -> RecordMetadata:
        position = self._positions[index]
        part = self._parts[bisect_right(self._starts, position) - 1]
        records = self._records
        times = records.timestamps
        return part.result.metadata(
            part.first_number + position - part.position,
            records.timestamp if times is None else times[index],
            records.sizes[2 * index],
            records.sizes[2 * index + 1],
        )


class BulkFuture:
    """Many records on their way. `result()` in any thread, or await it on any loop."""

    __slots__ = ("_parts", "_records")

    def __init__(self, records: SentRecords, parts: list[BulkPart]) -> None:
        self._records = records
        self._parts = parts

    def __len__(self) -> int:
        return self._records.total

    @property
    def topic_partitions(self) -> set[TopicPartition]:
        """The partitions that its records went to."""
        return {
            part.result.topic_partition
            for part in self._parts
            if part.result.topic_partition.partition >= 0
        }

    def done(self) -> bool:
        return all(part.result.done for part in self._parts)

    def result(self, timeout: float | None = None) -> BulkMetadata:
        """Wait for all records; their metadata in the order of the call.

        `KafkaTimeoutError` after `timeout` seconds: the records are still on their way then. If
        one failed, the error of the first to fail is raised; others may be in the log.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        return BulkMetadata(self._records, self._parts)

    def exception(self, timeout: float | None = None) -> KafkaError | None:
        """Wait as `result`, and return the first error, or None."""
        remaining = Remaining(timeout)
        for part in self._parts:
            if not part.result.wait(remaining.seconds()):
                raise timed_out(f"{len(self)} records: at least one of them", timeout)
        for part in self._parts:
            error = part.result.first_error(part.first_number, part.size)
            if error is not None:
                return error
        return None

    def failures(self, timeout: float | None = None) -> list[tuple[int, KafkaError]]:
        """Wait as `result`; the numbers of the records that failed, in their order, and why."""
        if self.exception(timeout) is None:
            return []
        order = self._records.order
        found = []
        for part in self._parts:
            for index in range(part.size):
                error = part.result.record_error(part.first_number + index)
                if error is not None:
                    position = part.position + index
                    found.append((position if order is None else order[position], error))
        return sorted(found, key=lambda each: each[0])

    def add_done_callback(self, fn: "Callable[[BulkFuture], None]") -> None:
        """Call `fn` with this future when all are done: on the sender's thread, or now."""
        when_all_done([part.result for part in self._parts], lambda: fn(self))

    def __await__(self) -> Generator[object, None, BulkMetadata]:
        if not self.done():
            loop = asyncio.get_running_loop()
            waiter: asyncio.Future[None] = loop.create_future()
            self.add_done_callback(lambda _: wake_loop(loop, waiter))
            yield from waiter
        return self.result(0)
