"""The producers of a partition over appends, markers, truncation and restarts (P3, P4)."""

import errno
import logging
from contextlib import suppress
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.ids import TopicPartition
from penstock.records.append_policy import AppendOrigin
from penstock.records.batch import BatchHeader
from penstock.records.control import ControlType, EndTxnMarker
from penstock.storage.producer.append_info import CompletedTxn, ProducerStateEntry
from penstock.storage.producer.state_manager import ProducerStateManager
from tests.support.storage.crash_disk import CrashDisk, CrashMode, SimulatedCrash
from tests.support.storage.log_invariants import first_undecided_offset

DIRECTORY = "/orders-3"
EXPIRATION_MS = 1000
TIMEOUT_MS = 100
NOW = 10_000


def new_disk() -> CrashDisk:
    disk = CrashDisk()
    disk.make_directory(DIRECTORY)
    disk.make_durable()
    return disk


class Log:
    """The state with a log that assigns offsets."""

    def __init__(self, disk: CrashDisk | None = None) -> None:
        self.disk = disk or new_disk()
        self.state = ProducerStateManager(
            self.disk,
            DIRECTORY,
            TopicPartition("orders", 3),
            producer_id_expiration_ms=EXPIRATION_MS,
        )
        self.end = 0

    def reopened(self) -> "Log":
        log = Log(self.disk)
        log.end = self.end
        return log

    def append(
        self, producer_id: int, sequence: int, count: int = 1, *, txn: bool = False, at: int = NOW
    ) -> int:
        """Appends a batch of epoch 0; returns its first offset."""
        header = data(producer_id, sequence, count, offset=self.end, txn=txn, at=at)
        info = self.state.prepare_update(producer_id, AppendOrigin.CLIENT)
        assert info.append(header) is None
        self.state.update(info)
        self.end += count
        self.state.map_end_offset = self.end
        return header.base_offset

    def finish(self, producer_id: int, *, commit: bool = True) -> tuple[CompletedTxn, int]:
        """Appends a marker; returns the completed transaction and the last stable offset of
        its entry."""
        header = BatchHeader(self.end, 49, 0, 2, 0, 0x30, 0, NOW, NOW, producer_id, 0, -1, 1)
        kind = ControlType.COMMIT if commit else ControlType.ABORT
        info = self.state.prepare_update(producer_id, AppendOrigin.COORDINATOR)
        completed = info.append(header, marker=EndTxnMarker(kind, producer_id, 0, 0))
        assert completed is not None
        self.state.update(info)
        self.end += 1
        self.state.map_end_offset = self.end
        stable = self.state.last_stable_offset(completed)
        self.state.complete_txn(completed)
        return completed, stable

    def snapshots(self) -> list[int]:
        return [int(name[:20]) for name in self.disk.names(DIRECTORY) if name.endswith(".snapshot")]


def data(
    producer_id: int,
    sequence: int,
    count: int = 1,
    *,
    offset: int = 0,
    txn: bool = False,
    at: int = NOW,
) -> BatchHeader:
    attributes = 0x10 if txn else 0
    return BatchHeader(
        offset, 49, 0, 2, 0, attributes, count - 1, at, at, producer_id, 0, sequence, count
    )


# --- appends


def test_a_duplicate_returns_its_first_offset() -> None:
    """P3."""
    log = Log()
    offsets = [log.append(1, n * 3, 3) for n in range(3)]
    for n, offset in enumerate(offsets):
        duplicate = log.state.find_duplicate(data(1, n * 3, 3))
        assert duplicate is not None
        assert (duplicate.first_offset, duplicate.last_offset, duplicate.timestamp) == (
            offset,
            offset + 2,
            NOW,
        )
    assert log.state.find_duplicate(data(1, 9, 3)) is None
    assert log.state.find_duplicate(data(2, 0, 3)) is None


def test_nothing_is_known_before_it_is_applied() -> None:
    log = Log()
    info = log.state.prepare_update(1, AppendOrigin.CLIENT)
    info.append(data(1, 0, txn=True))
    assert log.state.is_empty
    assert log.state.last_entry(1) is None
    assert log.state.first_unstable_offset is None
    log.state.update(info)
    assert not log.state.is_empty
    assert list(log.state.active_producers()) == [1]
    entry = log.state.last_entry(1)
    assert entry is not None
    assert entry.last_sequence == 0


def test_batches_without_producer_have_no_state() -> None:
    log = Log()
    info = log.state.prepare_update(-1, AppendOrigin.CLIENT)
    with pytest.raises(ValueError, match="without producer id"):
        log.state.update(info)


def test_idle_producers_expire_unless_their_transaction_is_open() -> None:
    log = Log()
    log.append(1, 0, at=NOW)
    log.append(2, 0, at=NOW + 1)
    log.append(3, 0, txn=True, at=NOW)
    log.state.maybe_create_verification_state_entry(4, 0, 0, NOW)
    log.state.maybe_create_verification_state_entry(5, 0, 0, NOW + 1)
    log.state.remove_expired(NOW + EXPIRATION_MS - 1)
    assert list(log.state.active_producers()) == [1, 2, 3]
    log.state.remove_expired(NOW + EXPIRATION_MS)
    assert list(log.state.active_producers()) == [2, 3]
    assert log.state.verification_state_entry(4) is None
    assert log.state.verification_state_entry(5) is not None


# --- transactions


def test_the_last_stable_offset_stops_at_the_first_open_transaction() -> None:
    """P4: `read_committed` reads up to there, also past markers that are not replicated."""
    log = Log()
    log.append(9, 0)
    assert log.state.first_unstable_offset is None
    first = log.append(1, 0, txn=True)
    second = log.append(2, 0, txn=True)
    assert log.state.first_unstable_offset == first_undecided_offset(log.state) == first
    completed, stable = log.finish(1, commit=False)
    assert completed == CompletedTxn(1, first, 3, is_aborted=True)
    assert stable == second
    assert first_undecided_offset(log.state) == second
    assert log.state.first_unstable_offset == first, "the marker is above the high watermark"
    log.state.on_high_watermark_updated(3)
    assert log.state.first_unstable_offset == first
    log.state.on_high_watermark_updated(4)
    assert log.state.first_unstable_offset == second
    completed, stable = log.finish(2)
    assert (completed.is_aborted, stable) == (False, log.end)
    assert first_undecided_offset(log.state) is None
    log.state.on_high_watermark_updated(log.end)
    assert log.state.first_unstable_offset is None


def test_an_open_transaction_below_an_unreplicated_one_is_the_first_unstable() -> None:
    log = Log()
    first = log.append(1, 0, txn=True)
    log.append(2, 0, txn=True)
    log.finish(2)
    assert log.state.first_unstable_offset == first


def test_a_transaction_that_never_started_cannot_end() -> None:
    log = Log()
    with pytest.raises(ValueError, match="never started in orders-3"):
        log.state.complete_txn(CompletedTxn(1, 5, 6, is_aborted=False))


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), max_size=60))
def test_stable_offsets_against_a_model(steps: list[tuple[int, int]]) -> None:
    """Producers write and end transactions alternately, with a high watermark that lags."""
    log = Log()
    open_from: dict[int, int] = {}
    ended: list[tuple[int, int]] = []
    high_watermark = 0
    for producer, action in steps:
        if action == 0 and producer in open_from:
            first = open_from.pop(producer)
            completed, stable = log.finish(producer)
            assert completed.first_offset == first
            assert stable == min(open_from.values(), default=log.end)
            ended.append((first, completed.last_offset))
        elif action == 1:
            high_watermark = max(high_watermark, log.end - producer)
            log.state.on_high_watermark_updated(high_watermark)
        else:
            entry = log.state.last_entry(producer)
            sequence = entry.last_sequence + 1 if entry else 0
            offset = log.append(producer, sequence, txn=True)
            open_from.setdefault(producer, offset)
        unreplicated = [first for first, last in ended if last >= high_watermark]
        assert first_undecided_offset(log.state) == min(open_from.values(), default=None)
        expected = min([*open_from.values(), *unreplicated], default=None)
        assert log.state.first_unstable_offset == expected


# --- verification


def test_verification_continues_until_it_is_cleared() -> None:
    log = Log()
    entry = log.state.maybe_create_verification_state_entry(1, 5, 0, NOW, supports_epoch_bump=True)
    again = log.state.maybe_create_verification_state_entry(1, 3, 0, NOW + 5)
    assert again is entry
    assert again.guard is entry.guard
    assert (again.lowest_sequence, again.timestamp, again.supports_epoch_bump) == (3, NOW, True)
    log.state.clear_verification_state_entry(1)
    log.state.clear_verification_state_entry(1)
    later = log.state.maybe_create_verification_state_entry(1, 3, 0, NOW + 5)
    assert later.guard is not entry.guard


# --- snapshots


def test_a_restart_reads_the_last_snapshot() -> None:
    """P3: state survives restarts; of each producer, the last batch."""
    log = Log()
    log.append(1, 0, 3)
    log.append(1, 3, 2)
    log.append(2, 0, txn=True)
    assert log.state.take_snapshot() == f"{DIRECTORY}/00000000000000000006.snapshot"
    assert log.state.take_snapshot() is None, "nothing new"
    log = log.reopened()
    log.state.truncate_and_reload(0, 6, NOW)
    assert log.state.map_end_offset == 6
    assert log.state.first_unstable_offset == 5
    assert log.state.find_duplicate(data(1, 3, 2)) is not None
    assert log.state.find_duplicate(data(1, 0, 3)) is None
    log.append(1, 5)
    log.append(2, 1, txn=True)


def test_expired_producers_are_not_loaded() -> None:
    log = Log()
    log.append(1, 0, at=NOW)
    log.append(2, 0, at=NOW + 500)
    log.append(3, 0, txn=True, at=NOW)
    log.state.take_snapshot()
    log = log.reopened()
    log.state.truncate_and_reload(0, 3, NOW + EXPIRATION_MS)
    assert list(log.state.active_producers()) == [2, 3]


def three_snapshots() -> Log:
    """Snapshots at offsets 1, 2 and 3, and one more batch."""
    log = Log()
    for n in range(4):
        log.append(1, n)
        if n < 3:
            log.state.take_snapshot()
    assert log.snapshots() == [1, 2, 3]
    return log


def test_truncation_reloads_the_last_snapshot_in_range() -> None:
    log = three_snapshots()
    log.state.truncate_and_reload(0, 2, NOW)
    assert log.snapshots() == [1, 2]
    assert log.state.map_end_offset == 2
    entry = log.state.last_entry(1)
    assert entry is not None
    assert entry.last_sequence == 1


def test_truncation_below_all_snapshots_clears_the_state() -> None:
    log = three_snapshots()
    log.state.truncate_and_reload(4, 5, NOW)
    assert log.snapshots() == []
    assert log.state.is_empty
    assert log.state.map_end_offset == 4


def test_truncation_to_the_end_of_the_state_keeps_it() -> None:
    log = three_snapshots()
    log.append(2, 0, txn=True)
    log.finish(2)
    log.state.truncate_and_reload(1, log.end, NOW)
    assert log.snapshots() == [2, 3]
    assert list(log.state.active_producers()) == [1, 2]
    assert log.state.first_unstable_offset == 4, "its marker may not be replicated"
    assert log.state.take_snapshot() is not None


def test_full_truncation() -> None:
    log = three_snapshots()
    log.append(2, 0, txn=True)
    log.state.truncate_fully_and_start_at(70)
    assert log.snapshots() == []
    assert log.state.is_empty
    assert log.state.first_unstable_offset is None
    assert log.state.map_end_offset == 70
    assert log.state.take_snapshot() is not None
    assert log.snapshots() == [70]


def test_a_log_that_loses_its_head_keeps_its_producers() -> None:
    log = three_snapshots()
    log.append(2, 0, txn=True)
    log.finish(2)
    log.state.on_log_start_offset_incremented(6)
    assert list(log.state.active_producers()) == [1, 2]
    assert log.state.first_unstable_offset is None
    assert log.state.map_end_offset == 6
    log.state.on_log_start_offset_incremented(90)
    assert log.state.map_end_offset == 90


def test_an_older_snapshot_replaces_a_corrupt_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """S7."""
    log = three_snapshots()
    for offset, content in [(3, b""), (2, b"\0\1 torn")]:
        file = log.disk.open(f"{DIRECTORY}/{offset:020d}.snapshot")
        file.truncate(0)
        file.write_at(content, 0)
    log = log.reopened()
    with caplog.at_level(logging.WARNING):
        log.state.truncate_and_reload(0, 4, NOW)
    assert log.state.map_end_offset == 1
    assert log.snapshots() == [1]
    assert [record.getMessage().split("/")[-1].split(" ")[0] for record in caplog.records] == [
        "00000000000000000003.snapshot",
        "00000000000000000002.snapshot",
    ]


def test_a_snapshot_replaces_a_longer_file_of_its_name() -> None:
    log = Log()
    path = f"{DIRECTORY}/00000000000000000001.snapshot"
    log.disk.open(path, create=True).write_at(b"x" * 1000, 0)
    log.append(1, 0)
    log.state.take_snapshot()
    assert log.disk.size(path) == 56
    assert log.snapshots() == [1]


def test_a_synced_snapshot_is_durable() -> None:
    """S7: with its name. Without sync it is after `flush_snapshot` and a sync of the directory."""
    log = Log()
    log.append(1, 0)
    log.state.take_snapshot()
    log.append(1, 1)
    log.state.take_snapshot(sync=False)
    image = Log(log.disk.image(CrashMode.DURABLE))
    assert image.snapshots() == [1]
    image.state.truncate_and_reload(0, 5, NOW)
    assert image.state.map_end_offset == 1
    log.state.flush_snapshot(2)
    log.state.flush_snapshot(77)
    log.disk.sync_directory(DIRECTORY)
    image = Log(log.disk.image(CrashMode.DURABLE))
    image.state.truncate_and_reload(0, 5, NOW)
    assert image.state.map_end_offset == 2


def test_after_any_crash_a_valid_snapshot_is_loaded() -> None:
    """S7: a synced snapshot is still available, and a torn one is never taken for a valid one."""

    def work(disk: CrashDisk) -> None:
        log = Log(disk)
        for n in range(4):
            log.append(1, n)
            log.state.take_snapshot(sync=n != 2)
        log.state.delete_snapshot(1)

    whole = new_disk()
    before = whole.operations
    work(whole)
    for crash_at in range(before, whole.operations + 1):
        disk = new_disk()
        disk.crash_at = crash_at
        with suppress(SimulatedCrash):
            work(disk)
        for seed in range(20):
            log = Log(disk.image(CrashMode.TORN, Random(seed)))
            log.state.truncate_and_reload(0, 100, NOW)
            end = log.state.map_end_offset
            entry = log.state.last_entry(1)
            assert (entry.last_sequence if entry else -1) == end - 1
    assert end == 4


def test_a_failed_snapshot_is_retried() -> None:
    log = Log()
    log.append(1, 0)
    log.disk.fail("write", "*.snapshot", errno.EIO, partial=10)
    with pytest.raises(OSError, match="Input/output"):
        log.state.take_snapshot()
    assert log.state.latest_snapshot_offset is None
    log.disk.heal()
    log.disk.fail("write", "*.snapshot", errno.ENOSPC, partial=10)
    assert log.state.take_snapshot() is None
    assert (log.snapshots(), log.state.latest_snapshot_offset) == ([], None)
    log.disk.heal()
    assert log.state.take_snapshot() is not None


def test_snapshots_are_listed_and_deleted() -> None:
    log = three_snapshots()
    state = log.state
    assert (log.snapshots(), state.latest_snapshot_offset) == ([1, 2, 3], 3)
    state.delete_snapshot(7)
    for offset in (1, 2):
        state.delete_snapshot(offset)
    assert (log.snapshots(), state.latest_snapshot_offset) == ([3], 3)
    log.disk.remove(f"{DIRECTORY}/00000000000000000003.snapshot")
    state.delete_snapshot(3)
    assert state.latest_snapshot_offset is None


@pytest.mark.parametrize(
    ("segments", "remaining"),
    [
        ([1, 2, 3], [1, 2, 3]),
        ([1], [1, 3]),
        ([3], [3]),
        ([0, 2], [2, 3]),
        ([0], [3]),
        ([9], []),
        ([1, 9], [1]),
        ([], [3]),
    ],
)
def test_snapshots_without_a_segment_are_removed_except_the_last(
    segments: list[int], remaining: list[int]
) -> None:
    """The last one was written by a clean shutdown, if it is above the last segment's start."""
    log = three_snapshots()
    log.state.remove_straggling_snapshots(segments)
    assert log.snapshots() == remaining
    assert log.state.latest_snapshot_offset == (remaining[-1] if remaining else None)


def test_other_files_are_not_snapshots() -> None:
    disk = new_disk()
    for name in ("x.snapshot", "00000000000000000005.snapshot.deleted", "00000000000000000005.log"):
        disk.open(f"{DIRECTORY}/{name}", create=True)
    assert Log(disk).state.latest_snapshot_offset is None
    disk.remove_directory(DIRECTORY)
    assert Log(disk).state.latest_snapshot_offset is None


def test_a_loaded_transaction_is_in_its_place() -> None:
    """Snapshots list producers in any order."""
    log = Log()
    for producer, first in [(1, 30), (2, 10), (3, 20)]:
        log.state.load_producer_entry(ProducerStateEntry(producer, 0, -1, NOW, first))
    assert first_undecided_offset(log.state) == 10
    log.state.complete_txn(CompletedTxn(2, 10, 40, is_aborted=False))
    assert first_undecided_offset(log.state) == 20
    log.state.load_producer_entry(ProducerStateEntry(3, 0, -1, NOW, 20))
    log.state.complete_txn(CompletedTxn(3, 20, 41, is_aborted=False))
    assert first_undecided_offset(log.state) == 30


@given(
    st.lists(st.tuples(st.sampled_from("awms"), st.integers(0, 3)), max_size=50),
    st.integers(0, 2**16),
)
def test_a_reload_and_replay_gives_the_state_that_was(
    steps: list[tuple[str, int]], seed: int
) -> None:
    """P3: a snapshot and the log after it result in the same state."""
    log = Log()
    history: list[tuple[int, int, bool, bool]] = []  # offset, producer, transactional, marker

    def write(producer: int, *, txn: bool) -> None:
        entry = log.state.last_entry(producer)
        if entry is not None and entry.current_txn_first_offset is not None:
            txn = True
        history.append((log.end, producer, txn, False))
        log.append(producer, entry.last_sequence + 1 if entry else 0, txn=txn)

    for action, producer in steps:
        entry = log.state.last_entry(producer)
        if action in "aw":
            write(producer, txn=action == "w")
        elif action == "m" and entry is not None and entry.current_txn_first_offset is not None:
            history.append((log.end, producer, True, True))
            log.finish(producer)
        elif action == "s":
            log.state.take_snapshot(sync=False)
    rng = Random(seed)
    cut = rng.randint(0, log.end)
    replayed = log.reopened()
    replayed.state.truncate_and_reload(0, cut, NOW)
    expected = Log()
    for target in (replayed, expected):
        target.end = target.state.map_end_offset
        for offset, producer, txn, is_marker in history:
            if target.end <= offset < cut:
                if is_marker:
                    target.finish(producer)
                else:
                    entry = target.state.last_entry(producer)
                    target.append(producer, entry.last_sequence + 1 if entry else 0, txn=txn)
    assert replayed.state.map_end_offset == expected.state.map_end_offset == cut
    assert first_undecided_offset(replayed.state) == first_undecided_offset(expected.state)
    for producer, entry in expected.state.active_producers().items():
        again = replayed.state.last_entry(producer)
        assert again is not None
        assert (again.last_sequence, again.last_data_offset, again.current_txn_first_offset) == (
            entry.last_sequence,
            entry.last_data_offset,
            entry.current_txn_first_offset,
        )
