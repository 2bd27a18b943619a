"""Random operations on a log, compared with a list of batches after every step.

Segments and indexes are tiny, so that a few appends roll, and every index entry matters.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from penstock.core.errors import ErrorCode, KafkaError, OffsetOutOfRangeError
from penstock.records.append_policy import AppendOrigin
from penstock.records.compress import Compression
from penstock.records.control import build_end_txn_marker
from penstock.storage.disk import Disk, OsDisk
from penstock.storage.log.log import Log
from penstock.storage.log.log_loader import load_log
from penstock.storage.log.results import FetchIsolation
from penstock.storage.log.retention import delete_old_segments
from penstock.storage.log.timestamp_search import offset_for_timestamp
from penstock.storage.log.truncation import begin_full_truncation, begin_truncation
from penstock.storage.log_config import LogConfig
from tests.support.clock import ManualClock
from tests.support.storage.crash_disk import CrashDisk, CrashMode
from tests.support.storage.log_history import Outcome
from tests.support.storage.log_invariants import (
    check_against,
    check_consistent,
    first_undecided_offset,
)
from tests.support.storage.log_model import (
    ProducerSummary,
    StoredBatch,
    aborted_between,
    first_at_or_after,
    implied,
)
from tests.support.storage.log_workloads import TP, as_appended, contents, data_batch
from tests.support.storage.logs import remove_deleted_segments

PRODUCERS = st.sampled_from([None, None, 1, 2, 3])
SIZES = st.lists(st.integers(0, 250), min_size=1, max_size=3)

CONFIGS = st.builds(
    LogConfig,
    segment_bytes=st.integers(1000, 3000),
    segment_index_bytes=st.sampled_from([24, 60, 100, 500]),
    index_interval_bytes=st.sampled_from([0, 50, 200]),
    retention_bytes=st.sampled_from([1500, 4000]),
    file_delete_delay_ms=st.sampled_from([0, 1000]),
    preallocate=st.sampled_from([False, False, True]),
)


class LogMachine(RuleBasedStateMachine):
    """The model is `batches`, all batches ever `appended`, and four offsets."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.batches: list[StoredBatch] = []
        """The batches in the log's files."""
        self.appended: list[StoredBatch] = []
        """The batches that were appended and not truncated."""
        self.start = self.end = self.high_watermark = 0
        self.flushed = 0
        self.stored_recovery_point = 0
        self.leader_epoch = 0
        self.lso_is_exact = True
        """After a reload the log may take a transaction for stable whose marker is not."""

    def make_disk(self) -> tuple[Disk, str]:
        return CrashDisk(), "/orders-0"

    @initialize(config=CONFIGS)
    def open(self, config: LogConfig) -> None:
        self.config = config
        self.disk, self.directory = self.make_disk()
        self.log = self.load(clean=False)
        if isinstance(self.disk, CrashDisk):
            self.disk.make_durable()

    def load(self, *, clean: bool) -> Log:
        return load_log(
            self.disk,
            self.directory,
            TP,
            self.config,
            self.clock,
            clean=clean,
            log_start_offset=self.start,
            recovery_point=self.stored_recovery_point,
            high_watermark=self.high_watermark,
        )

    # --- appends

    @property
    def producers(self) -> dict[int, ProducerSummary]:
        """The producers as the log knows them; the invariants check that it is right to."""
        return {
            producer_id: ProducerSummary.of(entry)
            for producer_id, entry in self.log.producers.active_producers().items()
        }

    def took(self, new: Sequence[StoredBatch]) -> None:
        self.batches += new
        self.appended += new
        self.end = new[-1].next_offset

    def times(self, count: int, lags: Sequence[int]) -> list[int]:
        return [self.clock.now_ms() - lags[n % len(lags)] for n in range(count)]

    @rule(
        sizes=SIZES,
        producer=PRODUCERS,
        transactional=st.booleans(),
        new_epoch=st.sampled_from([0, 0, 0, 1]),
        lags=st.lists(st.integers(0, 300), min_size=1, max_size=3),
        compression=st.sampled_from([Compression.NONE, Compression.NONE, Compression.LZ4]),
    )
    def append_as_leader(
        self,
        sizes: list[int],
        producer: int | None,
        transactional: bool,
        new_epoch: int,
        lags: list[int],
        compression: Compression,
    ) -> None:
        identity = None
        if producer is not None:
            current = self.producers.get(producer)
            if current is None:
                identity = producer, 0, 0
            elif new_epoch and current.txn_first_offset is None:
                identity = producer, current.producer_epoch + 1, 0
            else:
                identity = producer, current.producer_epoch, current.last_sequence + 1
                transactional |= current.txn_first_offset is not None
        data = data_batch(
            sizes,
            timestamps=self.times(len(sizes), lags),
            compression=compression,
            producer=identity,
            transactional=transactional and identity is not None,
        )
        new = as_appended(data, self.end, self.leader_epoch)
        info = self.log.append_as_leader(data, self.leader_epoch)
        assert (info.first_offset, info.last_offset) == (self.end, new[0].header.last_offset)
        assert not info.is_duplicate
        self.took(new)

    @rule(
        count=st.integers(3, 10),
        size=st.integers(0, 250),
        producer=PRODUCERS,
        transactional=st.booleans(),
        lags=st.lists(st.integers(0, 300), min_size=1, max_size=3),
    )
    def append_many(
        self, count: int, size: int, producer: int | None, transactional: bool, lags: list[int]
    ) -> None:
        for n in range(count):
            lag = lags[n % len(lags)]
            self.append_as_leader([size, n], producer, transactional, 0, [lag], Compression.NONE)

    @rule(
        parts=st.lists(SIZES, min_size=1, max_size=3),
        gap=st.sampled_from([0, 0, 0, 1, 7]),
        new_leader=st.booleans(),
        lag=st.integers(0, 300),
    )
    def append_as_follower(
        self, parts: list[list[int]], gap: int, new_leader: bool, lag: int
    ) -> None:
        """A leader may send several batches, and gaps if it has compacted its log."""
        new: list[StoredBatch] = []
        offset = self.end + gap
        for sizes in parts:
            self.leader_epoch += new_leader
            data = data_batch(sizes, timestamps=self.times(len(sizes), [lag]))
            new += as_appended(data, offset, self.leader_epoch)
            offset = new[-1].next_offset + gap
        data = bytearray().join(batch.data for batch in new)
        info = self.log.append_as_follower(data, self.leader_epoch if new_leader else None)
        assert (info.first_offset, info.last_offset) == (new[0].base_offset, offset - gap - 1)
        self.took(new)

    @precondition(lambda self: self.end > 0)
    @rule(behind=st.integers(1, 5))
    def refuse_a_follower_that_must_truncate(self, behind: int) -> None:
        data = data_batch([5], timestamps=[1])
        old = as_appended(data, max(self.end - behind, 0), self.leader_epoch)
        with pytest.raises(KafkaError) as notifications:
            self.log.append_as_follower(old[0].data)
        assert notifications.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    @rule(producer=st.sampled_from([1, 2, 3]), commit=st.booleans())
    def end_transaction(self, producer: int, commit: bool) -> None:
        current = self.producers.get(producer)
        marker = build_end_txn_marker(
            commit,
            producer_id=producer,
            producer_epoch=current.producer_epoch if current else 0,
            coordinator_epoch=3,
            timestamp=self.clock.now_ms(),
        )
        new = as_appended(marker, self.end, self.leader_epoch)
        self.log.append_as_leader(marker, self.leader_epoch, origin=AppendOrigin.COORDINATOR)
        self.took(new)

    @rule(producer=st.sampled_from([1, 2, 3]), skip=st.sampled_from([0, 2, 5]))
    def send_again_or_out_of_order(self, producer: int, skip: int) -> None:
        """P3: a duplicate is recognised, a sequence gap rejected; neither is written."""
        current = self.producers.get(producer)
        if current is None or current.last_sequence < 0:
            return
        first = current.last_sequence - current.offset_delta + skip * (current.offset_delta + 1)
        data = data_batch(
            [1] * (current.offset_delta + 1),
            timestamps=[self.clock.now_ms()] * (current.offset_delta + 1),
            producer=(producer, current.producer_epoch, first),
            transactional=current.txn_first_offset is not None,
        )
        if not skip:
            info = self.log.append_as_leader(data, self.leader_epoch)
            assert info.is_duplicate
            assert info.last_offset == current.last_offset
            return
        with pytest.raises(KafkaError) as notifications:
            self.log.append_as_leader(data, self.leader_epoch)
        assert notifications.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    # --- operations that change offsets

    @rule()
    def roll(self) -> None:
        self.log.roll()
        assert self.log.local.segments.active.base_offset == self.end

    @rule(part=st.floats(0, 1))
    def move_high_watermark(self, part: float) -> None:
        expected = self.high_watermark + round((self.end - self.high_watermark) * part)
        self.high_watermark = expected
        assert self.log.update_high_watermark(expected) == expected

    @rule()
    def everything_is_replicated(self) -> None:
        self.high_watermark = self.log.update_high_watermark(self.end + 10)
        assert self.high_watermark == self.end

    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        """S4: anything up to the high watermark, whether a batch starts there or not."""
        offset = self.start + round((self.high_watermark - self.start) * part)
        assert self.log.increment_log_start_offset(offset) == (offset > self.start)
        self.start = offset

    @precondition(lambda self: self.high_watermark < self.end)
    @rule()
    def refuse_to_delete_what_is_not_replicated(self) -> None:
        with pytest.raises(OffsetOutOfRangeError):
            self.log.increment_log_start_offset(self.high_watermark + 1)

    @rule()
    def retention(self) -> None:
        """S4: by start offset and by size, from the oldest on, below the high watermark."""
        segments = list(self.log.local.segments)
        ends = [segment.base_offset for segment in segments[1:]] + [self.end]
        excess = sum(segment.size for segment in segments) - self.config.retention_bytes
        expected = []
        for segment, end in zip(segments, ends, strict=True):
            is_active = segment is segments[-1]
            below = end <= self.start and not is_active
            if end > self.high_watermark or not (below or excess >= segment.size):
                break
            if is_active and not segment.size:
                break
            excess -= segment.size
            expected.append(segment)
        deleted = [deletion.segment for deletion in delete_old_segments(self.log)]
        assert deleted == expected
        if deleted:
            first = ends[len(deleted) - 1]
            self.start = max(self.start, first)
            self.batches = [batch for batch in self.batches if batch.base_offset >= first]
            assert self.log.local.segments.first.base_offset == first

    @rule(ms=st.integers(1, 2000))
    def time_goes_by(self, ms: int) -> None:
        self.clock.advance(ms)
        remove_deleted_segments(self.log)

    @rule(count=st.one_of(st.integers(0, 6), st.integers(0, 100)), inside=st.booleans())
    def truncate(self, count: int, inside: bool) -> None:
        """R4: to the start of a batch, or into one that is not the first of its leader epoch."""
        count = min(count, len(self.batches))
        if not count:
            assert not begin_truncation(self.log, self.end).complete()
            return
        batch = self.batches[-count]
        offset = batch.base_offset
        starts = [entry.start_offset for entry in self.log.epochs.entries()]
        inside = inside and offset not in starts and batch.header.last_offset_delta > 0
        self.truncate_at(offset + 1 if inside else offset)

    def truncate_at(self, offset: int) -> None:
        assert begin_truncation(self.log, offset).complete()
        self.batches = [batch for batch in self.batches if batch.next_offset <= offset]
        self.appended = [batch for batch in self.appended if batch.next_offset <= offset]
        self.end = offset
        self.start = min(self.start, offset)
        self.high_watermark = min(self.high_watermark, offset)
        self.flushed = min(self.flushed, self.last_offset)
        self.stored_recovery_point = self.log.recovery_point
        self.lso_is_exact = False

    @property
    def last_offset(self) -> int:
        return self.appended[-1].next_offset if self.appended else 0

    @precondition(lambda self: len(self.batches) > 8)
    @rule(ahead=st.integers(-20, 20))
    def truncate_fully(self, ahead: int) -> None:
        offset = max(self.end + ahead, 0)
        begin_full_truncation(self.log, offset).complete()
        self.batches, self.appended = [], []
        self.start = self.end = self.high_watermark = self.flushed = offset
        self.stored_recovery_point = self.log.recovery_point
        self.lso_is_exact = True

    @rule(index_bytes=st.sampled_from([24, 60, 500]), interval=st.sampled_from([0, 50, 200]))
    def change_settings(self, index_bytes: int, interval: int) -> None:
        """New segments use the settings at once, old ones when they are opened or rebuilt."""
        self.config = replace(
            self.config, segment_index_bytes=index_bytes, index_interval_bytes=interval
        )
        self.log.config = self.config

    # --- flush and restart

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.recovery_point == self.end
        assert not self.log.is_flush_due
        self.flushed = self.last_offset

    @precondition(lambda self: self.log.recovery_point < self.end)
    @rule(sizes=SIZES)
    def flush_while_appending(self, sizes: list[int]) -> None:
        task = self.log.begin_flush()
        assert task is not None
        self.append_as_leader(sizes, None, False, 0, [0], Compression.NONE)
        task.run()
        self.roll()
        self.log.finish_flush(task)
        assert self.log.recovery_point == task.end_offset
        self.flushed = max(self.flushed, min(task.end_offset, self.last_offset))

    @rule()
    def store_recovery_point(self) -> None:
        self.stored_recovery_point = self.log.recovery_point

    @rule()
    def restart(self) -> None:
        """S7: after a clean stop everything is as it was."""
        self.log.close()
        self.stored_recovery_point = self.log.recovery_point
        self.log = self.load(clean=True)
        self.flushed = self.last_offset
        self.reloaded()

    @rule()
    def kill(self) -> None:
        """S7: kill -9 loses nothing: written bytes are in the page cache."""
        if isinstance(self.disk, CrashDisk):
            self.disk = self.disk.image(CrashMode.WRITTEN)
        else:
            self.log.local.close_handlers()
        self.log = self.load(clean=False)
        self.reloaded()

    @precondition(lambda self: isinstance(self.disk, CrashDisk))
    @rule(seed=st.integers(0, 10_000))
    def cut_the_power(self, seed: int) -> None:
        """S7: flushed records survive, and a prefix of the others."""
        assert isinstance(self.disk, CrashDisk)
        self.disk = self.disk.image(CrashMode.TORN, Random(seed))
        self.log = self.load(clean=False)
        allowed = Outcome(self.appended, self.appended, self.flushed, self.start, self.start)
        check_against(self.log, [allowed], holes=True)
        self.batches = contents(self.log)
        self.stored_recovery_point = self.log.recovery_point
        end = self.log.log_end_offset
        self.appended = [batch for batch in self.appended if batch.next_offset <= end]
        self.reloaded()

    def reloaded(self) -> None:
        """Nothing is lost unless it was deleted: a log without records may start again.

        After a truncation into a batch the log ends within it; after a restart it does not.
        """
        result = contents(self.log)
        removed = [batch for batch in self.batches if batch not in result]
        assert all(batch.next_offset <= self.start for batch in removed)
        self.batches = [batch for batch in self.batches if batch in result]
        end = self.log.log_end_offset
        assert end == self.end or self.last_offset <= end
        self.end = end
        self.high_watermark = min(max(self.high_watermark, self.start), end)
        self.lso_is_exact = False

    # --- reads

    @rule(
        part=st.floats(0, 1),
        max_bytes=st.one_of(st.integers(0, 700), st.just(10**6)),
        isolation=st.sampled_from(FetchIsolation),
        min_one=st.booleans(),
    )
    def read(self, part: float, max_bytes: int, isolation: FetchIsolation, min_one: bool) -> None:
        offset = self.start + round((self.end - self.start) * part)
        fetched = self.log.read(offset, max_bytes, isolation, min_one=min_one)
        expected = self.readable(offset, max_bytes, self.bound(isolation), min_one)
        data = fetched.records.read() if fetched.records else b""
        assert data == b"".join(batch.data for batch in expected)
        assert fetched.size == len(data)
        if isolation is not FetchIsolation.TXN_COMMITTED:
            assert fetched.aborted_transactions is None
            return
        assert fetched.aborted_transactions is not None
        aborted = self.log.aborted_transactions(self.start, self.end)
        assert set(fetched.aborted_transactions) <= set(aborted)
        if expected:
            among = aborted_between(aborted, offset, expected[-1].next_offset)
            assert set(among) <= set(fetched.aborted_transactions)

    def bound(self, isolation: FetchIsolation) -> int:
        if isolation is FetchIsolation.LOG_END:
            return self.end
        if isolation is FetchIsolation.HIGH_WATERMARK:
            return self.high_watermark
        return self.log.last_stable_offset

    def readable(self, offset: int, max_bytes: int, bound: int, min_one: bool) -> list[StoredBatch]:
        """Whole batches of one segment, below the bound, as many as fit."""
        ahead = [batch for batch in self.batches if batch.header.last_offset >= offset]
        if not ahead or offset >= bound:
            return []
        segment = self.log.local.segments.floor(ahead[0].base_offset)
        assert segment is not None
        following = self.log.local.segments.higher(segment.base_offset)
        limit = bound if following is None else min(bound, following.base_offset)
        results: list[StoredBatch] = []
        room = max_bytes
        for batch in ahead:
            fits = len(batch.data) <= room or (min_one and not results)
            if batch.header.last_offset >= limit or not fits:
                break
            results.append(batch)
            room -= len(batch.data)
        return results

    @rule(by=st.sampled_from([-1, 1, 2]))
    def read_out_of_range(self, by: int) -> None:
        offset = self.start + by if by < 0 else self.end + by
        with pytest.raises(OffsetOutOfRangeError):
            self.log.read(offset, 100, FetchIsolation.LOG_END)

    @rule(lag=st.integers(-5, 3000))
    def find_by_time(self, lag: int) -> None:
        timestamp = self.clock.now_ms() - lag
        expected = first_at_or_after(self.batches, timestamp, self.start)
        assert offset_for_timestamp(self.log, timestamp) == expected

    # --- invariants

    @invariant()
    def agrees_with_the_model(self) -> None:
        log = self.log
        assert log.log_start_offset == self.start
        assert log.high_watermark == self.high_watermark
        assert contents(log) == self.batches
        check_consistent(log, self.batches, self.appended, self.end)
        self.check_last_stable_offset()

    def check_last_stable_offset(self) -> None:
        if self.high_watermark == self.end:
            self.lso_is_exact = True
        undecided = first_undecided_offset(self.log.producers)
        most = self.high_watermark if undecided is None else min(undecided, self.high_watermark)
        most = max(most, self.start)
        least = implied(self.appended).last_stable_offset(self.high_watermark)
        least = max(least, self.start)
        assert least <= self.log.last_stable_offset <= most
        if self.lso_is_exact and self.start == 0:
            assert self.log.last_stable_offset == least


class OsLogMachine(LogMachine):
    """The same on files of the operating system."""

    def __init__(self) -> None:
        super().__init__()
        self.temporary = TemporaryDirectory()

    def make_disk(self) -> tuple[Disk, str]:
        return OsDisk(), str(Path(self.temporary.name) / "orders-0")

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close()
        self.temporary.cleanup()


def test_random_operations_in_memory() -> None:
    """S1 to S7: a log behaves like a list of batches under random operations."""
    run_state_machine_as_test(
        LogMachine, settings=settings(max_examples=100, stateful_step_count=50)
    )


def test_random_operations_on_files() -> None:
    """S1 to S7 on the operating system's files and mappings."""
    run_state_machine_as_test(
        OsLogMachine, settings=settings(max_examples=25, stateful_step_count=50)
    )
