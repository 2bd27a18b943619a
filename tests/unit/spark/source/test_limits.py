"""The size of micro-batches (D1)."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.ids import TopicPartition
from penstock.spark.source.limits import Delay, limit_ends

A, B, C = (TopicPartition("t", number) for number in range(3))


def test_the_limit_is_divided_in_proportion_to_unread_records() -> None:
    begin, end = {A: 0, B: 100, C: 7}, {A: 300, B: 200, C: 7}
    assert limit_ends(100, begin, end) == {A: 75, B: 125, C: 7}


def test_a_small_partition_does_not_starve() -> None:
    assert limit_ends(10, {A: 0, B: 0}, {A: 1_000, B: 1}) == {A: 9, B: 1}


def test_a_partition_without_a_start_is_not_limited() -> None:
    """The partition is missing, which the check for losses reports."""
    assert limit_ends(1, {A: 0}, {A: 10, B: 20}) == {A: 1, B: 20}


partition_logs = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 5)),
    st.tuples(st.integers(0, 2**40), st.integers(0, 2**20)),
    min_size=1,
)


@given(partition_logs, st.integers(1, 2**21))
def test_ends_respect_the_limit_and_always_advance(
    partitions: dict[TopicPartition, tuple[int, int]], limit: int
) -> None:
    begin = {tp: start for tp, (start, _) in partitions.items()}
    end = {tp: start + size for tp, (start, size) in partitions.items()}
    ends = limit_ends(limit, begin, end)
    total = sum(size for _, size in partitions.values())
    small = sum(0 < limit * size < total for _, size in partitions.values())
    assert sum(ends.values()) - sum(begin.values()) <= limit + small
    for tp, (start, size) in partitions.items():
        assert start <= ends[tp] <= end[tp]
        assert ends[tp] > start or not size


@given(partition_logs, st.integers(1, 1_000))
def test_successive_batches_read_all_records(
    partitions: dict[TopicPartition, tuple[int, int]], limit: int
) -> None:
    begin = {tp: start for tp, (start, _) in partitions.items()}
    end = {tp: start + size % 3_000 for tp, (start, size) in partitions.items()}
    batches = 0
    while begin != end:
        begin = limit_ends(limit, begin, end)
        batches += 1
        assert batches <= 36_000 // limit * 12 + 12


def test_a_batch_waits_for_enough_records_up_to_a_maximum_delay() -> None:
    delay = Delay(at_least=10, max_delay_ms=1_000)
    assert not delay.should_wait({A: 0}, {A: 1}, now_ms=5_000)
    assert delay.should_wait({A: 1}, {A: 5}, now_ms=5_001)
    assert delay.should_wait({A: 1}, {A: 10}, now_ms=5_999)
    assert not delay.should_wait({A: 1}, {A: 11}, now_ms=5_999)
    assert delay.should_wait({A: 11}, {A: 12}, now_ms=6_998)
    assert not delay.should_wait({A: 11}, {A: 12}, now_ms=6_999)
