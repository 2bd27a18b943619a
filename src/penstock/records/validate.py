"""Validation of batches before an append, and assignment of their offsets.

These are Kafka's rules in Kafka's order: the bytes of the batch (size, CRC), then who may write
what, then the records. A batch that needs no change keeps its bytes; only its offset and leader
epoch are written into the header, where the CRC does not cover them. Followers append batches as
the leader stored them and only call `verify_batches`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from penstock.core.buffers import Buffer, WritableBuffer
from penstock.core.errors import (
    CorruptRecordError,
    ErrorCode,
    InvalidRecordError,
    KafkaError,
)
from penstock.core.ids import NO_OFFSET, NO_TIMESTAMP
from penstock.records import _decode, _encode, legacy
from penstock.records.append_policy import AppendOrigin, AppendPolicy
from penstock.records.batch import (
    CODEC_MASK,
    CONTROL_FLAG,
    HEADER_SIZE,
    MAGIC,
    MAGIC_AT,
    TIMESTAMP_TYPE_FLAG,
    BatchHeader,
    TimestampType,
    first_entry,
    read_header,
    set_base_offset_and_epoch,
    set_max_timestamp,
    split,
    verify,
)
from penstock.records.build import build_encoded
from penstock.records.compress import Compression
from penstock.records.errors import DecompressionLimitError
from penstock.records.read import record_bytes
from penstock.records.record import Record
from penstock.records.record_checks import RecordChecks, are_timestamps_allowed
from penstock.records.walk import renumber, walk_records, wrapping

_MAX_INT64 = 2**63 - 1

_CHUNK_RECORDS = 1000


class Assigned(Struct, frozen=True, gc=False):
    """Batches with their offsets, ready to be written."""

    buffer: Buffer
    """The caller's buffer, changed in place, unless a batch had to be rewritten."""
    headers: list[BatchHeader]
    """The headers of the batches in `buffer`, in order."""

    @property
    def last_offset(self) -> int:
        return self.headers[-1].last_offset


def assign_plain(
    buffer: Buffer, next_offset: int, leader_epoch: int, now_ms: int, policy: AppendPolicy
) -> BatchHeader | None:
    """Does what `validate_any` does, faster, for a client's batch under a policy that `is_plain`.

    Returns None, and changes nothing, if the batch is unusual or invalid; call `validate_any` then.
    """
    return _decode.assign_in_place(
        buffer,
        next_offset,
        leader_epoch,
        policy.max_message_bytes,
        now_ms - policy.timestamp_before_max_ms,
        min(now_ms + policy.timestamp_after_max_ms, _MAX_INT64),
        policy.compacted,
    )


class Append(NamedTuple):
    """The parameters of an append, without its bytes."""

    next_offset: int
    leader_epoch: int
    now_ms: int
    policy: AppendPolicy
    origin: AppendOrigin


def validate_any(buffer: Buffer, append: Append) -> Assigned:
    """Validates `buffer` as a leader does and assigns offsets from `append.next_offset`.

    A client sends one v2 batch, or a v0/v1 message set that is converted; a coordinator may send
    several batches. Raises KafkaError with the codes that Kafka uses: CORRUPT_MESSAGE if the bytes
    contradict their header, MESSAGE_TOO_LARGE if a batch exceeds `max.message.bytes` or the
    decompression limit, INVALID_RECORD if a rule is broken, INVALID_TIMESTAMP if a timestamp is too
    far from now. A RecordValidationError lists the records at fault. A refused buffer is unchanged.
    """
    if not buffer:
        raise InvalidRecordError("an append needs at least one batch")
    if first_entry(buffer).magic < MAGIC:
        return _convert(buffer, append)
    policy, origin = append.policy, append.origin
    batches = split(buffer)
    for position, header in batches:
        if header.base_offset != 0 and origin is AppendOrigin.CLIENT:
            raise InvalidRecordError(
                f"a client's batch must start at offset 0, not {header.base_offset}"
            )
        _check_size(header.size, policy)
        verify(buffer, position, header)
    if len(batches) == 1:
        return _assign(buffer, batches[0][1], append)
    if origin is AppendOrigin.CLIENT:
        raise InvalidRecordError(f"a client must append one batch at a time, not {len(batches)}")
    parts = []
    for position, header in batches:
        batch = bytearray(memoryview(buffer)[position : position + header.size])
        part = _assign(batch, header, append)
        parts.append(part)
        append = append._replace(next_offset=part.last_offset + 1)
    return _join(parts)


def verify_batches(buffer: Buffer) -> list[tuple[int, BatchHeader]]:
    """Verifies batches as a follower does; returns the position and header of each.

    The header of a v0/v1 message is that of `legacy.header_of`. Raises CorruptRecordError unless
    all batches are complete with correct CRCs, InvalidRecordError unless their offsets increase.
    """
    batches: list[tuple[int, BatchHeader]] = []
    last_offset: int = NO_OFFSET
    position = 0
    end = len(buffer)
    while position < end:
        if end - position > MAGIC_AT and buffer[position + MAGIC_AT] != MAGIC:
            legacy.read_message(buffer, position)
            header = legacy.header_of(buffer, position)
        else:
            header = read_header(buffer, position)
            verify(buffer, position, header)
        last_offset = _check_increasing(last_offset, header.last_offset)
        batches.append((position, header))
        position += header.size
    return batches


def _check_increasing(previous: int, last_offset: int) -> int:
    if last_offset <= previous:
        raise InvalidRecordError(
            f"last offset {last_offset} follows {previous}: offsets must increase"
        )
    return last_offset


def _check_size(size: int, policy: AppendPolicy) -> None:
    if size > policy.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {size} bytes is larger than max.message.bytes, {policy.max_message_bytes}",
            remedy="send smaller batches or raise the limit of the topic",
        )


def _check_header(header: BatchHeader, origin: AppendOrigin) -> None:
    if header.records_count <= 0 or header.last_offset_delta != header.records_count - 1:
        raise InvalidRecordError(
            f"a batch claims {header.records_count} records, but the last one has "
            f"offset delta {header.last_offset_delta}"
        )
    if origin is not AppendOrigin.CLIENT:
        return
    if header.attributes & CONTROL_FLAG:
        raise InvalidRecordError("clients must not write control batches")
    if header.producer_id < 0:
        if header.is_transactional:
            raise InvalidRecordError("a transactional batch needs a producer id")
    elif header.base_sequence < 0 or header.producer_epoch < 0:
        raise InvalidRecordError(
            f"producer {header.producer_id} sends sequence {header.base_sequence} in epoch "
            f"{header.producer_epoch}: both must be 0 or more"
        )


def _assign(buffer: Buffer, header: BatchHeader, append: Append) -> Assigned:
    """Validates and assigns one complete v2 batch whose CRC is correct."""
    policy, now_ms = append.policy, append.now_ms
    _check_header(header, append.origin)
    try:
        source, start, end = record_bytes(
            buffer, 0, header, max_bytes=policy.max_decompressed_bytes
        )
        sequential, null_keys, earliest, latest = _decode.scan_records(
            source, start, end, header.records_count, header.base_timestamp
        )
    except CorruptRecordError as error:
        # The CRC is correct, so the client meant to send these bytes. CORRUPT_MESSAGE would make
        # it send them again, in vain.
        raise InvalidRecordError(error.message) from None
    append_time = header.attributes & TIMESTAMP_TYPE_FLAG != 0
    if append_time:
        earliest = latest = header.max_timestamp
    if (null_keys and policy.compacted) or not are_timestamps_allowed(
        earliest, latest, append_time, now_ms, policy
    ):
        checks = RecordChecks(append_time, now_ms, policy)
        for record in walk_records(source, start, end, header.records_count):
            timestamp = header.max_timestamp
            if not append_time:
                timestamp = wrapping(header.base_timestamp + record.timestamp_delta)
            checks.add(timestamp, has_key=record.key_size >= 0)
        checks.finish()
    codec = header.attributes & CODEC_MASK
    keeps_codec = (
        policy.compression is None
        or policy.compression == codec
        or (codec == Compression.NONE and header.is_control)
    )
    if not sequential or not (keeps_codec or _counts_from_first(source, start, header)):
        renumbered = renumber(
            source,
            start,
            end,
            header.records_count,
            header.base_timestamp,
            header.max_timestamp if append_time else None,
        )
        del source  # its memory is needed for compression
        header = header._replace(base_timestamp=renumbered.base_timestamp)
        return _repack(memoryview(renumbered.batch)[HEADER_SIZE:], header, latest, append)
    if not keeps_codec:
        return _repack(memoryview(source)[start:end], header, latest, append)
    if policy.timestamp_type is TimestampType.LOG_APPEND_TIME:
        latest = now_ms
    return _stamp(buffer, header, latest, append)


def _stamp(buffer: Buffer, header: BatchHeader, latest: int, append: Append) -> Assigned:
    """Assigns offsets to a batch of which only header fields change."""
    next_offset, leader_epoch = append.next_offset, append.leader_epoch
    timestamp_type = append.policy.timestamp_type
    target = _writable(buffer)
    if header.max_timestamp != latest or header.timestamp_type is not timestamp_type:
        header = set_max_timestamp(target, 0, header, timestamp_type, latest)
    set_base_offset_and_epoch(target, 0, next_offset, leader_epoch)
    header = BatchHeader._make((next_offset, header[1], leader_epoch, *header[3:]))
    return Assigned(target, [header])


def _writable(buffer: Buffer) -> WritableBuffer:
    """Returns the buffer itself if it is writable, otherwise a copy."""
    if isinstance(buffer, bytes) or (isinstance(buffer, memoryview) and buffer.readonly):
        return bytearray(buffer)
    return buffer


def _counts_from_first(source: Buffer, start: int, header: BatchHeader) -> bool:
    """Returns whether the base timestamp is that of the first record, as in a new batch."""
    if header.has_delete_horizon:
        return False
    position = start
    while source[position] & 0x80:
        position += 1
    # The length is followed by the attributes, then by the timestamp delta.
    return source[position + 2] == 0


def _repack(records: memoryview, header: BatchHeader, latest: int, append: Append) -> Assigned:
    """Recompresses records that need no other change, without decoding them."""
    policy = append.policy
    append_time = policy.timestamp_type is TimestampType.LOG_APPEND_TIME
    batch = build_encoded(
        records,
        records_count=header.records_count,
        base_offset=append.next_offset,
        base_timestamp=header.base_timestamp,
        max_timestamp=append.now_ms if append_time else latest,
        compression=policy.target(header.compression),
        level=policy.target_level,
        timestamp_type=policy.timestamp_type,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        partition_leader_epoch=append.leader_epoch,
        is_transactional=header.is_transactional,
        is_control=header.is_control,
    )
    return _built(batch, policy)


def _built(batch: bytearray, policy: AppendPolicy) -> Assigned:
    _check_size(len(batch), policy)
    return Assigned(batch, [read_header(batch)])


def _convert(buffer: Buffer, append: Append) -> Assigned:
    """Converts a v0/v1 message set to one v2 batch."""
    policy = append.policy
    magic = first_entry(buffer).magic
    source = Compression.NONE
    encoder = _ChunkEncoder(append.next_offset, policy.max_decompressed_bytes)
    position = 0
    while position < len(buffer):
        entry = first_entry(buffer, position)
        if entry.magic != magic:
            raise InvalidRecordError(f"an append mixes messages of magic {magic} and {entry.magic}")
        _check_size(entry.size, policy)
        message = legacy.read_message(buffer, position)
        if message.compression is not Compression.NONE:
            source = message.compression
        append_time = message.timestamp_type is TimestampType.LOG_APPEND_TIME
        checks = RecordChecks(append_time, append.now_ms, policy)
        try:
            for record in legacy.iter_entry(
                buffer, position, max_bytes=policy.max_decompressed_bytes, same_magic=True
            ):
                checks.add(record.timestamp, has_key=record.key is not None)
                encoder.add(record)
        except CorruptRecordError as error:
            raise InvalidRecordError(error.message) from None
        checks.finish()
        position += entry.size
        if source is not Compression.NONE and position < len(buffer):
            raise InvalidRecordError("a compressed message must be the only one of its append")
    encoder.encode()
    append_time = policy.timestamp_type is TimestampType.LOG_APPEND_TIME
    batch = build_encoded(
        encoder.records,
        records_count=encoder.count,
        base_offset=append.next_offset,
        base_timestamp=encoder.base_timestamp,
        max_timestamp=append.now_ms if append_time else encoder.max_timestamp,
        compression=policy.target(source),
        level=policy.target_level,
        timestamp_type=policy.timestamp_type,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        partition_leader_epoch=append.leader_epoch,
        is_transactional=False,
        is_control=False,
    )
    return _built(batch, policy)


class _ChunkEncoder:
    """Encodes records with consecutive offsets, and holds few of them at a time."""

    def __init__(self, base_offset: int, max_bytes: int) -> None:
        self._base_offset = base_offset
        self._max_bytes = max_bytes
        self._chunk: list[Record] = []
        self.records = bytearray()
        self.count = 0
        self.base_timestamp: int = NO_TIMESTAMP
        self.max_timestamp: int = NO_TIMESTAMP

    def add(self, record: Record) -> None:
        if not self.count:
            self.base_timestamp = record.timestamp
        self._chunk.append(record._replace(offset=self._base_offset + self.count))
        self.count += 1
        if len(self._chunk) == _CHUNK_RECORDS:
            self.encode()

    def encode(self) -> None:
        """Encodes the records since the last call."""
        encoded, _, latest = _encode.encode_records(
            self._chunk, 0, self._base_offset, self.base_timestamp
        )
        self._chunk.clear()
        self.records += encoded
        self.max_timestamp = max(self.max_timestamp, latest)
        if len(self.records) > self._max_bytes:
            raise DecompressionLimitError(self._max_bytes)


def _join(parts: Sequence[Assigned]) -> Assigned:
    buffer = bytearray().join(part.buffer for part in parts)
    return Assigned(buffer, [header for part in parts for header in part.headers])
