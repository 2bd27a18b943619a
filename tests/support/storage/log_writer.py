"""Writes to a log of ours and keeps its own note of every batch, to hold any reader against."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from penstock.records.append_policy import AppendOrigin
from penstock.records.build import build_batch
from penstock.records.compress import Compression
from penstock.records.control import build_end_txn_marker
from penstock.records.record import Record
from penstock.storage.log.log import Log
from tests.support.clock import ManualClock
from tests.support.kafka.logs import FoundOffset, KafkaRecord, ServedPartition

SEQUENCES = 2**31


@dataclass(frozen=True)
class Marker:
    """The end of a transaction in a control batch."""

    commit: bool
    coordinator_epoch: int


@dataclass(frozen=True)
class WrittenBatch:
    """What every reader must get for one batch."""

    leader_epoch: int
    records: tuple[KafkaRecord, ...]
    size: int
    """Bytes in the log; -1 where the log has packed them anew."""
    codec: Compression = Compression.NONE
    append_time: int | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    transactional: bool = False
    aborted: bool = False
    marker: Marker | None = None

    @property
    def base_offset(self) -> int:
        return self.records[0].offset

    @property
    def next_offset(self) -> int:
        return self.records[-1].offset + 1

    @property
    def last_sequence(self) -> int:
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + len(self.records) - 1) % SEQUENCES

    @property
    def timestamp_type(self) -> str:
        return "CreateTime" if self.append_time is None else "LogAppendTime"

    @property
    def max_timestamp(self) -> int:
        return max(record.timestamp for record in self.records)


@dataclass
class Producer:
    """An idempotent or transactional producer, as far as a partition sees it."""

    producer_id: int
    epoch: int = 0
    sequence: int = 0
    coordinator_epoch: int = 0


@dataclass
class Notes:
    """All that was written to a log and is still there."""

    batches: list[WrittenBatch] = field(default_factory=list)
    first_offset: int = 0

    @property
    def next_offset(self) -> int:
        return self.batches[-1].next_offset if self.batches else self.first_offset

    @property
    def epochs(self) -> list[tuple[int, int]]:
        """Returns the leader epochs with their start offsets."""
        results: list[tuple[int, int]] = []
        for batch in self.batches:
            if batch.next_offset > self.first_offset and (
                not results or results[-1][0] != batch.leader_epoch
            ):
                results.append((batch.leader_epoch, max(batch.base_offset, self.first_offset)))
        return results

    @property
    def open_transactions(self) -> dict[int, int]:
        """Producers with an open transaction, and its first offset."""
        result: dict[int, int] = {}
        for batch in self.batches:
            if batch.marker is not None:
                result.pop(batch.producer_id, None)
            elif batch.transactional:
                result.setdefault(batch.producer_id, batch.base_offset)
        return result

    def truncate_to(self, offset: int) -> None:
        self.batches = [batch for batch in self.batches if batch.base_offset < offset]

    def times(self) -> list[int]:
        """Timestamps worth asking about: before, at, between and after those of the records."""
        times = {record.timestamp for batch in self.batches for record in batch.records}
        result = sorted(times - {-1})
        if not result:
            return [0]
        some = result[:: max(len(result) // 6, 1)]
        return [0, *some, result[len(result) // 2] + 1, result[-1], result[-1] + 1]

    def served(self, timestamps: Iterable[int] = ()) -> ServedPartition:
        """Returns what every reader must get, and the results of lookups for these timestamps."""
        stable = min(self.open_transactions.values(), default=self.next_offset)
        expected = ServedPartition(
            first_offset=self.first_offset,
            high_watermark=self.next_offset,
            last_stable_offset=stable,
        )
        for batch in self.batches:
            if batch.marker is not None:
                continue
            records = [item for item in batch.records if item.offset >= self.first_offset]
            expected.uncommitted += records
            for record in records:
                expected.leader_epochs[record.offset] = batch.leader_epoch
                expected.timestamp_types[record.offset] = batch.timestamp_type
            if batch.base_offset < stable and not batch.aborted:
                expected.committed += records
        # Markers have a timestamp and are found by it, although no consumer sees them.
        results = [item for batch in self.batches for item in batch.records]
        results = [item for item in results if item.offset >= self.first_offset]
        latest = max((item.timestamp for item in results), default=-1)
        if latest >= 0:
            expected.max_timestamp = _first(results, latest)
        expected.offsets_for_timestamps = {
            timestamp: _first(results, timestamp) for timestamp in timestamps
        }
        return expected


def _first(records: Iterable[KafkaRecord], timestamp: int) -> FoundOffset | None:
    for record in records:
        if record.timestamp >= timestamp:
            return FoundOffset(record.offset, record.timestamp)
    return None


class LogWriter:
    """Appends to a log as its leader of `epoch`, and records what it did."""

    def __init__(self, log: Log, clock: ManualClock, notes: Notes, epoch: int, seed: int) -> None:
        self.log = log
        self.notes = notes
        self.epoch = epoch
        self.clock = clock
        self._random = Random(seed)

    # --- records

    def shapes(self, count: int, *, keys: int = 0) -> list[Record]:
        """Records of many shapes; with `keys` all have one of so many keys, some no value."""
        return [self._shape(n, keys) for n in range(count)]

    def _shape(self, n: int, keys: int) -> Record:
        random = self._random
        if keys:
            key: bytes | None = b"key-%d" % random.randrange(keys)
        else:
            key = random.choice([None, b"", b"key-%d" % n, bytes(range(256))])
        value = random.choice([None, b"", *[self.filler(random.randrange(1, 400))] * 5])
        headers: tuple[tuple[str, bytes | None], ...] = ()
        if random.randrange(4) == 0:
            headers = (("one", b"1"), ("schlüssel", None), ("", b""), ("one", b"2"))
        return Record(n, self.next_timestamp(), key, value, headers)

    def filler(self, size: int) -> bytes:
        """Bytes that compress, but not to nothing."""
        return bytes(self._random.choices(b"abcdef", k=size))

    def next_timestamp(self) -> int:
        """Timestamps mostly rise, but not always."""
        self.clock.advance(1_000)
        back = 5_500 if self._random.randrange(10) == 0 else 0
        return self.clock.now_ms() - back

    # --- appends

    def send(
        self,
        records: Sequence[Record],
        *,
        codec: Compression = Compression.NONE,
        stored_codec: Compression | None = None,
        producer: Producer | None = None,
        transactional: bool = False,
    ) -> WrittenBatch:
        """Appends one batch. `stored_codec` is the codec after the topic's compression.type
        is applied."""
        data = build_batch(
            [record._replace(offset=n) for n, record in enumerate(records)],
            compression=codec,
            producer_id=-1 if producer is None else producer.producer_id,
            producer_epoch=-1 if producer is None else producer.epoch,
            base_sequence=-1 if producer is None else producer.sequence,
            is_transactional=transactional,
        )
        batch = WrittenBatch(
            self.epoch,
            tuple(KafkaRecord(*fields) for fields in records),
            len(data) if stored_codec is None else -1,
            codec if stored_codec is None else stored_codec,
            producer_id=-1 if producer is None else producer.producer_id,
            producer_epoch=-1 if producer is None else producer.epoch,
            base_sequence=-1 if producer is None else producer.sequence,
            transactional=transactional,
        )
        if producer is not None:
            producer.sequence = (producer.sequence + len(records)) % SEQUENCES
        return self._append(data, batch)

    def end(self, producer: Producer, *, commit: bool, bump: bool = True) -> WrittenBatch:
        """Appends the marker that ends a transaction; its epoch rises, as with KIP-890."""
        if bump:
            producer.epoch += 1
            producer.sequence = 0
        self.clock.advance(7)
        marker = build_end_txn_marker(
            commit,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            coordinator_epoch=producer.coordinator_epoch,
            timestamp=self.clock.now_ms(),
        )
        if not commit:
            self._note_abort(producer.producer_id)
        key = b"\0\0\0\1" if commit else b"\0\0\0\0"
        value = b"\0\0" + producer.coordinator_epoch.to_bytes(4)
        batch = WrittenBatch(
            self.epoch,
            (KafkaRecord(0, self.clock.now_ms(), key, value, ()),),
            len(marker),
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            transactional=True,
            marker=Marker(commit, producer.coordinator_epoch),
        )
        return self._append(marker, batch, AppendOrigin.COORDINATOR)

    def send_as_is(self, data: bytes, records: Sequence[Record]) -> WrittenBatch:
        """Appends a message set of an old format, which the log converts."""
        batch = WrittenBatch(self.epoch, tuple(KafkaRecord(*record) for record in records), -1)
        return self._append(bytearray(data), batch)

    def _append(
        self, data: bytearray, batch: WrittenBatch, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> WrittenBatch:
        offset = self.notes.next_offset
        info = self.log.append_as_leader(data, self.epoch, origin=origin)
        assert (info.first_offset, info.is_duplicate) == (offset, False)
        stamp = info.log_append_time if info.log_append_time >= 0 else None
        records = tuple(
            replace(
                record,
                offset=offset + n,
                timestamp=record.timestamp if stamp is None else stamp,
            )
            for n, record in enumerate(batch.records)
        )
        batch = replace(batch, records=records, append_time=stamp)
        self.notes.batches.append(batch)
        self.log.update_high_watermark(self.log.log_end_offset)
        return batch

    def _note_abort(self, producer_id: int) -> None:
        first = self.notes.open_transactions.get(producer_id)
        if first is None:
            return
        self.notes.batches = [
            replace(batch, aborted=True)
            if batch.producer_id == producer_id and batch.base_offset >= first
            else batch
            for batch in self.notes.batches
        ]
