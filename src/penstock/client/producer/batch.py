"""A batch of records for one partition, from its first record to its acknowledgement."""

import logging
from collections.abc import Mapping, Sequence
from enum import Enum, auto
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

logger = logging.getLogger(__name__)


class FinalState(Enum):
    ABORTED = auto()
    FAILED = auto()
    SUCCEEDED = auto()


class ProducerBatch:
    """Filled by `append`, finished by `close`, and kept until it is acknowledged or has failed.

    Not thread-safe: the accumulator's lock guards it until it is drained; then only the sender
    uses it.
    """

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
        """Creates a batch in `block`, memory of the pool unless `is_split`.

        With compression, `estimated_ratio` is the expected compressed size divided by the
        uncompressed size; it decides when the batch is full.
        """
        self.topic_partition = topic_partition
        self.result = BatchResult(topic_partition)
        self.block: bytearray | None = block
        """The memory of the pool; None after `take_block`."""
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
        self.is_in_flight = False
        """Whether a request with its bytes is in flight; its block must not be reused then."""
        self.reopened = False
        """Whether it has a new producer state that `close` has not written yet."""
        self.producer_id = -1
        self.producer_epoch = -1
        self.base_sequence: int = NO_SEQUENCE
        self.is_transactional = False
        self.compression_ratio = 1.0
        """Compressed size divided by uncompressed size; 1.0 before it is closed or uncompressed."""
        self._callbacks: list[tuple[RecordFuture, DeliveryCallback]] = []
        self._buffer: bytearray | None = None
        self._batch_size = 0
        self._finished: memoryview | None = None
        self._final_state: FinalState | None = None
        self._leader_epoch = -1
        self._attempts_at_new_leader = 0

    def __repr__(self) -> str:
        return f"ProducerBatch({self.topic_partition}, {self.records_count} records)"

    # --- appending

    @property
    def records_count(self) -> int:
        return self.filler.count

    @property
    def size_in_bytes(self) -> int:
        """The size, exact if the batch is closed or not compressed, otherwise an estimate."""
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
        """Appends a record; returns None if there is no room. The first record always fits."""
        future = self.filler.append_named(RecordFuture, self.result, timestamp, key, value, headers)
        if future is not None:
            self.last_append_ms = now_ms
            if callback is not None:
                self._callbacks.append((future, callback))
        return future

    def close_for_appends(self) -> None:
        """Makes the batch full, so that no more records are appended."""
        self.filler.closed = True

    # --- bytes

    @property
    def is_closed(self) -> bool:
        return self._finished is not None

    def close(self) -> memoryview:
        """Returns the bytes of the batch, the same at every call until its producer state changes.

        Without compression they are the pool's block itself.
        """
        if self._finished is not None and not self.reopened:
            return self._finished
        if self._buffer is None:
            self._buffer = self._compress()
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

    def _compress(self) -> bytearray:
        """Returns the buffer with the records as they are sent, after space for the header."""
        filler = self.filler
        if filler.count == 0:
            raise ValueError("a batch needs a record before it is closed")
        filler.closed = True
        if self.compression is Compression.NONE:
            self._batch_size = filler.end
            return filler.out
        with memoryview(filler.out) as view:
            compressed = compress(self.compression, view[HEADER_SIZE : filler.end], self.level)
        self.compression_ratio = len(compressed) / (filler.end - HEADER_SIZE)
        self._batch_size = HEADER_SIZE + len(compressed)
        if self.block is not None and self._batch_size <= len(self.block):
            buffer = self.block
        else:
            buffer = bytearray(self._batch_size)
        buffer[HEADER_SIZE : self._batch_size] = compressed
        filler.drop()
        return buffer

    def take_block(self) -> bytearray | None:
        """Returns the memory to give back to the pool, once; None if it must not be reused."""
        block, self.block = self.block, None
        if self.is_in_flight:
            return None
        self._finished = None
        self._buffer = None
        self.filler.drop()
        return block

    # --- producer state

    @property
    def has_sequence(self) -> bool:
        return self.base_sequence != NO_SEQUENCE

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; sequences wrap from 2**31 - 1 to 0."""
        return (self.base_sequence + self.records_count - 1) & 0x7FFFFFFF

    def set_producer_state(
        self, producer_id: int, producer_epoch: int, base_sequence: int, is_transactional: bool
    ) -> None:
        """Sets the producer state of a batch that is not closed; see `reset_producer_state`."""
        if self.is_closed:
            raise ValueError("the batch is closed: its producer state can only be reset")
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.is_transactional = is_transactional

    def reset_producer_state(
        self, producer_id: int, producer_epoch: int, base_sequence: int
    ) -> None:
        """Changes the producer state of a batch that was sent. The next `close` writes it."""
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.reopened = True

    # --- completion

    @property
    def is_done(self) -> bool:
        return self._final_state is not None

    def complete(self, base_offset: int, log_append_time: int = -1) -> bool:
        """Completes the batch: calls callbacks, then completes futures.

        Returns False if the batch has failed or was aborted before.
        """
        if self._final_state is not None:
            self._ignore_late(FinalState.SUCCEEDED)
            return False
        self._final_state = FinalState.SUCCEEDED
        self.result.set_outcome(base_offset, log_append_time)
        self._notify()
        return True

    def fail(
        self, error: KafkaError, record_errors: Mapping[int, KafkaError] | None = None
    ) -> bool:
        """Fails the batch. Returns False if it has failed or was aborted before.

        `record_errors` are errors of single records by their number; all others get `error`.
        """
        return self._finish_with_error(FinalState.FAILED, error, record_errors)

    def abort(self, error: KafkaError) -> bool:
        """Fails a batch that is not sent, or whose response is not awaited any more."""
        return self._finish_with_error(FinalState.ABORTED, error, None)

    def _finish_with_error(
        self,
        final_state: FinalState,
        error: KafkaError,
        record_errors: Mapping[int, KafkaError] | None,
    ) -> bool:
        if self._final_state is not None:
            self._ignore_late(final_state)
            return False
        self._final_state = final_state
        self.result.set_outcome(-1, -1, error, record_errors)
        self._notify()
        return True

    def _ignore_late(self, final_state: FinalState) -> None:
        if self._final_state is FinalState.SUCCEEDED:
            raise ValueError(
                f"{self!r} was acknowledged, it cannot be {final_state.name.lower()} as well"
            )
        logger.debug("%r: ignored %s after %s", self, final_state, self._final_state)

    def _notify(self) -> None:
        callbacks, self._callbacks = self._callbacks, []
        has_failed = self.result.error is not None
        for future, callback in callbacks:
            try:
                if has_failed:
                    callback(None, future.batch_result.record_error(future.relative_offset))
                else:
                    callback(future.metadata(), None)
            except Exception:
                logger.exception("on_delivery of a record for %s failed", self.topic_partition)
        self.result.notify_waiters()

    # --- splitting

    def split(self, max_size: int, estimated_ratio: float = 1.0) -> "list[ProducerBatch]":
        """Returns batches of at most `max_size` bytes with the same records, outside the pool.

        A larger record gets a batch of its own. The parts inherit the futures, callbacks, age and
        sequences of this batch.
        """
        parts: list[ProducerBatch] = []
        first_numbers: list[int] = []
        part_numbers: list[int] = []
        for number, record in enumerate(read_records(self.close())):
            _, timestamp, key, value, headers = record
            if not parts or not parts[-1].filler.append(timestamp, key, value, headers):
                size = max(max_size, size_upper_bound(key, value, headers))
                part = self._create_part(size, estimated_ratio)
                part.filler.append(timestamp, key, value, headers)
                parts.append(part)
                first_numbers.append(number)
            part_numbers.append(len(parts) - 1)
        sequence = self.base_sequence
        for part in parts:
            part.close_for_appends()
            if self.has_sequence:
                part.set_producer_state(
                    self.producer_id, self.producer_epoch, sequence, self.is_transactional
                )
                sequence = (sequence + part.records_count) & 0x7FFFFFFF
        self._transfer_to(parts, first_numbers, part_numbers)
        return parts

    def largest_record(self) -> int:
        """Returns an upper bound for the size of a batch with only the largest record."""
        return max(
            size_upper_bound(record.key, record.value, record.headers)
            for record in read_records(self.close())
        )

    def _create_part(self, size: int, estimated_ratio: float) -> "ProducerBatch":
        return ProducerBatch(
            self.topic_partition,
            bytearray(size),
            self.created_ms,
            compression=self.compression,
            level=self.level,
            estimated_ratio=estimated_ratio,
            is_split=True,
        )

    def _transfer_to(
        self,
        parts: "list[ProducerBatch]",
        first_numbers: list[int],
        part_numbers: list[int],
    ) -> None:
        for future, callback in self._callbacks:
            part = parts[part_numbers[self._number_of(future)]]
            part._callbacks.append((future, callback))
        self._callbacks = []
        self.result.chain(first_numbers, [part.result for part in parts])
        self._final_state = FinalState.FAILED

    def _number_of(self, future: RecordFuture) -> int:
        """Returns the number of a record in this batch, a part perhaps of the future's batch."""
        return future.batch_result.locate(future.relative_offset)[1]

    # --- time

    def has_reached_delivery_timeout(self, delivery_timeout_ms: int, now_ms: int) -> bool:
        return now_ms - self.created_ms >= delivery_timeout_ms

    def queue_time_ms(self) -> int:
        """Returns the time from its first record until it was sent first."""
        return self.drained_ms - self.created_ms

    def waited_time_ms(self, now_ms: int) -> int:
        """Returns the time since its creation or its last attempt."""
        return max(0, now_ms - self.last_attempt_ms)

    def drained(self, now_ms: int) -> None:
        self.drained_ms = max(self.drained_ms, now_ms)

    def reenqueued(self, now_ms: int) -> None:
        """Records a failed attempt that will be repeated."""
        self.attempts += 1
        self.last_append_ms = max(self.last_append_ms, now_ms)
        self.last_attempt_ms = self.last_append_ms
        self.in_retry = True

    def update_leader_epoch(self, leader_epoch: int) -> None:
        """Records the leader epoch of the next attempt; -1 if it is unknown."""
        if leader_epoch > self._leader_epoch:
            self._attempts_at_new_leader = self.attempts
            self._leader_epoch = leader_epoch

    @property
    def has_new_leader(self) -> bool:
        """Whether this retry goes to a leader that no attempt was sent to; it need not back off."""
        return self.attempts >= 1 and self.attempts == self._attempts_at_new_leader
