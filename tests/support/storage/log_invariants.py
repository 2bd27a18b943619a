"""The invariants of every opened log, whatever happened to its files before (S7)."""

from collections.abc import Sequence

from penstock.storage.index.transaction_index import AbortedTxn
from penstock.storage.log.log import Log
from penstock.storage.log.timestamp_search import offset_for_timestamp, offset_of_max_timestamp
from penstock.storage.producer.state_manager import ProducerStateManager
from penstock.storage.segment.log_segment import LogSegment
from tests.support.storage.log_history import Outcome
from tests.support.storage.log_model import (
    ProducerSummary,
    StoredBatch,
    aborted_between,
    first_at_or_after,
    first_latest,
    implied,
    leader_epochs,
    without_repeats,
)
from tests.support.storage.log_workloads import contents

MOST_LOOKUPS = 12


def check_against(log: Log, outcomes: Sequence[Outcome], *, holes: bool = False) -> None:
    """Checks that the history allows the log, and that the log is consistent.

    With `holes` there may be offsets without a batch, also at the end.
    """
    batches = contents(log)
    reasons = [_why_not(log, batches, outcome, holes) for outcome in outcomes]
    assert None in reasons, "; or ".join(str(reason) for reason in reasons)
    end = log.log_end_offset if holes else None
    check_consistent(log, batches, outcomes[reasons.index(None)].appended, end)


def _why_not(log: Log, batches: Sequence[StoredBatch], outcome: Outcome, holes: bool) -> str | None:
    start = log.log_start_offset
    if not outcome.least_start <= start <= outcome.most_start:
        return (
            f"the log starts at {start}, not between {outcome.least_start} and {outcome.most_start}"
        )
    if log.log_end_offset < outcome.least_end:
        return f"the log ends at {log.log_end_offset}, {outcome.least_end} was flushed"
    expected = list(outcome.batches)
    if not batches:
        at_start = holes or log.log_end_offset == start
        return None if at_start else f"an empty log ends at {log.log_end_offset}"
    if batches[0] not in expected:
        return f"{batches[0]} was never appended"
    first = expected.index(batches[0])
    if batches != expected[first : first + len(batches)]:
        return f"{batches} is no part of {expected}"
    if first and expected[first - 1].next_offset > start:
        return f"{expected[first - 1]} is missing, the log starts at {start}"
    return None


def check_consistent(
    log: Log,
    batches: Sequence[StoredBatch],
    appended: Sequence[StoredBatch] | None = None,
    end: int | None = None,
) -> None:
    """Checks offsets, indexes, producers, transactions and epochs against the batches.

    `appended` also has earlier batches that were deleted or compacted. The log ends with the last
    batch, or at `end`.
    """
    if end is None:
        end = batches[-1].next_offset if batches else log.log_end_offset
    assert log.log_end_offset == end, f"{log} should end at {end}"
    current = [batch for batch in appended or batches if batch.next_offset <= end]
    check_offsets(log)
    check_segments(log, batches)
    check_times(log, batches)
    check_producers(log, batches, current)
    check_epochs(log, batches, current)


def check_offsets(log: Log) -> None:
    assert 0 <= log.log_start_offset <= log.last_stable_offset <= log.high_watermark, f"{log}"
    assert log.high_watermark <= log.log_end_offset, f"{log}"
    assert log.recovery_point <= log.log_end_offset, f"{log}"


def check_segments(log: Log, batches: Sequence[StoredBatch]) -> None:
    bases = log.local.segments.base_offsets
    assert bases == sorted(set(bases))
    assert bases[0] <= log.log_start_offset
    ends = [*bases[1:], log.log_end_offset + 1]
    assert log.size == sum(len(batch.data) for batch in batches)
    for segment, end in zip(log.local.segments, ends, strict=True):
        inside = [batch for batch in batches if segment.base_offset <= batch.base_offset < end]
        assert sum(len(batch.data) for batch in inside) == segment.size, f"{segment}"
        assert not inside or inside[-1].next_offset <= end, f"{segment} overlaps the next one"
        check_indexes(segment, inside, is_active=segment is log.local.segments.active)


def check_indexes(segment: LogSegment, batches: Sequence[StoredBatch], *, is_active: bool) -> None:
    """Each entry of the offset index and the time index names an existing batch."""
    at: dict[int, StoredBatch] = {}
    position = 0
    for batch in batches:
        at[position] = batch
        position += len(batch.data)
    index = segment.indexes.offset_index
    entries = [index.entry(n) for n in range(index.entries)]
    assert entries == sorted(set(entries)), f"{index.path}: {entries}"
    for offset, position in entries:
        assert position in at, f"{index.path}: no batch at {position}"
        assert at[position].header.last_offset == offset, f"{index.path}: {offset} at {position}"
    times = segment.indexes.time_index
    latest = -1
    for timestamp, offset in [times.entry(n) for n in range(times.entries)]:
        assert timestamp > latest, f"{times.path}: {timestamp} after {latest}"
        latest = timestamp
        observed = [batch for batch in batches if batch.header.last_offset <= offset]
        assert observed, f"{times.path}: offset {offset} is not there"
        assert observed[-1].header.last_offset == offset, f"{times.path}: {offset} ends no batch"
        assert timestamp == max(batch.header.max_timestamp for batch in observed), f"{times.path}"
    largest = max((batch.header.max_timestamp for batch in batches), default=-1)
    assert segment.max_timestamp == largest, f"{segment}: {segment.max_timestamp}, not {largest}"
    if not is_active:
        assert latest == largest, f"{times.path} ends with {latest}, not with {largest}"
        assert index.length == index.size_in_bytes, f"{index.path} was not trimmed"
        assert times.length == times.size_in_bytes, f"{times.path} was not trimmed"


def check_times(log: Log, batches: Sequence[StoredBatch]) -> None:
    """A search by time finds the same records as a scan."""
    start = log.log_start_offset
    stamps = without_repeats([record.timestamp for batch in batches for record in batch.records])
    step = max(len(stamps) // MOST_LOOKUPS, 1)
    for timestamp in [0, *stamps[::step], *(stamp + 1 for stamp in stamps[-1:])]:
        result = offset_for_timestamp(log, timestamp)
        assert result == first_at_or_after(batches, timestamp, start), f"time {timestamp}: {result}"
    result = offset_of_max_timestamp(log)
    if result is None:
        # Compaction may have emptied the batch that had it.
        largest = max((batch.header.max_timestamp for batch in batches), default=-1)
        stamps = [stamp for stamp in stamps if stamp == largest]
        assert not stamps or largest < 0, f"time {largest} is not found"
    else:
        assert result in (first_latest(batches, 0), first_latest(batches, start)), f"{result}"


def check_producers(
    log: Log, batches: Sequence[StoredBatch], appended: Sequence[StoredBatch]
) -> None:
    """Checks the producers and the aborted transactions against the batches.

    A log whose first records were deleted may know its producers from those records.
    """
    start = log.log_start_offset
    before = [batch for batch in appended if batch.next_offset <= start]
    after = [batch for batch in appended if batch.next_offset > start]
    views = [implied([*before[n:], *after]) for n in range(len(before) + 1)]
    if log.config.compact:
        views.append(implied([batch for batch in batches if batch.next_offset > start]))
    result = {
        producer_id: ProducerSummary.of(entry)
        for producer_id, entry in log.producers.active_producers().items()
    }
    for producer_id, summary in result.items():
        possible = [view.producers.get(producer_id) for view in views]
        assert summary in possible, f"producer {producer_id}: {summary}, not {possible}"
    missing = views[-1].producers.keys() - result.keys()
    assert not missing, f"producers {missing} are not known"
    assert log.producers.map_end_offset == log.log_end_offset
    open_txns = [view.open_transactions for view in views]
    assert first_undecided_offset(log.producers) in [next(iter(txns), None) for txns in open_txns]
    exact = views[0].aborted if len(views) == 1 else None
    least = views[-1].aborted
    check_aborted(log, batches, exact, least, {txn for view in views for txn in view.aborted})


def check_aborted(
    log: Log,
    batches: Sequence[StoredBatch],
    exact: Sequence[AbortedTxn] | None,
    least: Sequence[AbortedTxn],
    possible: set[AbortedTxn],
) -> None:
    """Checks the list of aborted transactions for every range of batches.

    If it is not known exactly, those of `least` that have records must be in it, and only
    `possible` ones may be.
    """
    end = log.log_end_offset
    everything = log.aborted_transactions(log.log_start_offset, end)
    assert possible.issuperset(everything), f"{everything}, not among {possible}"
    expected = everything if exact is None else exact
    for txn in least:
        inside = [
            batch
            for batch in batches
            if batch.header.producer_id == txn.producer_id
            and not batch.header.is_control
            and max(txn.first_offset, log.log_start_offset) <= batch.base_offset < txn.last_offset
        ]
        results = [aborted for aborted in everything if aborted.last_offset == txn.last_offset]
        assert results or not inside, f"{txn} is not listed"
    edges = [batch.base_offset for batch in batches if batch.base_offset >= log.log_start_offset]
    step = max(len(edges) // MOST_LOOKUPS, 1)
    for start in edges[::step]:
        for stop in [edge for edge in [*edges[::step], end] if edge > start]:
            listed = log.aborted_transactions(start, stop)
            assert listed == aborted_between(expected, start, stop), f"{start} to {stop}: {listed}"


def check_epochs(log: Log, batches: Sequence[StoredBatch], appended: Sequence[StoredBatch]) -> None:
    start = log.log_start_offset
    result = log.epochs.entries()
    if start == log.log_end_offset:
        assert all(entry.start_offset == start for entry in result), f"epochs {result}"
        return
    remaining = [batch for batch in batches if batch.next_offset > start]
    possible = [leader_epochs(current, start) for current in (batches, appended, remaining)]
    assert result in possible, f"epochs {result}, not {possible}"


def first_undecided_offset(producers: ProducerStateManager) -> int | None:
    """Returns the first offset of an open transaction, regardless of the high watermark."""
    txn = producers._ongoing.first()
    return None if txn is None else txn.first_offset
