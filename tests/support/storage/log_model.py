"""A model of a log: the state that the list of its batches implies.

The storage code has indexes, snapshots and caches, each of which can be wrong. Here everything is
computed from all batches, so that a test can compare.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from penstock.records.batch import BatchHeader, read_header, verify
from penstock.records.control import read_end_txn_marker
from penstock.records.read import read_records
from penstock.records.record import Record
from penstock.storage.checkpoint.leader_epoch_cache import EpochEntry
from penstock.storage.index.transaction_index import AbortedTxn
from penstock.storage.producer.append_info import ProducerStateEntry
from penstock.storage.segment.timestamp_scan import TimestampAndOffset


class StoredBatch(NamedTuple):
    """A batch as its bytes are in the log."""

    data: bytes
    header: BatchHeader

    @property
    def base_offset(self) -> int:
        return self.header.base_offset

    @property
    def next_offset(self) -> int:
        return self.header.next_offset

    @property
    def records(self) -> tuple[Record, ...]:
        return _records_of(self.data)

    def __repr__(self) -> str:
        return f"<{self.base_offset}..{self.header.last_offset}>"


def stored(data: bytes | bytearray) -> StoredBatch:
    """One batch, whole and with the right CRC."""
    header = read_header(data)
    verify(data, 0, header)
    return StoredBatch(bytes(data), header)


def stored_batches(data: bytes) -> Iterator[StoredBatch]:
    """Returns the batches in `data`; raises an error if they do not fill it or a CRC is wrong."""
    position = 0
    while position < len(data):
        batch = stored(data[position : position + read_header(data, position).size])
        yield batch
        position += len(batch.data)


@lru_cache(maxsize=4096)
def _records_of(data: bytes) -> tuple[Record, ...]:
    return tuple(read_records(data))


class ProducerSummary(NamedTuple):
    """The part of a producer's state that a snapshot contains."""

    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    last_timestamp: int
    coordinator_epoch: int
    txn_first_offset: int | None

    @classmethod
    def of(cls, entry: ProducerStateEntry) -> "ProducerSummary":
        return cls(
            entry.producer_epoch,
            entry.last_sequence,
            entry.last_data_offset,
            entry.last_offset_delta,
            entry.last_timestamp,
            entry.coordinator_epoch,
            entry.current_txn_first_offset,
        )


class Implied(NamedTuple):
    """The producers and transactions that batches imply."""

    producers: dict[int, ProducerSummary]
    aborted: list[AbortedTxn]
    completed: list[tuple[int, int]]
    """First offset and marker of each transaction that ended."""

    @property
    def open_transactions(self) -> list[int]:
        """Returns the first offsets of the open transactions."""
        starts = (entry.txn_first_offset for entry in self.producers.values())
        return sorted(start for start in starts if start is not None)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Returns the end of a `read_committed` read."""
        unstable = [first for first, last in self.completed if last >= high_watermark]
        return min([high_watermark, *unstable, *self.open_transactions])


_NOBODY = ProducerSummary(-1, -1, -1, 0, -1, -1, None)


def implied(batches: Sequence[StoredBatch]) -> Implied:
    """Producers and transactions after these batches."""
    return _implied(tuple(batch.data for batch in batches))


@lru_cache(maxsize=512)
def _implied(batches: tuple[bytes, ...]) -> Implied:
    result = Implied({}, [], [])
    for data in batches:
        header = read_header(data)
        if header.producer_id >= 0:
            _take(result, data, header)
    return result


def _take(result: Implied, data: bytes, header: BatchHeader) -> None:
    before = result.producers.get(header.producer_id, _NOBODY)
    if header.producer_epoch != before.producer_epoch:
        before = before._replace(
            producer_epoch=header.producer_epoch, last_sequence=-1, last_offset=-1, offset_delta=0
        )
    before = before._replace(last_timestamp=header.max_timestamp)
    if not header.is_control:
        first = before.txn_first_offset
        if header.is_transactional and first is None:
            first = header.base_offset
        result.producers[header.producer_id] = before._replace(
            last_sequence=header.last_sequence,
            last_offset=header.last_offset,
            offset_delta=header.last_offset_delta,
            txn_first_offset=first,
        )
        return
    marker = read_end_txn_marker(data, 0, header)
    result.producers[header.producer_id] = before._replace(
        coordinator_epoch=marker.coordinator_epoch, txn_first_offset=None
    )
    if before.txn_first_offset is None:
        return
    if not marker.commits:
        stable = min([header.base_offset + 1, *result.open_transactions])
        result.aborted.append(
            AbortedTxn(header.producer_id, before.txn_first_offset, header.base_offset, stable)
        )
    result.completed.append((before.txn_first_offset, header.base_offset))


def aborted_between(aborted: Sequence[AbortedTxn], start: int, end: int) -> list[AbortedTxn]:
    """Those that touch the offsets `start <= offset < end`."""
    return [txn for txn in aborted if txn.last_offset >= start and txn.first_offset < end]


def leader_epochs(batches: Sequence[StoredBatch], log_start_offset: int) -> list[EpochEntry]:
    """Returns the start offset of each leader epoch, from the log start offset on."""
    entries: list[EpochEntry] = []
    for batch in batches:
        epoch = batch.header.partition_leader_epoch
        if epoch >= 0 and (not entries or epoch > entries[-1].epoch):
            entries.append(EpochEntry(epoch, batch.base_offset))
    ended = [entry for entry in entries if entry.start_offset <= log_start_offset]
    later = [entry for entry in entries if entry.start_offset > log_start_offset]
    return [EpochEntry(ended[-1].epoch, log_start_offset), *later] if ended else later


def records_from(batches: Sequence[StoredBatch], start: int) -> Iterator[tuple[Record, int]]:
    """Yields each record from an offset on, with its leader epoch."""
    for batch in batches:
        if batch.header.last_offset >= start:
            for record in batch.records:
                if record.offset >= start:
                    yield record, batch.header.partition_leader_epoch


def first_at_or_after(
    batches: Sequence[StoredBatch], timestamp: int, start: int
) -> TimestampAndOffset | None:
    """Returns the first record from `start` on whose timestamp is at least `timestamp`."""
    for record, epoch in records_from(batches, start):
        if record.timestamp >= timestamp:
            return TimestampAndOffset(record.timestamp, record.offset, epoch)
    return None


def first_latest(batches: Sequence[StoredBatch], start: int) -> TimestampAndOffset | None:
    """The first of the records that have the largest timestamp."""
    best: TimestampAndOffset | None = None
    for record, epoch in records_from(batches, start):
        if record.timestamp >= 0 and (best is None or record.timestamp > best.timestamp):
            best = TimestampAndOffset(record.timestamp, record.offset, epoch)
    return best


def without_repeats(values: Sequence[int]) -> list[int]:
    return [value for value, _ in groupby(sorted(values))]
