"""The records of `__consumer_offsets` on their way into a log and out of it."""

from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial

from penstock.broker.replicas import Replica
from penstock.broker.workers import Workers
from penstock.coordinator.group.records import (
    Record,
    SeenKeys,
    Skipped,
    decode_record,
    encode_record,
)
from penstock.records import record as stored
from penstock.records.batch import split
from penstock.records.build import build_batch
from penstock.records.read import read_records
from penstock.records.validate import AppendOrigin
from penstock.storage.log import Log
from penstock.storage.log_results import Isolation
from penstock.storage.segment import LogSlice

_READ_BYTES = 4 * 1024 * 1024
_RECORD_OVERHEAD = 32


def append_records(replica: Replica, records: Sequence[Record], now_ms: int, atomic: bool) -> None:
    """Appends records: all in one batch where `atomic`, else in as many as they need."""
    encoded = [encode_record(record) for record in records]
    limit = None if atomic else replica.log.config.max_message_bytes // 2
    for chunk in _chunks(encoded, limit):
        batch = build_batch(
            [stored.Record(i, now_ms, key, value) for i, (key, value) in enumerate(chunk)]
        )
        replica.append(batch, origin=AppendOrigin.COORDINATOR)


def _chunks(
    encoded: Sequence[tuple[bytes, bytes | None]], limit: int | None
) -> Iterator[list[tuple[bytes, bytes | None]]]:
    chunk: list[tuple[bytes, bytes | None]] = []
    size = 0
    for key, value in encoded:
        more = len(key) + len(value or b"") + _RECORD_OVERHEAD
        if chunk and limit is not None and size + more > limit:
            yield chunk
            chunk, size = [], 0
        chunk.append((key, value))
        size += more
    yield chunk


async def read_group_log(log: Log, workers: Workers) -> AsyncIterator[list[Record | Skipped]]:
    """Everything in the log, decoded on a thread, some megabytes at a time."""
    offset = log.log_start_offset
    seen: SeenKeys = {}
    while offset < log.log_end_offset:
        found = log.read(offset, _READ_BYTES, Isolation.LOG_END)
        part = found.records
        if part is None:
            return
        offset, records = await workers.run(workers.flush, partial(_read, part, seen))
        yield records


def _read(part: LogSlice, seen: SeenKeys) -> tuple[int, list[Record | Skipped]]:
    """The records in whole batches, and the offset after them."""
    data = part.read()
    records: list[Record | Skipped] = []
    offset = 0
    for position, header in split(data):
        offset = header.last_offset + 1
        if not header.is_control:
            records += [
                decode_record(each.key, each.value, seen) for each in read_records(data, position)
            ]
    return offset, records
