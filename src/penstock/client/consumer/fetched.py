"""The answer to a fetch of one partition, and the records in it.

Batches are decoded one at a time, when records are taken, on the thread that takes them. A batch
that cannot be read stays where it is: nothing of it and nothing behind it is given out.
"""

from collections import deque
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


class Decoding:
    """How records are read: what the settings say about it."""

    __slots__ = ("check_crcs", "key", "read_committed", "value")

    def __init__(
        self,
        *,
        check_crcs: bool = True,
        read_committed: bool = False,
        key: Deserialize | None = None,
        value: Deserialize | None = None,
    ) -> None:
        self.check_crcs = check_crcs
        self.read_committed = read_committed
        self.key = key
        self.value = value


class CompletedFetch:
    """What came of one partition. `take` and `take_arrow` give out what is left of it."""

    __slots__ = (
        "_aborted",
        "_aborted_producers",
        "_at",
        "_decoding",
        "_header",
        "_pending",
        "_pending_at",
        "_step",
        "_view",
        "end_offset",
        "error_code",
        "is_consumed",
        "last_epoch",
        "next_offset",
        "partition",
        "size",
        "start_offset",
    )

    def __init__(
        self,
        partition: TopicPartition,
        fetch_offset: int,
        data: FetchPartitionData,
        decoding: Decoding,
    ) -> None:
        self.partition = partition
        self.error_code = data.error_code
        self.start_offset = fetch_offset
        self.next_offset = fetch_offset
        """The first offset that was not given out yet."""
        self.last_epoch = -1
        """The leader epoch of the last batch that was given out."""
        self.is_consumed = False
        self._view = memoryview(cast("Buffer", data.records or b""))
        self.size = len(self._view)
        self.end_offset = _end_of(self._view, fetch_offset)
        """Where the next fetch goes on."""
        self._decoding = decoding
        self._at = 0
        """Where the batch is that is being given out, or comes next."""
        self._step = 0
        self._header: BatchHeader | None = None
        self._pending: list[ConsumerRecord] = []
        """The records of that batch, and how many of them were given out."""
        self._pending_at = 0
        aborted = data.aborted_transactions if decoding.read_committed else None
        self._aborted = deque(
            sorted((each.first_offset, each.producer_id) for each in aborted or ())
        )
        self._aborted_producers: set[int] = set()

    def take(self, limit: int) -> list[ConsumerRecord]:
        """Up to `limit` records. What cannot be read is raised once nothing comes before it.

        `next_offset` and `last_epoch` say where reading goes on, `is_consumed` that this was all.
        """
        taken: list[ConsumerRecord] = []
        try:
            while len(taken) < limit and (self._pending or self._load()):
                self._hand_out(taken, limit - len(taken))
        except KafkaError:
            if not taken:
                raise
        if self.next_offset >= self.end_offset:
            # Said now and not at the next call, so that the next fetch can begin.
            self.is_consumed = True
        return taken

    def take_arrow(
        self,
        decoder: "ArrowDecoder",
        *,
        end_offset: int = _NO_LIMIT,
        max_bytes: int = _NO_LIMIT,
    ) -> int:
        """Everything that is left below `end_offset`, into `decoder`; how many records that was.

        No batch is begun once the decoder holds `max_bytes`.
        """
        before = decoder.rows
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
                    raise self._unreadable(error, header) from error
                self._batch_done(header)
        except KafkaError:
            if decoder.rows == before:
                raise
        return decoder.rows - before

    def _load(self) -> bool:
        """Decode the next batch; False where there is none."""
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
                raise self._unreadable(error, header) from error
            if self._pending:
                self._header = header
                self._pending_at = 0
                return True
            self._batch_done(header)
        return False

    def _hand_out(self, taken: list[ConsumerRecord], limit: int) -> None:
        pending, at = self._pending, self._pending_at
        header = self._header
        assert header is not None
        whole = at == 0 and len(pending) <= limit
        chunk = pending if whole else pending[at : at + limit]
        decoding = self._decoding
        if decoding.key is None and decoding.value is None:
            taken += chunk
        else:
            for record in chunk:
                taken.append(self._deserialized(record))
                self._pending_at += 1
                self.next_offset = record.offset + 1
                self.last_epoch = record.leader_epoch
        self._pending_at = at + len(chunk)
        if self._pending_at == len(pending):
            self._pending = []
            self._batch_done(header)
        else:
            self.next_offset = chunk[-1].offset + 1
            self.last_epoch = header.partition_leader_epoch

    def _deserialized(self, record: ConsumerRecord) -> ConsumerRecord:
        key, value = record.key, record.value
        what = "key"
        try:
            if key is not None and self._decoding.key is not None:
                key = self._decoding.key(record.topic, record.headers, key)
            what = "value"
            if value is not None and self._decoding.value is not None:
                value = self._decoding.value(record.topic, record.headers, value)
        except Exception as error:
            raise SerializationError(
                f"the {what} of the record at offset {record.offset} of {self.partition} cannot "
                f"be deserialized ({type(error).__name__}: {error}): seek to "
                f"{record.offset + 1} to skip it, or change {what}_deserializer"
            ) from error
        return tuple.__new__(
            ConsumerRecord, (*record[:5], key, value, record.headers, record.leader_epoch)
        )

    def _next_batch(self) -> tuple[memoryview, BatchHeader] | None:
        """The next batch with data for the user; those without are passed by.

        It stays the next until `_batch_done`.
        """
        while True:
            try:
                batch = self._entry()
                if batch is None:
                    self.is_consumed = True
                    return None
                view, header = batch
                if self._decoding.check_crcs:
                    verify(view, 0, header)
                hidden = self._is_hidden(view, header)
            except KafkaError as error:
                raise self._unreadable(error, None) from error
            if not hidden and header.last_offset >= self.next_offset and header.records_count:
                return batch
            self._batch_done(header)

    def _entry(self) -> tuple[memoryview, BatchHeader] | None:
        """The batch where we are; a message of an old format as a batch; None at the end."""
        view, at = self._view, self._at
        left = len(view) - at
        if left < MIN_ENTRY_SIZE:
            self._must_have_moved()
            return None
        entry = first_entry(view, at)
        self._step = entry.size
        if entry.size > left:
            self._must_have_moved()
            return None
        whole = view[at : at + entry.size]
        if entry.magic != MAGIC:
            whole = memoryview(convert_to_v2(whole))
        return whole, read_header(whole)

    def _must_have_moved(self) -> None:
        if self._at == 0 and self.size > 0:
            raise RecordTooLargeError(
                f"{self.partition}: the batch at offset {self.next_offset} does not fit into "
                f"the {self.size} bytes that were fetched: raise max_partition_fetch_bytes"
            )

    def _is_hidden(self, view: memoryview, header: BatchHeader) -> bool:
        """Control batches are, and with read_committed what was aborted."""
        attributes, producer_id = header.attributes, header.producer_id
        is_control = attributes & CONTROL_FLAG != 0
        if not self._decoding.read_committed or producer_id < 0:
            return is_control
        # Before the marker is looked at: compaction may have left nothing of a transaction but it.
        aborted, producers = self._aborted, self._aborted_producers
        while aborted and aborted[0][0] <= header.last_offset:
            producers.add(aborted.popleft()[1])
        if producer_id not in producers:
            return is_control
        if is_control and read_end_txn_marker(view, 0, header).control_type is ControlType.ABORT:
            producers.discard(producer_id)
        return is_control or attributes & TRANSACTIONAL_FLAG != 0

    def _batch_done(self, header: BatchHeader) -> None:
        self._at += self._step
        # The end of a batch counts, not its last record: compaction may have taken that away.
        self.next_offset = max(self.next_offset, header.next_offset)
        self.last_epoch = header.partition_leader_epoch

    def _unreadable(self, error: KafkaError, header: BatchHeader | None) -> KafkaError:
        if isinstance(error, RecordTooLargeError):
            return error
        offset = self.next_offset if header is None else header.base_offset
        past = "" if header is None else f" to {header.next_offset}"
        return CorruptRecordError(
            f"{self.partition} cannot be read on from offset {self.next_offset}: the batch at "
            f"offset {offset} is broken ({error.message}); seek past it{past} to go on without it"
        )


def _end_of(view: memoryview, fetch_offset: int) -> int:
    """The offset behind the last whole entry."""
    size = len(view)
    at, last, last_magic = 0, -1, 0
    while size - at >= MIN_ENTRY_SIZE:
        _, length, _, magic = _ENTRY(view, at)
        least = MIN_BATCH_LENGTH if magic == MAGIC else MIN_LEGACY_LENGTH
        if length < least or length + LOG_OVERHEAD > size - at or not 0 <= magic <= MAGIC:
            break
        last, last_magic = at, magic
        at += length + LOG_OVERHEAD
    if last < 0:
        return fetch_offset
    if last_magic == MAGIC:
        return max(fetch_offset, read_header(view, last).next_offset)
    return max(fetch_offset, first_entry(view, last).offset + 1)
