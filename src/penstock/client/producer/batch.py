"""A batch of records for one partition, from its first record to its acknowledgement."""

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from logging import getLogger
from typing import TypeAlias

from penstock.client.producer.future import BatchResult, DeliveryCallback, RecordFuture
from penstock.core.errors import KafkaError
from penstock.core.ids import NO_SEQUENCE, TopicPartition
from penstock.records._encode import Filler, size_upper_bound
from penstock.records.batch import HEADER_SIZE
from penstock.records.build import compression_margin, write_producer_batch
from penstock.records.compress import Compression, compress
from penstock.records.read import read_records

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]

_log = getLogger(__name__)


class _Outcome(Enum):
    ABORTED = auto()
    FAILED = auto()
    SUCCEEDED = auto()


class ProducerBatch:
    """Filled by `append`, finished by `close`, and kept until it is acknowledged or has failed.

    Not thread-safe: the accumulator's lock guards it while it is filled; later it belongs to the
    sender.
    """

    __slots__ = (
        "_attempts_at_new_leader",
        "_batch_size",
        "_buffer",
        "_callbacks",
        "_finished",
        "_leader_epoch",
        "_outcome",
        "allocated",
        "attempts",
        "base_sequence",
        "block",
        "compression",
        "compression_ratio",
        "created_ms",
        "drained_ms",
        "filler",
        "in_retry",
        "inflight",
        "is_split",
        "is_transactional",
        "last_append_ms",
        "last_attempt_ms",
        "level",
        "producer_epoch",
        "producer_id",
        "reopened",
        "result",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        block: bytearray,
        now_ms: int,
        *,
        compression: Compression = Compression.NONE,
        level: int | None = None,
        estimated_ratio: float = 1.0,
        is_split: bool = False,
    ) -> None:
        """A batch with room for as much as `block` has.

        With compression, `estimated_ratio` is what earlier batches were compressed to. A batch
        that is part of a split one has its `block` from outside the pool.
        """
        self.topic_partition = topic_partition
        self.result = BatchResult(topic_partition)
        self.block: bytearray | None = block
        """Memory of the pool, until `take_block`."""
        self.allocated = len(block)
        self.compression = compression
        self.level = level
        self.filler = Filler(block, len(block), compression_margin(compression, estimated_ratio))
        self.created_ms = now_ms
        self.last_append_ms = now_ms
        self.last_attempt_ms = now_ms
        self.drained_ms = 0
        self.attempts = 0
        self.in_retry = False
        self.is_split = is_split
        self.inflight = False
        """Whether a request with its bytes is under way: its block is not used again then."""
        self.reopened = False
        """Whether it has new producer state that `close` has not written yet."""
        self.producer_id = -1
        self.producer_epoch = -1
        self.base_sequence: int = NO_SEQUENCE
        self.is_transactional = False
        self.compression_ratio = 1.0
        """What compression made of its records; 1.0 until it is closed, and without."""
        self._callbacks: list[tuple[RecordFuture, DeliveryCallback]] = []
        self._buffer: bytearray | None = None
        self._batch_size = 0
        self._finished: memoryview | None = None
        self._outcome: _Outcome | None = None
        self._leader_epoch = -1
        self._attempts_at_new_leader = 0

    def __repr__(self) -> str:
        return f"ProducerBatch({self.topic_partition}, {self.records_count} records)"

    # Filling it

    @property
    def records_count(self) -> int:
        return self.filler.count

    @property
    def size_in_bytes(self) -> int:
        """Exact once it is closed or without compression, otherwise an estimate."""
        return self._batch_size or self.filler.estimated_size()

    @property
    def is_full(self) -> bool:
        return self.filler.is_full()

    def append(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        callback: DeliveryCallback | None,
        now_ms: int,
    ) -> RecordFuture | None:
        """Add a record; None where it has no room. The first one always has."""
        future = self.filler.append_named(RecordFuture, self.result, timestamp, key, value, headers)
        if future is not None:
            self.last_append_ms = now_ms
            if callback is not None:
                self._callbacks.append((future, callback))
        return future

    def close_for_appends(self) -> None:
        """No more records, although there may be room."""
        self.filler.closed = True

    # Its bytes

    @property
    def is_closed(self) -> bool:
        return self._finished is not None

    def close(self) -> memoryview:
        """The finished batch: the same bytes at every call, until it gets other producer state.

        Without compression they are the pool's block itself.
        """
        if self._finished is not None and not self.reopened:
            return self._finished
        if self._buffer is None:
            self._buffer = self._compressed()
        write_producer_batch(
            self._buffer,
            self._batch_size,
            self.filler,
            compression=self.compression,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.base_sequence,
            is_transactional=self.is_transactional,
        )
        self.reopened = False
        self._finished = memoryview(self._buffer)[: self._batch_size]
        return self._finished

    def _compressed(self) -> bytearray:
        """The buffer with the records as they are sent, behind room for the header."""
        filler = self.filler
        if filler.count == 0:
            raise ValueError("a batch needs a record before it is closed")
        filler.closed = True
        if self.compression is Compression.NONE:
            self._batch_size = filler.end
            return filler.out
        with memoryview(filler.out) as view:
            packed = compress(self.compression, view[HEADER_SIZE : filler.end], self.level)
        self.compression_ratio = len(packed) / (filler.end - HEADER_SIZE)
        self._batch_size = HEADER_SIZE + len(packed)
        if self.block is not None and self._batch_size <= len(self.block):
            buffer = self.block
        else:
            buffer = bytearray(self._batch_size)
        buffer[HEADER_SIZE : self._batch_size] = packed
        filler.drop()
        return buffer

    def take_block(self) -> bytearray | None:
        """The pool's memory, to be given back once: None if it must not be used again."""
        block, self.block = self.block, None
        if self.inflight:
            return None
        self._finished = None
        self._buffer = None
        self.filler.drop()
        return block

    # The producer's state

    @property
    def has_sequence(self) -> bool:
        return self.base_sequence != NO_SEQUENCE

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; sequences wrap from 2**31 - 1 to 0."""
        return (self.base_sequence + self.records_count - 1) & 0x7FFFFFFF

    def set_producer_state(
        self, producer_id: int, producer_epoch: int, base_sequence: int, is_transactional: bool
    ) -> None:
        """Before it is closed; `reset_producer_state` afterwards."""
        if self.is_closed:
            raise ValueError("the batch is closed: its producer state can only be reset")
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.is_transactional = is_transactional

    def reset_producer_state(
        self, producer_id: int, producer_epoch: int, base_sequence: int
    ) -> None:
        """Another id, epoch and sequence for a batch that was sent. `close` writes them."""
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.reopened = True

    # Its end

    @property
    def is_done(self) -> bool:
        return self._outcome is not None

    def complete(self, base_offset: int, log_append_time: int = -1) -> bool:
        """It is in the log: callbacks, then futures. False if it was given up before."""
        if self._outcome is not None:
            self._too_late(_Outcome.SUCCEEDED)
            return False
        self._outcome = _Outcome.SUCCEEDED
        self.result.settle(base_offset, log_append_time)
        self._deliver()
        return True

    def fail(
        self, error: KafkaError, record_errors: Mapping[int, KafkaError] | None = None
    ) -> bool:
        """It will not be in the log. False if it was given up before.

        `record_errors` are those of single records, by their number; all others get `error`.
        """
        return self._end(_Outcome.FAILED, error, record_errors)

    def abort(self, error: KafkaError) -> bool:
        """It is not sent, or not waited for, any more."""
        return self._end(_Outcome.ABORTED, error, None)

    def _end(
        self,
        outcome: _Outcome,
        error: KafkaError,
        record_errors: Mapping[int, KafkaError] | None,
    ) -> bool:
        if self._outcome is not None:
            self._too_late(outcome)
            return False
        self._outcome = outcome
        self.result.settle(-1, -1, error, record_errors)
        self._deliver()
        return True

    def _too_late(self, outcome: _Outcome) -> None:
        if self._outcome is _Outcome.SUCCEEDED:
            raise ValueError(f"{self!r} is in the log, it cannot be {outcome.name.lower()} as well")
        _log.debug("%r is %s after it was %s", self, outcome, self._outcome)

    def _deliver(self) -> None:
        callbacks, self._callbacks = self._callbacks, []
        failed = self.result.error is not None
        for future, callback in callbacks:
            try:
                if failed:
                    callback(None, future.batch_result.record_error(future.relative_offset))
                else:
                    callback(future.metadata(), None)
            except Exception:  # noqa: BLE001
                _log.exception("on_delivery of a record for %s failed", self.topic_partition)
        self.result.wake()

    # Splitting it

    def split(self, max_size: int, estimated_ratio: float = 1.0) -> "list[ProducerBatch]":
        """The same records in batches of at most `max_size` bytes, outside the pool.

        A record that is larger gets a batch of its own. They go on as this batch: its futures,
        callbacks, age and sequences.
        """
        parts: list[ProducerBatch] = []
        firsts: list[int] = []
        numbers: list[int] = []
        for number, record in enumerate(read_records(self.close())):
            _, timestamp, key, value, headers = record
            if not parts or not parts[-1].filler.append(timestamp, key, value, headers):
                size = max(max_size, size_upper_bound(key, value, headers))
                part = self._part(size, estimated_ratio)
                part.filler.append(timestamp, key, value, headers)
                parts.append(part)
                firsts.append(number)
            numbers.append(len(parts) - 1)
        sequence = self.base_sequence
        for part in parts:
            part.close_for_appends()
            if self.has_sequence:
                part.set_producer_state(
                    self.producer_id, self.producer_epoch, sequence, self.is_transactional
                )
                sequence = (sequence + part.records_count) & 0x7FFFFFFF
        self._hand_over(parts, firsts, numbers)
        return parts

    def largest_record(self) -> int:
        """The most bytes that a batch of one of its records would take."""
        return max(
            size_upper_bound(record.key, record.value, record.headers)
            for record in read_records(self.close())
        )

    def _part(self, size: int, estimated_ratio: float) -> "ProducerBatch":
        return ProducerBatch(
            self.topic_partition,
            bytearray(size),
            self.created_ms,
            compression=self.compression,
            level=self.level,
            estimated_ratio=estimated_ratio,
            is_split=True,
        )

    def _hand_over(
        self, parts: "list[ProducerBatch]", firsts: list[int], numbers: list[int]
    ) -> None:
        for future, callback in self._callbacks:
            own = self._number_of(future)
            parts[numbers[own]]._callbacks.append((future, callback))
        self._callbacks = []
        self.result.follow(firsts, [part.result for part in parts])
        self._outcome = _Outcome.FAILED

    def _number_of(self, future: RecordFuture) -> int:
        """Of a record in this batch, which may be part of the one that the future knows."""
        return future.batch_result.locate(future.relative_offset)[1]

    # Its time

    def has_reached_delivery_timeout(self, delivery_timeout_ms: int, now_ms: int) -> bool:
        return now_ms - self.created_ms >= delivery_timeout_ms

    def queue_time_ms(self) -> int:
        """From its first record to the first time it was sent."""
        return self.drained_ms - self.created_ms

    def waited_time_ms(self, now_ms: int) -> int:
        """Since it was begun, or since its last attempt."""
        return max(0, now_ms - self.last_attempt_ms)

    def drained(self, now_ms: int) -> None:
        self.drained_ms = max(self.drained_ms, now_ms)

    def reenqueued(self, now_ms: int) -> None:
        """One more attempt has failed, there will be another."""
        self.attempts += 1
        self.last_append_ms = max(self.last_append_ms, now_ms)
        self.last_attempt_ms = self.last_append_ms
        self.in_retry = True

    def update_leader_epoch(self, leader_epoch: int) -> None:
        """Note the leader that the next attempt goes to; -1 where its epoch is not known."""
        if leader_epoch > self._leader_epoch:
            self._attempts_at_new_leader = self.attempts
            self._leader_epoch = leader_epoch

    @property
    def has_new_leader(self) -> bool:
        """Whether this retry goes to a leader that no attempt has gone to: it need not wait."""
        return self.attempts >= 1 and self.attempts == self._attempts_at_new_leader
