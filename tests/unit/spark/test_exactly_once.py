"""When a batch is applied, skipped, or refused (D3)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.ids import TopicPartition
from penstock.spark.errors import ProgressError
from penstock.spark.exactly_once import Decision, decide
from penstock.spark.progress import Batch, Progress, SourceOffsets, StoredProgress


def at(*offsets: int, topic_id: str = "id-1", source: str = "orders") -> Progress:
    """Returns a source with one topic whose partitions are at these offsets."""
    partitions = {TopicPartition("orders", index): offset for index, offset in enumerate(offsets)}
    return {source: SourceOffsets(partitions, {"orders": topic_id}, source)}


def batch(start: Progress, end: Progress, number: int = 7, query: str = "query-1") -> Batch:
    return Batch(query, number, start, end)


def test_a_batch_whose_start_is_stored_is_applied() -> None:
    assert decide(StoredProgress(at(5, 6)), batch(at(5, 6), at(9, 6))) is Decision.APPLY


def test_a_batch_whose_end_is_stored_is_skipped_whatever_its_number() -> None:
    """A new checkpoint counts from zero, so the number decides nothing."""
    stored = StoredProgress(at(9, 6), "query-1", 7)
    assert decide(stored, batch(at(5, 6), at(9, 6), number=0, query="query-2")) is Decision.SKIP


def test_new_data_of_a_new_checkpoint_is_applied() -> None:
    stored = StoredProgress(at(9), "query-1", 7)
    assert decide(stored, batch(at(9), at(12), number=0, query="query-2")) is Decision.APPLY


def test_a_batch_without_records_is_identified_by_its_number() -> None:
    """The watermark has advanced: rows leave the state although no offset changes."""
    stored = StoredProgress(at(9), "query-1", 7)
    assert decide(stored, batch(at(9), at(9), number=8)) is Decision.APPLY
    assert decide(stored, batch(at(9), at(9), number=7)) is Decision.SKIP
    assert decide(stored, batch(at(9), at(9), number=7, query="query-2")) is Decision.APPLY


def test_a_partition_that_is_new_in_the_batch_has_no_start() -> None:
    assert decide(StoredProgress(at(5)), batch(at(5), at(9, 3))) is Decision.APPLY
    assert decide(StoredProgress(at(9, 3)), batch(at(5), at(9, 3))) is Decision.SKIP


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        (at(7), r"orders-0: stored 7, the batch goes from 5 to 9"),
        (at(4), r"orders-0: stored 4"),
        (at(12), r"orders-0: stored 12"),
        (at(5, 1), r"orders-1: stored 1, the batch goes from None to None"),
        ({}, r"orders-0: stored None"),
        (at(5, topic_id="id-0"), "topic orders was deleted and created again"),
        (at(9, topic_id="id-0"), "topic orders was deleted and created again"),
    ],
)
def test_the_error_of_other_offsets_has_the_stored_ones(stored: Progress, message: str) -> None:
    with pytest.raises(ProgressError, match=message) as raised:
        decide(StoredProgress(stored), batch(at(5), at(9)))
    assert "penstock pipeline rebuild" in str(raised.value)


def test_half_a_batch_is_refused() -> None:
    with pytest.raises(ProgressError, match="some partitions are at the start"):
        decide(StoredProgress(at(9, 6)), batch(at(5, 6), at(9, 8)))


def test_one_source_of_two_is_not_enough() -> None:
    start = {**at(5), **at(1, source="bills")}
    end = {**at(9), **at(2, source="bills")}
    assert decide(StoredProgress(start), batch(start, end)) is Decision.APPLY
    assert decide(StoredProgress(end), batch(start, end)) is Decision.SKIP
    with pytest.raises(ProgressError):
        decide(StoredProgress({**end, **at(1, source="bills")}), batch(start, end))


def test_a_broker_without_topic_ids_is_trusted() -> None:
    bare = {"orders": SourceOffsets({TopicPartition("orders", 0): 5})}
    assert decide(StoredProgress(bare), batch(at(5), at(9))) is Decision.APPLY


@given(st.data())
def test_every_row_is_stored_once_whatever_is_run_again(data: st.DataObject) -> None:
    """A driver that is killed before or after the sink's commit, and may lose its checkpoint."""
    stored = StoredProgress(at(0))
    rows: list[int] = []
    checkpoint: tuple[str, list[Batch], int] = ("query-0", [], 0)  # query, planned, committed
    restarts = 0
    for _ in range(data.draw(st.integers(1, 25))):
        query, planned, committed = checkpoint
        if len(planned) == committed:
            first = planned[-1].end if planned else stored.progress
            begin = first["orders"].offsets[TopicPartition("orders", 0)]
            end = at(begin + data.draw(st.integers(0, 3)))
            planned = [*planned, Batch(query, len(planned), first, end)]
        now = planned[-1]
        if data.draw(st.booleans()) and decide(stored, now) is Decision.APPLY:
            partition = TopicPartition("orders", 0)
            first_row = now.start["orders"].offsets[partition]
            rows += range(first_row, now.end["orders"].offsets[partition])
            stored = StoredProgress(now.end, now.query_id, now.batch_id)
            if data.draw(st.booleans()):
                committed += 1
        checkpoint = query, planned, committed
        if data.draw(st.integers(0, 9)) == 0:
            restarts += 1
            checkpoint = f"query-{restarts}", [], 0
    assert rows == list(range(stored.progress["orders"].offsets[TopicPartition("orders", 0)]))
