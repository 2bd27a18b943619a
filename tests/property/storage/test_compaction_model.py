"""A compacted log is always the table of its records (S5).

Random appends, transactions, tombstones, rolls, cleanings with much or little memory, clock
advances, deleted records and restarts are compared with a list of all appended records.
"""

from dataclasses import replace
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.records.batch import BatchHeader
from penstock.records.compress import Compression
from penstock.records.read import read_records
from penstock.records.record import Record
from penstock.storage.cleaner.cleaning_task import CleaningTask
from penstock.storage.cleaner.log_cleaner import CleanerSettings
from penstock.storage.log.results import FetchIsolation
from penstock.storage.segment.batch_scan import scan_batches
from tests.support.storage.cleaning import COMPACT, TP, Broker, as_table
from tests.support.storage.logs import batches_in, remove_deleted_segments

CONFIG = replace(
    COMPACT,
    segment_bytes=450,
    segment_index_bytes=240,
    index_interval_bytes=60,
    delete_retention_ms=1000,
    file_delete_delay_ms=100,
)
IDEMPOTENT = 11
TRANSACTIONAL = (21, 22)
KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"e"])
VALUES = st.one_of(st.none(), st.binary(max_size=40))
CODECS = st.sampled_from([Compression.NONE, Compression.GZIP, Compression.LZ4])
FLAGS = (
    "base_offset",
    "last_offset",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "partition_leader_epoch",
    "timestamp_type",
    "is_transactional",
    "is_control",
)
"""The batch fields that a cleaning must not change."""


class Stored(NamedTuple):
    header: BatchHeader
    records: list[Record]


class CompactedLog(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.broker = Broker(CONFIG)
        self.history: dict[int, Stored] = {}
        """Every batch that was appended, by its base offset."""
        self.open: dict[int, int] = {}
        """First offset of each producer's open transaction."""
        self.aborted: set[int] = set()
        """Offsets of records whose transaction was aborted."""
        self.undecided: dict[int, set[int]] = {}
        self.cleaned_to = 0
        self.horizons: dict[int, int] = {}
        """The time until which each cleaned tombstone must be retained."""

    # --- operations

    @rule(
        pairs=st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=4),
        codec=CODECS,
        producer_id=st.sampled_from([-1, -1, IDEMPOTENT, *TRANSACTIONAL]),
        with_headers=st.booleans(),
    )
    def append(
        self,
        pairs: list[tuple[bytes, bytes | None]],
        codec: Compression,
        producer_id: int,
        with_headers: bool,
    ) -> None:
        transactional = producer_id in TRANSACTIONAL
        first = self.broker.append(
            *pairs,
            compression=codec,
            producer_id=producer_id,
            transactional=transactional,
            headers=(("h", b"v"), ("null", None)) if with_headers else (),
        )
        self.remember(first)
        if transactional:
            self.open.setdefault(producer_id, first)
            offsets = range(first, first + len(pairs))
            self.undecided.setdefault(producer_id, set()).update(offsets)

    @rule(keys=st.lists(KEYS, min_size=5, max_size=15))
    def append_many(self, keys: list[bytes]) -> None:
        """Appends several segments at once."""
        for n, key in enumerate(keys):
            self.remember(self.broker.append((key, b"value %d" % n), (b"k%d" % (n % 4), b"w")))

    @precondition(lambda self: self.open)
    @rule(data=st.data(), commit=st.booleans())
    def end_transaction(self, data: st.DataObject, commit: bool) -> None:
        producer_id = data.draw(st.sampled_from(sorted(self.open)))
        self.remember(self.broker.end_txn(producer_id, commit=commit))
        del self.open[producer_id]
        decided = self.undecided.pop(producer_id)
        if not commit:
            self.aborted |= decided

    @rule()
    def roll(self) -> None:
        self.broker.roll()

    @rule(ms=st.sampled_from([1, 400, 1000]))
    def pass_time(self, ms: int) -> None:
        self.broker.advance(ms)
        remove_deleted_segments(self.broker.log)

    @rule(keys=st.sampled_from([2, 5, 1000]))
    def clean(self, keys: int) -> None:
        """Runs one cleaning, with memory for this number of keys."""
        broker = self.broker
        broker.roll()
        broker.use(CleanerSettings(dedupe_buffer_size=24 * (keys + 1), io_buffer_load_factor=1.0))
        task = broker.cleaner.begin()
        cleaning: CleaningTask | None = None
        while task is not None:
            task.run()
            if isinstance(task, CleaningTask):
                assert task.error is None
                cleaning = task
            task = broker.cleaner.finish(task)
        if cleaning is not None:
            self.note_cleaning(cleaning)
        assert not broker.cleaner.uncleanable
        # If records were deleted beyond it, the clean part ends at the log start offset.
        self.cleaned_to = broker.cleaner.first_dirty_offset(TP) or 0

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        self.broker.cleaner.close()
        if clean:
            self.broker.stop()
        else:
            self.broker.kill()
        self.broker.start()
        assert self.broker.cleaner.first_dirty_offset(TP) == (self.cleaned_to or None)

    @precondition(lambda self: len(self.history) > 3)
    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        """Not beyond the last batch of a producer: a restart would forget its sequence."""
        log = self.broker.log
        lasts = {
            stored.header.producer_id: base_offset
            for base_offset, stored in self.history.items()
            if stored.header.has_producer_id and not stored.header.is_control
        }
        limit = min([log.last_stable_offset, *lasts.values()])
        if limit > log.log_start_offset:
            log.increment_log_start_offset(data.draw(st.integers(log.log_start_offset + 1, limit)))

    # --- the model

    def remember(self, offset: int) -> None:
        fetched = self.broker.log.read(offset, 1, FetchIsolation.LOG_END)
        assert fetched.records is not None
        for view, position, header in batches_in(fetched.records):
            self.history[header.base_offset] = Stored(header, read_records(view, position, header))

    def note_cleaning(self, task: CleaningTask) -> None:
        assert self.broker.cleaner.first_dirty_offset(TP) == task.end_offset
        assert self.cleaned_to < task.end_offset <= task.plan.first_uncleanable_offset
        self.cleaned_to = task.end_offset
        keep_until = self.broker.clock.now_ms() + CONFIG.delete_retention_ms
        for record in self.every_record():
            if record.value is None and record.offset < self.cleaned_to:
                self.horizons.setdefault(record.offset, keep_until)
        latest: dict[bytes | None, int] = {}
        for record in self.every_record():
            if record.offset < self.cleaned_to and record.offset not in self.aborted:
                latest[record.key] = record.offset
        for stored in self.on_disk():
            for record in [] if stored.header.is_control else stored.records:
                if self.broker.log.log_start_offset <= record.offset < self.cleaned_to:
                    assert record.offset not in self.aborted, "aborted records were not removed"
                    assert latest[record.key] == record.offset, "an old value was not removed"

    def every_record(self) -> list[Record]:
        """Returns all appended records, without markers."""
        return [
            record
            for stored in self.history.values()
            if not stored.header.is_control
            for record in stored.records
        ]

    def on_disk(self) -> list[Stored]:
        """Returns the batches of the log, with their CRCs checked."""
        return [
            Stored(
                batch.header,
                read_records(batch.data, batch.start, batch.header),
            )
            for segment in self.broker.log.local.segments
            for batch in scan_batches(segment.file, 0, segment.size, check=True)
        ]

    @property
    def last_stable_offset(self) -> int:
        end = self.broker.log.log_end_offset
        return min([end, *self.open.values()])

    # --- invariants

    @invariant()
    def all_is_well(self) -> None:
        on_disk = self.on_disk()
        self.batches_are_what_they_were(on_disk)
        self.the_table_is_what_was_written()
        self.what_is_dirty_is_all_there(on_disk)
        self.tombstones_stay_long_enough(on_disk)
        self.every_offset_can_be_read(on_disk)
        self.the_log_knows_its_end_and_its_producers()

    def the_table_is_what_was_written(self) -> None:
        log = self.broker.log
        readable = [
            record
            for record in self.every_record()
            if log.log_start_offset <= record.offset < self.last_stable_offset
            and record.offset not in self.aborted
        ]
        observed = [r for r in self.broker.committed() if r.offset >= log.log_start_offset]
        assert as_table(observed) == as_table(readable)
        written = {record.offset: record for record in readable}
        assert all(written[record.offset] == record for record in observed)

    def batches_are_what_they_were(self, on_disk: list[Stored]) -> None:
        last_offset = -1
        for stored in on_disk:
            original = self.history[stored.header.base_offset]
            for flag in FLAGS:
                assert getattr(stored.header, flag) == getattr(original.header, flag)
            assert stored.header.base_offset > last_offset
            last_offset = stored.header.last_offset
            assert stored.header.records_count == len(stored.records)
            current = {record.offset: record for record in original.records}
            assert [current[record.offset] for record in stored.records] == stored.records
            if stored.records and not stored.header.is_control:
                assert stored.header.compression is original.header.compression
                times = [record.timestamp for record in stored.records]
                assert stored.header.max_timestamp == max(times)

    def what_is_dirty_is_all_there(self, on_disk: list[Stored]) -> None:
        log = self.broker.log
        first = max(self.cleaned_to, log.local.segments.first.base_offset)
        present_offsets = {record.offset for stored in on_disk for record in stored.records}
        for record in self.every_record():
            if record.offset >= first and record.offset not in self.aborted:
                assert record.offset in present_offsets

    def tombstones_stay_long_enough(self, on_disk: list[Stored]) -> None:
        """A reader that has seen the value has `delete.retention.ms` to see the tombstone."""
        log = self.broker.log
        latest = {
            record.key: record
            for record in self.every_record()
            if record.offset not in self.aborted and record.offset < self.cleaned_to
        }
        present_offsets = {record.offset for stored in on_disk for record in stored.records}
        for record in latest.values():
            if record.value is None and record.offset >= log.local.segments.first.base_offset:
                horizon = self.horizons.get(record.offset, 0)
                assert record.offset in present_offsets or self.broker.clock.now_ms() >= horizon

    def every_offset_can_be_read(self, on_disk: list[Stored]) -> None:
        log = self.broker.log
        lasts = [stored.header.last_offset for stored in on_disk]
        for offset in range(log.log_start_offset, log.log_end_offset + 1):
            fetched = log.read(offset, 1, FetchIsolation.LOG_END)
            expected = next((last for last in lasts if last >= offset), None)
            result = None
            if fetched.records is not None:
                result = next(header.last_offset for _, _, header in batches_in(fetched.records))
            assert result == expected

    def the_log_knows_its_end_and_its_producers(self) -> None:
        log = self.broker.log
        end = max((stored.header.next_offset for stored in self.history.values()), default=0)
        assert log.log_end_offset == end
        assert log.last_stable_offset == max(self.last_stable_offset, log.log_start_offset)
        producers = log.producers.active_producers()
        for producer_id, entry in producers.items():
            assert entry.current_txn_first_offset == self.open.get(producer_id)
        sequences = {key: entry.last_sequence + 1 for key, entry in producers.items()}
        assert sequences == self.broker.sequences


CompactedLog.TestCase.settings = settings(
    settings.get_profile("repeatable"), max_examples=60, stateful_step_count=30
)
TestCompactedLog = CompactedLog.TestCase
