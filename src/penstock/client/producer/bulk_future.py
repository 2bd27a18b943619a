"""The future of the records of one `send_many` call."""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import NamedTuple, overload

from penstock.client.producer.future import (
    BatchResult,
    Deadline,
    RecordMetadata,
    not_acknowledged,
    wake_loop,
    when_all_done,
)
from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition


class BulkPart(NamedTuple):
    """Consecutive records in one batch."""

    result: BatchResult
    first_number: int
    """The number of the first record within the batch."""

    position: int
    """The position of the first record in the order in which the call appended its records."""

    size: int
    """The number of records."""


class SentRecords(NamedTuple):
    """What the future keeps of the records of a call."""

    total: int
    sizes: memoryview
    """int32: the sizes of key and value, two numbers per record."""

    timestamps: memoryview | None
    """int64: one per record."""

    timestamp: int
    """The timestamp of all records if there are no `timestamps`."""

    order: memoryview | None
    """int32: the indexes of the records in the order they were appended; None if unchanged."""


class BulkMetadata(Sequence[RecordMetadata]):
    """The metadata of all records of a call, in the order of the call. Computed on access."""

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
            return [self._metadata(number) for number in range(*index.indices(len(self)))]
        return self._metadata(range(len(self))[index])

    def __iter__(self) -> Iterator[RecordMetadata]:
        return map(self._metadata, range(len(self)))

    def _metadata(self, index: int) -> RecordMetadata:
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
    """The future of many records. Call `result()` in any thread, or await it on any event loop."""

    __slots__ = ("_parts", "_records")

    def __init__(self, records: SentRecords, parts: list[BulkPart]) -> None:
        self._records = records
        self._parts = parts

    def __len__(self) -> int:
        return self._records.total

    @property
    def topic_partitions(self) -> set[TopicPartition]:
        """The partitions that the records go to."""
        return {
            part.result.topic_partition
            for part in self._parts
            if part.result.topic_partition.partition >= 0
        }

    def done(self) -> bool:
        return all(part.result.done for part in self._parts)

    def result(self, timeout: float | None = None) -> BulkMetadata:
        """Waits for all records, and returns their metadata in the order of the call.

        Raises the error of the first record that failed, although others may be stored, and
        KafkaTimeoutError after `timeout` seconds; the records are still being sent then.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        return BulkMetadata(self._records, self._parts)

    def exception(self, timeout: float | None = None) -> KafkaError | None:
        """Waits like `result`, and returns the first error, or None."""
        deadline = Deadline(timeout)
        for part in self._parts:
            if not part.result.wait(deadline.remaining_s()):
                raise not_acknowledged(f"{len(self)} records: at least one of them", timeout)
        for part in self._parts:
            error = part.result.first_error(part.first_number, part.size)
            if error is not None:
                return error
        return None

    def failures(self, timeout: float | None = None) -> list[tuple[int, KafkaError]]:
        """Waits like `result`, and returns the index and error of each record that failed."""
        if self.exception(timeout) is None:
            return []
        order = self._records.order
        failures = []
        for part in self._parts:
            for index in range(part.size):
                error = part.result.record_error(part.first_number + index)
                if error is not None:
                    position = part.position + index
                    failures.append((position if order is None else order[position], error))
        return sorted(failures, key=lambda failure: failure[0])

    def add_done_callback(self, fn: "Callable[[BulkFuture], None]") -> None:
        """Calls `fn` with this future when all records are done, on the sender's thread; at once if
        they are."""
        when_all_done([part.result for part in self._parts], lambda: fn(self))

    def __await__(self) -> Generator[object, None, BulkMetadata]:
        if not self.done():
            loop = asyncio.get_running_loop()
            waiter: asyncio.Future[None] = loop.create_future()
            self.add_done_callback(lambda _: wake_loop(loop, waiter))
            yield from waiter
        return self.result(0)
