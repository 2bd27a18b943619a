"""The dump of a `.log` file: its batches, and optionally their records.

`storage.segment.batch_scan` finds the batches block by block, so the file may have any size. A
batch with a wrong CRC is shown as such; after a point where no batch can be recognised, the rest of
the file is only counted.
"""

from collections.abc import Iterator
from typing import NamedTuple

from penstock.cli.dump.decoders import Decoder
from penstock.cli.dump.items import BATCH, RECORD, SUMMARY, Item, Value, note, problem
from penstock.core.errors import CorruptRecordError, KafkaError
from penstock.records.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    TimestampType,
)
from penstock.records.compress import Compression
from penstock.records.control import read_control_type, read_end_txn_marker
from penstock.records.read import read_records
from penstock.records.record import Record
from penstock.storage.disk import File
from penstock.storage.segment.batch_scan import SCAN_BLOCK, ScannedBatch, scan_batches, verify_at

_MAX_SEQUENCE = 0x7FFFFFFF
_TIMESTAMP_TYPES = {
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}


class SegmentOptions(NamedTuple):
    """How much of a log file is shown."""

    records: bool = False
    """The records of each batch, not only the batch."""
    data: bool = False
    """Keys, values and headers of the records."""
    metadata: bool = True
    """Offset, timestamp, sizes and so on of the records."""
    max_bytes: int | None = None
    """Batches that end after this position are left out."""
    decoder: Decoder | None = None
    """Decodes keys and values of Kafka's internal topics."""


def dump_segment(file: File, base_offset: int, options: SegmentOptions) -> Iterator[Item]:
    """Yields the batches of a file with this base offset in its name, problems, and a summary."""
    size = file.size()
    limit = size if options.max_bytes is None else min(size, options.max_bytes)
    walk = _SegmentDump(base_offset)
    batches = scan_batches(file, 0, size)
    while True:
        try:
            batch = next(batches, None)
        except CorruptRecordError as error:
            if walk.end + HEADER_SIZE <= limit or limit == size:
                yield _broken_off(file, walk.end, size, error)
                walk.problems += 1
            break
        if batch is None or batch.position + batch.header.size > limit:
            break
        yield from walk.batch(batch, options)
    if limit < size:
        yield note(f"stopped before byte {limit} (--max-bytes); the file has {size} bytes")
    yield walk.summary()


def _broken_off(file: File, position: int, size: int, error: CorruptRecordError) -> Item:
    remaining = size - position
    if _only_zeros(file, position, size):
        reason = (
            "only zeros from here on: space that was allocated in advance, or bytes that were lost"
        )
    else:
        reason = f"no batch can be read here: {error.message}"
    return problem(reason, position=position, remainingBytes=remaining)


def _only_zeros(file: File, position: int, size: int) -> bool:
    while position < size:
        block = file.read_at(position, min(SCAN_BLOCK, size - position))
        if not block or block.count(0) != len(block):
            return False
        position += len(block)
    return True


class _SegmentDump:
    """The state of the dump of one segment: offsets and counters so far."""

    def __init__(self, base_offset: int) -> None:
        self.end = 0
        self.problems = 0
        self._base_offset = base_offset
        self._next_offset: int | None = None
        self._last_offset: int | None = None
        self._batches = 0
        self._records = 0
        self._counted = True
        self._gaps = 0

    def batch(self, batch: ScannedBatch, options: SegmentOptions) -> Iterator[Item]:
        header = batch.header
        reason = ""
        try:
            verify_at(batch.data, batch.start, header)
            codec = header.compression.codec_name
        except CorruptRecordError as error:
            reason = error.message
            codec = _codec_name(header)
        yield Item(BATCH, _batch_fields(batch, codec, is_valid=not reason))
        if reason:
            yield self._problem(f"corrupt batch: {reason}", batch)
        elif header.last_offset < (self._next_offset or self._base_offset):
            yield self._problem(
                f"the batch ends at offset {header.last_offset}, where offsets from "
                f"{self._next_offset or self._base_offset} on are due",
                batch,
            )
        if options.records and not reason:
            yield from self._deep(batch, options)
        else:
            self._shallow(header)
        self._next_offset = header.next_offset
        self._last_offset = header.last_offset
        self._batches += 1
        self.end = batch.position + header.size

    def _shallow(self, header: BatchHeader) -> None:
        if header.magic < MAGIC and header.attributes & CODEC_MASK:
            # The number of records and the first offset are inside the compressed old message.
            self._counted = False
            return
        self._records += max(header.records_count, 0)
        if self._next_offset not in (None, header.base_offset):
            self._gaps += 1

    def _deep(self, batch: ScannedBatch, options: SegmentOptions) -> Iterator[Item]:
        header = batch.header
        try:
            # read_records takes the header of v2 batches only.
            records = read_records(
                batch.data, batch.start, header if header.magic == MAGIC else None
            )
        except KafkaError as error:
            yield self._problem(f"its records cannot be read: {error.message}", batch)
            return
        self._records += len(records)
        due = self._next_offset
        for record in records:
            if due is not None and record.offset != due:
                self._gaps += 1
            due = record.offset + 1
            yield from self._record(batch, record, options)

    def _record(
        self, batch: ScannedBatch, record: Record, options: SegmentOptions
    ) -> Iterator[Item]:
        header = batch.header
        fields: dict[str, Value] = {}
        failure = ""
        if options.metadata:
            fields |= _record_fields(header, record)
            if header.is_control:
                try:
                    fields |= _control_fields(batch, record)
                except KafkaError as error:
                    failure = f"no control record: {error.message}"
        if options.data and not header.is_control:
            key: Value = record.key
            value: Value = record.value
            if options.decoder is not None:
                try:
                    key, value = options.decoder(record.key, record.value)
                except KafkaError as error:
                    failure = f"the record cannot be decoded: {error.message}"
            if record.headers:
                fields["headers"] = [{"key": name, "value": data} for name, data in record.headers]
            fields |= {"key": key, "payload": value}
        yield Item(RECORD, fields)
        if failure:
            self.problems += 1
            yield problem(failure, offset=record.offset)

    def _problem(self, reason: str, batch: ScannedBatch) -> Item:
        self.problems += 1
        return problem(reason, position=batch.position, size=batch.header.size)

    def summary(self) -> Item:
        return Item(
            SUMMARY,
            {
                "batches": self._batches,
                "records": self._records if self._counted else None,
                "validBytes": self.end,
                "lastOffset": self._last_offset,
                "gaps": self._gaps,
                "problems": self.problems,
            },
        )


def _batch_fields(batch: ScannedBatch, codec: str, *, is_valid: bool) -> dict[str, Value]:
    header = batch.header
    fields: dict[str, Value]
    if header.magic >= MAGIC:
        fields = {
            "baseOffset": header.base_offset,
            "lastOffset": header.last_offset,
            "count": header.records_count,
            "baseSequence": header.base_sequence,
            "lastSequence": header.last_sequence,
            "producerId": header.producer_id,
            "producerEpoch": header.producer_epoch,
            "partitionLeaderEpoch": header.partition_leader_epoch,
            "isTransactional": header.is_transactional,
            "isControl": header.is_control,
            "deleteHorizonMs": header.delete_horizon_ms,
        }
    else:
        fields = {"offset": header.last_offset}
    return fields | {
        "position": batch.position,
        "timestampType": _timestamp_type(header),
        "maxTimestamp": header.max_timestamp,
        "size": header.size,
        "magic": header.magic,
        "compresscodec": codec,
        "crc": header.crc if header.magic >= MAGIC else _old_crc(batch),
        "isvalid": is_valid,
    }


def _old_crc(batch: ScannedBatch) -> int:
    return int.from_bytes(batch.bytes[LOG_OVERHEAD : LOG_OVERHEAD + 4], "big")


def _record_fields(header: BatchHeader, record: Record) -> dict[str, Value]:
    fields: dict[str, Value] = {
        "offset": record.offset,
        "timestampType": _timestamp_type(header),
        "timestamp": record.timestamp,
        "keySize": -1 if record.key is None else len(record.key),
        "valueSize": -1 if record.value is None else len(record.value),
    }
    if header.magic >= MAGIC:
        sequence = header.base_sequence
        if sequence >= 0:
            sequence = (sequence + record.offset - header.base_offset) & _MAX_SEQUENCE
        fields["sequence"] = sequence
        fields["headerKeys"] = [name for name, _ in record.headers]
    return fields


def _control_fields(batch: ScannedBatch, record: Record) -> dict[str, Value]:
    control_type = read_control_type(record.key)
    marker = read_end_txn_marker(batch.data, batch.start, batch.header)
    if marker.ends_transaction:
        return {"endTxnMarker": control_type.name, "coordinatorEpoch": marker.coordinator_epoch}
    return {"controlType": f"{control_type.name}({control_type.value})"}


def _timestamp_type(header: BatchHeader) -> str:
    return "NoTimestampType" if header.magic == 0 else _TIMESTAMP_TYPES[header.timestamp_type]


def _codec_name(header: BatchHeader) -> str:
    number = header.attributes & CODEC_MASK
    try:
        return Compression(number).codec_name
    except ValueError:
        return f"unknown({number})"
