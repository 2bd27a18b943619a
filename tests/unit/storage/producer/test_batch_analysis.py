"""From batches to producer state (P3, P4): decided before the write, applied after it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.core.errors import ErrorCode, KafkaError
from penstock.records.append_policy import AppendOrigin
from penstock.records.batch import split
from penstock.storage.disk import OsDisk
from penstock.storage.index.transaction_index import AbortedTxn
from penstock.storage.log_config import LogConfig
from penstock.storage.producer.append_info import VerificationGuard
from penstock.storage.producer.batch_analysis import (
    BatchAnalysis,
    analyze_batches,
    rebuild_producer_state,
)
from penstock.storage.producer.state_manager import ProducerStateManager
from penstock.storage.segment.log_segment import LogSegment
from penstock.storage.segment.log_segments import LogSegments
from tests.support.storage.log_invariants import first_undecided_offset
from tests.support.storage.logs import NOW, PARTITION, CountingDisk, batch, filler, marker

CONFIG = LogConfig(segment_index_bytes=1200, index_interval_bytes=150)


class Bench:
    """Producer state and the segments of a log, without the log."""

    def __init__(self, directory: Path) -> None:
        self.disk = CountingDisk()
        self.directory = str(directory)
        self.segments = LogSegments()
        self.next_offset = 0
        self.producers = self.fresh()
        self.roll()

    def fresh(self) -> ProducerStateManager:
        """State as a restart begins with it."""
        return ProducerStateManager(
            self.disk,
            self.directory,
            PARTITION,
            producer_id_expiration_ms=86_400_000,
        )

    def roll(self) -> None:
        offset = self.next_offset
        self.segments.add(LogSegment(self.disk, self.directory, offset, CONFIG, NOW, create=True))

    def analyze(
        self,
        data: bytes | bytearray,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        verify: bool = False,
        guard: VerificationGuard | None = None,
    ) -> BatchAnalysis | None:
        headers = [header for _, header in split(data)]
        return analyze_batches(self.producers, data, headers, origin, verify=verify, guard=guard)

    def append(
        self, data: bytes | bytearray, *, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> None:
        """Everything an append does, the offsets being there already."""
        headers = [header for _, header in split(data)]
        analysis = self.analyze(data, origin=origin)
        self.segments.active.append(data, headers)
        if analysis is not None:
            analysis.apply(self.producers, self.segments.active)
        self.next_offset = headers[-1].next_offset
        self.producers.map_end_offset = self.next_offset

    def send(self, producer_id: int, sequence: int, *, transactional: bool = False) -> None:
        self.append(
            batch(
                b"v",
                base_offset=self.next_offset,
                producer_id=producer_id,
                sequence=sequence,
                transactional=transactional,
            )
        )

    def end(self, producer_id: int, *, commit: bool) -> None:
        self.append(
            marker(producer_id, commit=commit, base_offset=self.next_offset),
            origin=AppendOrigin.COORDINATOR,
        )

    def rebuilt(self, *, start: int = 0, end: int | None = None) -> ProducerStateManager:
        producers = self.fresh()
        last = self.next_offset if end is None else end
        rebuild_producer_state(producers, self.segments, start, last, NOW)
        return producers

    def snapshots(self) -> list[int]:
        names = (path.name for path in Path(self.directory).iterdir())
        return sorted(int(name[:20]) for name in names if name.endswith(".snapshot"))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    for segment in bench.segments:
        segment.close_handlers()


# --- deciding


def test_batches_without_a_producer_need_no_analysis(bench: Bench) -> None:
    assert bench.analyze(batch(b"a") + batch(b"b", base_offset=1)) is None


def test_nothing_changes_before_it_is_applied(bench: Bench) -> None:
    """P3: the write may fail."""
    analysis = bench.analyze(batch(b"a", producer_id=7, sequence=0))
    assert analysis is not None
    assert analysis.duplicate is None
    assert bench.producers.last_entry(7) is None
    analysis.apply(bench.producers, bench.segments.active)
    entry = bench.producers.last_entry(7)
    assert entry is not None
    assert (entry.last_sequence, entry.last_data_offset) == (0, 0)


def test_several_batches_are_checked_one_after_the_other(bench: Bench) -> None:
    """P3: the second must follow the first, though neither is in the log."""
    first = batch(b"a", b"b", producer_id=7, sequence=0)
    other_batch = batch(b"x", base_offset=2, producer_id=8, sequence=0)
    bench.append(first + other_batch + batch(b"c", base_offset=3, producer_id=7, sequence=2))
    entry = bench.producers.last_entry(7)
    assert entry is not None
    assert entry.last_sequence == 2
    gap = batch(b"d", base_offset=4, producer_id=7, sequence=3) + batch(
        b"e", base_offset=5, producer_id=7, sequence=5
    )
    with pytest.raises(KafkaError) as refused:
        bench.analyze(gap)
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert entry.last_sequence == 2


def test_duplicates_are_detected_for_clients_only(bench: Bench) -> None:
    """P3: a follower copies the batches of its leader."""
    bench.send(7, 0)
    again = batch(b"v", base_offset=1, producer_id=7, sequence=0)
    analysis = bench.analyze(again)
    assert analysis is not None
    assert analysis.duplicate is not None
    assert (analysis.duplicate.first_offset, analysis.duplicate.last_offset) == (0, 0)
    assert analysis.updates == {}
    copied = bench.analyze(again, origin=AppendOrigin.REPLICATION)
    assert copied is not None
    assert copied.duplicate is None


def test_a_follower_refuses_no_sequence(bench: Bench) -> None:
    bench.send(7, 0)
    bench.append(
        batch(b"v", base_offset=1, producer_id=7, sequence=9), origin=AppendOrigin.REPLICATION
    )
    entry = bench.producers.last_entry(7)
    assert entry is not None
    assert entry.last_sequence == 9


def test_a_marker_ends_the_transaction(bench: Bench) -> None:
    """P4: aborted ones are added to the index of the segment with the marker."""
    bench.send(7, 0, transactional=True)
    bench.send(8, 0, transactional=True)
    assert first_undecided_offset(bench.producers) == 0
    bench.end(8, commit=False)
    bench.roll()
    bench.end(7, commit=False)
    first, second = bench.segments
    assert first.indexes.txn_index.all() == [AbortedTxn(8, 1, 2, 0)]
    assert second.indexes.txn_index.all() == [AbortedTxn(7, 0, 3, 4)]
    assert first_undecided_offset(bench.producers) is None


def test_a_committed_transaction_is_not_indexed(bench: Bench) -> None:
    bench.send(7, 0, transactional=True)
    bench.end(7, commit=True)
    assert bench.segments.active.indexes.txn_index.all() == []


def test_a_marker_without_a_transaction_in_this_partition(bench: Bench) -> None:
    """P4: the producer wrote to other partitions only."""
    bench.end(7, commit=False)
    assert bench.segments.active.indexes.txn_index.all() == []
    entry = bench.producers.last_entry(7)
    assert entry is not None
    assert entry.producer_epoch == 0


def test_verification(bench: Bench) -> None:
    """P4, KIP-890: the first batch of a transaction needs the guard of its verification by the
    coordinator; later ones, and markers, do not."""
    data = batch(b"a", producer_id=7, sequence=0, transactional=True)

    def refusal(guard: VerificationGuard | None) -> ErrorCode:
        with pytest.raises(KafkaError) as refused:
            bench.analyze(data, verify=True, guard=guard)
        return refused.value.code

    assert refusal(None) is ErrorCode.INVALID_TXN_STATE
    entry = bench.producers.maybe_create_verification_state_entry(7, 0, 0, NOW)
    assert refusal(None) is ErrorCode.INVALID_TXN_STATE
    assert refusal(VerificationGuard()) is ErrorCode.INVALID_TXN_STATE
    analysis = bench.analyze(data, verify=True, guard=entry.guard)
    assert analysis is not None
    bench.append(data)
    assert bench.producers.verification_state_entry(7) is None
    following = batch(b"b", base_offset=1, producer_id=7, sequence=1, transactional=True)
    assert bench.analyze(following, verify=True) is not None
    ending = marker(7, commit=True, base_offset=1)
    assert bench.analyze(ending, verify=True, origin=AppendOrigin.COORDINATOR) is not None
    plain = batch(b"c", producer_id=9, sequence=0)
    assert bench.analyze(plain, verify=True) is not None
    assert bench.analyze(data, verify=True, origin=AppendOrigin.REPLICATION) is not None


def test_a_marker_in_between_makes_the_guard_worthless(bench: Bench) -> None:
    """P4: the coordinator aborted during the verification."""
    entry = bench.producers.maybe_create_verification_state_entry(7, 0, 0, NOW)
    bench.end(7, commit=False)
    assert bench.producers.verification_state_entry(7) is None
    data = batch(b"a", base_offset=1, producer_id=7, sequence=0, transactional=True)
    with pytest.raises(KafkaError) as refused:
        bench.analyze(data, verify=True, guard=entry.guard)
    assert refused.value.code is ErrorCode.INVALID_TXN_STATE


# --- rebuilding


def state(producers: ProducerStateManager) -> dict[int, tuple[int, int, int | None]]:
    return {
        producer_id: (entry.last_sequence, entry.last_data_offset, entry.current_txn_first_offset)
        for producer_id, entry in producers.active_producers().items()
    }


def fill_segments(bench: Bench) -> None:
    """Four segments of three records, of two producers, the second with a transaction."""
    for n in range(4):
        if n:
            bench.roll()
        bench.send(7, 2 * n)
        bench.send(7, 2 * n + 1)
        bench.send(8, n, transactional=True)
    bench.end(8, commit=True)
    bench.send(8, 4, transactional=True)


def test_the_log_implies_the_state(bench: Bench) -> None:
    """P3, S7: without any snapshot."""
    fill_segments(bench)
    producers = bench.rebuilt()
    assert state(producers) == state(bench.producers) == {7: (7, 10, None), 8: (4, 13, 13)}
    assert producers.map_end_offset == 14
    assert first_undecided_offset(producers) == 13


def test_a_rebuild_snapshots_the_last_two_segments_and_the_end(bench: Bench) -> None:
    """So that the next truncation or recovery need not read more than one segment."""
    fill_segments(bench)
    assert bench.snapshots() == []
    bench.rebuilt()
    assert bench.snapshots() == [6, 9, 14]


def test_a_rebuild_reads_from_the_last_snapshot_on(bench: Bench) -> None:
    fill_segments(bench)
    bench.rebuilt(end=9)
    bench.disk.read.clear()
    producers = bench.rebuilt()
    assert state(producers) == state(bench.producers)
    read = {int(name[:20]) for name, size in bench.disk.read.items() if ".log" in name and size}
    assert read == {9}


def test_a_rebuild_up_to_an_offset(bench: Bench) -> None:
    """R4: for a truncation there."""
    fill_segments(bench)
    assert state(bench.rebuilt(end=7)) == {7: (4, 6, None), 8: (1, 5, 2)}
    assert bench.snapshots() == [6, 7]


def test_a_rebuild_from_the_log_start_offset(bench: Bench) -> None:
    """S4: deleted records have no effect any more."""
    fill_segments(bench)
    producers = bench.rebuilt(start=11)
    assert state(producers) == {8: (4, 13, 13)}


def test_a_rebuild_does_not_index_transactions_again(bench: Bench) -> None:
    bench.send(7, 0, transactional=True)
    bench.end(7, commit=False)
    bench.rebuilt()
    assert len(bench.segments.active.indexes.txn_index.all()) == 1


def test_a_state_that_is_current_is_kept(bench: Bench) -> None:
    fill_segments(bench)
    bench.disk.read.clear()
    rebuild_producer_state(bench.producers, bench.segments, 0, bench.next_offset, NOW)
    assert state(bench.producers) == {7: (7, 10, None), 8: (4, 13, 13)}
    assert bench.disk.read == {}


def test_a_log_without_producers_is_not_read_for_a_truncation(bench: Bench) -> None:
    """R4: there is nothing to rebuild."""
    for offset in range(20):
        bench.append(filler(100, base_offset=offset))
    bench.disk.read.clear()
    rebuild_producer_state(bench.producers, bench.segments, 0, 12, NOW)
    assert bench.producers.map_end_offset == 12
    assert sum(size for name, size in bench.disk.read.items() if ".log" in name) == 0


def test_an_empty_log(tmp_path: Path) -> None:
    producers = ProducerStateManager(
        OsDisk(),
        str(tmp_path),
        PARTITION,
        producer_id_expiration_ms=1,
    )
    rebuild_producer_state(producers, LogSegments(), 0, 0, NOW)
    assert producers.is_empty
    assert producers.map_end_offset == 0
