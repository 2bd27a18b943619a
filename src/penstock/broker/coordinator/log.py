"""Appends the records of coordinators to a log, and reads them while a coordinator loads."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from penstock.broker.replica.replica_manager import Replica
from penstock.broker.workers import Workers
from penstock.records.batch import BatchHeader, split
from penstock.records.build import build_batch
from penstock.records.compress import Compression
from penstock.records.record import Record
from penstock.records.validate import AppendOrigin
from penstock.storage.log.log import Log
from penstock.storage.log.results import FetchIsolation, LogAppendInfo
from penstock.storage.producer.append_info import VerificationGuard
from penstock.storage.segment.log_segment import LogSlice

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


async def read_log(log: Log, workers: Workers, read: BatchReader[T]) -> AsyncIterator[list[T]]:
    """Yields what the batches of the log state, read in a worker thread in chunks of 4 MiB."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        fetched = log.read(offset, _READ_BYTES, FetchIsolation.LOG_END)
        part = fetched.records
        if part is None:
            return
        offset, statements = await workers.run(workers.flush, partial(_read, part, read))
        yield statements


def _read(part: LogSlice, read: BatchReader[T]) -> tuple[int, list[T]]:
    """Returns the offset after the batches, and what they state."""
    data = part.read()
    statements: list[T] = []
    offset = 0
    for position, header in split(data):
        offset = header.last_offset + 1
        statements += read(data, position, header)
    return offset, statements
