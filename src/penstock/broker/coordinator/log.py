"""Appends the records of coordinators to a log, and reads them while a coordinator loads."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from penstock.broker.replica.replica import Replica
from penstock.broker.workers import Workers
from penstock.coordinator.machine import Damaged
from penstock.core.errors import CorruptRecordError, KafkaError
from penstock.records.append_policy import AppendOrigin
from penstock.records.batch import HEADER_SIZE, BatchHeader, read_header, verify
from penstock.records.build import build_batch
from penstock.records.compress import Compression
from penstock.records.record import Record
from penstock.storage.log.log import Log
from penstock.storage.log.results import FetchIsolation, LogAppendInfo
from penstock.storage.producer.append_info import VerificationGuard
from penstock.storage.segment.log_segment import LogSegment, LogSlice

_READ_BYTES = 4 * 1024 * 1024
_RECORD_OVERHEAD = 32

Encoded = tuple[bytes, bytes | None]
"""Key and value; a value of None is a tombstone."""

T = TypeVar("T")
"""What a coordinator reads from a batch."""

BatchReader = Callable[[bytes, int, BatchHeader], list[T]]
"""Returns what a batch at a position of the data states. It runs on a worker thread."""


class Producer(NamedTuple):
    """The producer of a transaction that records belong to."""

    producer_id: int
    producer_epoch: int
    guard: VerificationGuard | None
    """The guard under which the transaction was verified, if it had to be."""


def append_records(
    replica: Replica,
    records: Sequence[Encoded],
    now_ms: int,
    *,
    atomic: bool,
    producer: Producer | None = None,
    compression: Compression = Compression.NONE,
) -> LogAppendInfo:
    """Appends records, in one batch if `atomic`, else in as many as needed.

    Returns the information about the last batch; `has_rolled` is set if any batch rolled a segment.
    """
    limit = None if atomic else replica.log.config.max_message_bytes // 2
    infos = []
    for chunk in _chunks(records, limit):
        numbered = [Record(i, now_ms, key, value) for i, (key, value) in enumerate(chunk)]
        if producer is None:
            batch = build_batch(numbered, compression=compression)
        else:
            batch = build_batch(
                numbered,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                base_sequence=0,
                is_transactional=True,
                compression=compression,
            )
        guard = None if producer is None else producer.guard
        infos.append(replica.append(batch, origin=AppendOrigin.COORDINATOR, guard=guard))
    if any(info.has_rolled for info in infos[:-1]):
        return replace(infos[-1], has_rolled=True)
    return infos[-1]


def _chunks(records: Sequence[Encoded], limit: int | None) -> Iterator[list[Encoded]]:
    chunk: list[Encoded] = []
    size = 0
    for key, value in records:
        record_size = len(key) + len(value or b"") + _RECORD_OVERHEAD
        if chunk and limit is not None and size + record_size > limit:
            yield chunk
            chunk, size = [], 0
        chunk.append((key, value))
        size += record_size
    yield chunk


async def read_log(
    log: Log, workers: Workers, read: BatchReader[T]
) -> AsyncIterator[list[T | Damaged]]:
    """Yields what the batches of the log state, read in a worker thread in chunks of 4 MiB.

    A batch that cannot be read is `Damaged`. If its length is wrong too, the batches up to the next
    one in the offset index, or to the next segment, are lost with it.
    """
    offset: int | None = log.log_start_offset
    while offset is not None and offset < log.log_end_offset:
        segment = log.local.segments.floor(offset)
        try:
            part = log.read(offset, _READ_BYTES, FetchIsolation.LOG_END).records
        except CorruptRecordError as error:
            yield [Damaged(error.message)]
            position = (
                0 if segment is None else segment.indexes.offset_index.lookup(offset).position
            )
            offset = _offset_after(log, segment, position)
            continue
        if part is None:
            return
        chunk = await workers.run(
            workers.read_pool(log.directory + "/log"), partial(_read, part, read)
        )
        yield chunk.statements
        if chunk.damaged_position is None and offset < chunk.end_offset:
            offset = chunk.end_offset
        else:
            offset = _offset_after(log, segment, chunk.damaged_position or part.position)


class _Chunk(NamedTuple, Generic[T]):
    """What some batches state."""

    statements: list[T | Damaged]
    end_offset: int
    """The offset after the last batch that could be read."""
    damaged_position: int | None
    """The position of the first batch in the file whose end is unknown."""


def _read(part: LogSlice, read: BatchReader[T]) -> _Chunk[T]:
    data = part.read()
    statements: list[T | Damaged] = []
    end_offset = position = 0
    last_damaged: int | None = None
    while position < len(data):
        try:
            header = read_header(data, position)
            if not HEADER_SIZE <= header.size <= len(data) - position:
                raise CorruptRecordError(f"a batch claims to have {header.size} bytes")
        except KafkaError as error:
            statements.append(Damaged(error.message))
            return _Chunk(statements, end_offset, part.position + position)
        try:
            verify(data, position, header)
            statements += read(data, position, header)
            end_offset = header.last_offset + 1
            last_damaged = None
        except KafkaError as error:
            statements.append(Damaged(error.message))
            last_damaged = part.position + position
        position += header.size
    return _Chunk(statements, end_offset, last_damaged)


def _offset_after(log: Log, segment: LogSegment | None, position: int) -> int | None:
    """Returns the next offset that can be found without the batch at a position; None for none."""
    if segment is None:
        return None
    entry = segment.indexes.offset_index.fetch_upper_bound(position, 1)
    if entry is not None:
        return entry.offset
    next_segment = log.local.segments.higher(segment.base_offset)
    return None if next_segment is None else next_segment.base_offset
