"""Fetches that wait: each is answered once, whatever ends its wait (C1)."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.replication.purgatory import Waiter, WatchList


class Answers:
    """Counts how often a waiter was answered."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def waiter_of(missing: int, *lists: WatchList) -> tuple[Waiter, Answers]:
    answers = Answers()
    waiter = Waiter(missing, answers)
    waiter.watch(lists)
    return waiter, answers


def test_enough_bytes_end_the_wait() -> None:
    one = WatchList()
    _, answers = waiter_of(100, one)
    one.arrived(60)
    assert (answers.count, len(one)) == (0, 1)
    one.arrived(40)
    assert (answers.count, len(one)) == (1, 0)


def test_bytes_of_all_partitions_count() -> None:
    one, two = WatchList(), WatchList()
    _, answers = waiter_of(100, one, two)
    one.arrived(60)
    two.arrived(60)
    assert answers.count == 1
    assert not one
    assert not two


def test_it_is_answered_once() -> None:
    one = WatchList()
    waiter, answers = waiter_of(10, one)
    waiter.finish()
    waiter.finish()
    one.arrived(100)
    waiter.arrived(100)
    one.finish_all()
    assert answers.count == 1


def test_a_wait_that_is_abandoned_has_no_answer() -> None:
    one, two = WatchList(), WatchList()
    waiter, answers = waiter_of(10, one, two)
    waiter.abandon()
    one.arrived(100)
    waiter.finish()
    assert answers.count == 0
    assert not one
    assert not two


def test_a_partition_that_goes_away_ends_all_waits_for_it() -> None:
    one, two = WatchList(), WatchList()
    _, first = waiter_of(10, one)
    _, second = waiter_of(10, one, two)
    _, third = waiter_of(10, two)
    one.finish_all()
    assert (first.count, second.count, third.count) == (1, 1, 0)
    assert (len(one), len(two)) == (0, 1)


def test_an_answer_may_start_another_wait_for_the_same_partition() -> None:
    """The client that is answered asks again at once; the new wait is not ended with the old."""
    one = WatchList()
    answered: list[str] = []

    def again() -> None:
        answered.append("first")
        Waiter(10, lambda: answered.append("second")).watch([one])

    Waiter(10, again).watch([one])
    one.arrived(10)
    assert answered == ["first"]
    assert len(one) == 1
    one.arrived(10)
    assert answered == ["first", "second"]


@given(
    st.lists(st.tuples(st.integers(1, 50), st.sets(st.integers(0, 3), min_size=1)), max_size=8),
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 30)), max_size=20),
)
def test_waiters_end_exactly_when_their_bytes_have_come(
    wanted: list[tuple[int, set[int]]], arrivals: list[tuple[int, int]]
) -> None:
    lists = [WatchList() for _ in range(4)]
    made = [waiter_of(missing, *(lists[i] for i in indexes)) for missing, indexes in wanted]
    come = [0] * len(wanted)
    for index, size in arrivals:
        lists[index].arrived(size)
        for number, (_, indexes) in enumerate(wanted):
            come[number] += size if index in indexes else 0
        for number, (missing, indexes) in enumerate(wanted):
            ended = come[number] >= missing
            assert made[number][1].count == ended
            for each in indexes:
                assert (made[number][0] in lists[each]) != ended
