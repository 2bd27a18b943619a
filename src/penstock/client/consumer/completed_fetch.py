"""The response to a fetch of one partition, and the records in it.

Batches are decoded one at a time when records are taken, on the caller's thread. A batch that
cannot be read stays the next one: neither it nor anything after it is returned.
"""

from collections import deque
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Final, cast

from penstock.client.consumer.deserializers import Deserialize
from penstock.client.consumer.record import ConsumerRecord
from penstock.client.errors import RecordTooLargeError, SerializationError
from penstock.core.buffers import Buffer
from penstock.core.errors import CorruptRecordError, KafkaError
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.fetch import FetchPartitionData
from penstock.records import _decode
from penstock.records.batch import (
    CONTROL_FLAG,
    LOG_OVERHEAD,
    MAGIC,
    MIN_BATCH_LENGTH,
    MIN_ENTRY_SIZE,
    MIN_LEGACY_LENGTH,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    first_entry,
    read_header,
    verify,
)
from penstock.records.control import ControlType, read_end_txn_marker
from penstock.records.legacy import convert_to_v2
from penstock.records.read import record_bytes

if TYPE_CHECKING:
    from penstock.records.arrow import ArrowDecoder

_ENTRY: Final = Struct(">qiib").unpack_from
_NO_LIMIT: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchConfig:
    """The settings for decoding records."""

    check_crcs: bool = True
    read_committed: bool = False
    key: Deserialize | None = None
    value: Deserialize | None = None


class CompletedFetch:
    """The fetched data of one partition; `take` and `take_arrow` return its remaining records."""

    def __init__(
        self,
        partition: TopicPartition,
        fetch_offset: int,
        data: FetchPartitionData,
        config: FetchConfig,
    ) -> None:
        self.partition = partition
        self.error_code = data.error_code
        self.start_offset = fetch_offset
        self.next_offset = fetch_offset
        """The first offset that was not returned yet."""
        self.last_epoch = -1
        """The leader epoch of the last batch that was returned."""
        self.is_consumed = False
        self._view = memoryview(cast("Buffer", data.records or b""))
        self.size = len(self._view)
        self.end_offset = _end_of(self._view, fetch_offset)
        """The offset of the next fetch."""
        self._config = config
        self._position = 0
        """The position of the current batch in the data."""
        self._step = 0
        self._header: BatchHeader | None = None
        self._pending: list[ConsumerRecord] = []
        """The records of that batch; `_pending_index` is that of the next to return."""
        self._pending_index = 0
        aborted = data.aborted_transactions if config.read_committed else None
        self._aborted = deque(
            sorted(
                (transaction.first_offset, transaction.producer_id) for transaction in aborted or ()
            )
        )
        self._aborted_producers: set[int] = set()

    def take(self, limit: int) -> list[ConsumerRecord]:
        """Returns up to `limit` records. Raises for an unreadable batch once no records precede it.

        `next_offset` and `last_epoch` are the position afterwards; `is_consumed` is set when no
        records remain.
        """
        records: list[ConsumerRecord] = []
        try:
            while len(records) < limit and (self._pending or self._load()):
                self._take_pending(records, limit - len(records))
        except KafkaError:
            if not records:
                raise
        if self.next_offset >= self.end_offset:
            # Set now and not with the next call, so that the next fetch can begin.
            self.is_consumed = True
        return records

    def take_arrow(
        self,
        decoder: "ArrowDecoder",
        *,
        end_offset: int = _NO_LIMIT,
        max_bytes: int = _NO_LIMIT,
    ) -> int:
        """Decodes the remaining records below `end_offset` into `decoder`; returns their number.

        Starts no further batch once the decoder holds `max_bytes`.
        """
        rows_before = decoder.rows
        self._pending = []
        try:
            while self.next_offset < end_offset and decoder.size < max_bytes:
                batch = self._next_batch()
                if batch is None:
                    break
                view, header = batch
                try:
                    decoder.add_batch(view, 0, header, self.next_offset, end_offset)
                except KafkaError as error:
                    raise self._unreadable_error(error, header) from error
                self._finish_batch(header)
        except KafkaError:
            if decoder.rows == rows_before:
                raise
        return decoder.rows - rows_before

    def _load(self) -> bool:
        """Decodes the next batch; returns False at the end."""
        while (batch := self._next_batch()) is not None:
            view, header = batch
            try:
                source, start, end = record_bytes(view, 0, header)
                self._pending = _decode.decode_consumed(
                    source,
                    start,
                    end,
                    header.records_count,
                    header.base_offset,
                    header.base_timestamp,
                    header.max_timestamp,
                    header.attributes & TIMESTAMP_TYPE_FLAG != 0,
                    self.next_offset,
                    ConsumerRecord,
                    self.partition.topic,
                    self.partition.partition,
                    int(header.timestamp_type),
                    header.partition_leader_epoch,
                )
            except KafkaError as error:
                raise self._unreadable_error(error, header) from error
            if self._pending:
                self._header = header
                self._pending_index = 0
                return True
            self._finish_batch(header)
        return False

    def _take_pending(self, records: list[ConsumerRecord], limit: int) -> None:
        pending, index = self._pending, self._pending_index
        header = self._header
        assert header is not None
        is_whole = index == 0 and len(pending) <= limit
        chunk = pending if is_whole else pending[index : index + limit]
        config = self._config
        if config.key is None and config.value is None:
            records += chunk
        else:
            for record in chunk:
                records.append(self._deserialize(record))
                self._pending_index += 1
                self.next_offset = record.offset + 1
                self.last_epoch = record.leader_epoch
        self._pending_index = index + len(chunk)
        if self._pending_index == len(pending):
            self._pending = []
            self._finish_batch(header)
        else:
            self.next_offset = chunk[-1].offset + 1
            self.last_epoch = header.partition_leader_epoch

    def _deserialize(self, record: ConsumerRecord) -> ConsumerRecord:
        key, value = record.key, record.value
        field = "key"
        try:
            if key is not None and self._config.key is not None:
                key = self._config.key(record.topic, record.headers, key)
            field = "value"
            if value is not None and self._config.value is not None:
                value = self._config.value(record.topic, record.headers, value)
        except Exception as error:
            raise SerializationError(
                f"the {field} of the record at offset {record.offset} of {self.partition} cannot "
                f"be deserialized ({type(error).__name__}: {error})",
                remedy=f"seek to {record.offset + 1} to skip it, or change {field}_deserializer",
            ) from error
        return tuple.__new__(
            ConsumerRecord, (*record[:5], key, value, record.headers, record.leader_epoch)
        )

    def _next_batch(self) -> tuple[memoryview, BatchHeader] | None:
        """Returns the next batch with records for the caller; skips all others.

        It stays the next one until `_finish_batch`.
        """
        while True:
            try:
                batch = self._current_batch()
                if batch is None:
                    self.is_consumed = True
                    return None
                view, header = batch
                if self._config.check_crcs:
                    verify(view, 0, header)
                is_hidden = self._is_hidden(view, header)
            except KafkaError as error:
                raise self._unreadable_error(error, None) from error
            if not is_hidden and header.last_offset >= self.next_offset and header.records_count:
                return batch
            self._finish_batch(header)

    def _current_batch(self) -> tuple[memoryview, BatchHeader] | None:
        """Returns the batch at the position, converted if its format is old; None at the end."""
        view, start = self._view, self._position
        remaining_bytes = len(view) - start
        if remaining_bytes < MIN_ENTRY_SIZE:
            self._check_first_batch_fits()
            return None
        entry = first_entry(view, start)
        self._step = entry.size
        if entry.size > remaining_bytes:
            self._check_first_batch_fits()
            return None
        batch = view[start : start + entry.size]
        if entry.magic != MAGIC:
            batch = memoryview(convert_to_v2(batch))
        return batch, read_header(batch)

    def _check_first_batch_fits(self) -> None:
        if self._position == 0 and self.size > 0:
            raise RecordTooLargeError(
                f"{self.partition}: the batch at offset {self.next_offset} does not fit into the "
                f"{self.size} bytes that were fetched",
                remedy="raise `max_partition_fetch_bytes`",
            )

    def _is_hidden(self, view: memoryview, header: BatchHeader) -> bool:
        """Returns whether it is a control batch, or aborted with read_committed."""
        attributes, producer_id = header.attributes, header.producer_id
        is_control = attributes & CONTROL_FLAG != 0
        if not self._config.read_committed or producer_id < 0:
            return is_control
        # Before the marker is read: compaction may have left only the marker of a transaction.
        aborted, producers = self._aborted, self._aborted_producers
        while aborted and aborted[0][0] <= header.last_offset:
            producers.add(aborted.popleft()[1])
        if producer_id not in producers:
            return is_control
        if is_control and read_end_txn_marker(view, 0, header).control_type is ControlType.ABORT:
            producers.discard(producer_id)
        return is_control or attributes & TRANSACTIONAL_FLAG != 0

    def _finish_batch(self, header: BatchHeader) -> None:
        self._position += self._step
        # The end of the batch, not of its last record, which compaction may have removed.
        self.next_offset = max(self.next_offset, header.next_offset)
        self.last_epoch = header.partition_leader_epoch

    def _unreadable_error(self, error: KafkaError, header: BatchHeader | None) -> KafkaError:
        if isinstance(error, RecordTooLargeError):
            return error
        offset = self.next_offset if header is None else header.base_offset
        target = "" if header is None else f" to {header.next_offset}"
        return CorruptRecordError(
            f"{self.partition} cannot be read from offset {self.next_offset}: the batch at offset "
            f"{offset} is corrupt ({error.message})",
            remedy=f"seek past it{target} to skip it",
        )


def _end_of(view: memoryview, fetch_offset: int) -> int:
    """Returns the offset after the last complete batch or message."""
    size = len(view)
    position, last, last_magic = 0, -1, 0
    while size - position >= MIN_ENTRY_SIZE:
        _, length, _, magic = _ENTRY(view, position)
        min_length = MIN_BATCH_LENGTH if magic == MAGIC else MIN_LEGACY_LENGTH
        if (
            length < min_length
            or length + LOG_OVERHEAD > size - position
            or not 0 <= magic <= MAGIC
        ):
            break
        last, last_magic = position, magic
        position += length + LOG_OVERHEAD
    if last < 0:
        return fetch_offset
    if last_magic == MAGIC:
        return max(fetch_offset, read_header(view, last).next_offset)
    return max(fetch_offset, first_entry(view, last).offset + 1)
