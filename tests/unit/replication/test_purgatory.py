"""Delayed requests: each completes exactly once, whatever ends its wait (C1, P2)."""

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ErrorCode
from penstock.replication.purgatory import (
    DelayedFetch,
    DelayedOperation,
    OffsetWait,
    OffsetWatchers,
    Watchers,
)


class Completions:
    """Counts how often a fetch was completed."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def delayed_fetch(missing_bytes: int, *watchers: Watchers) -> tuple[DelayedFetch, Completions]:
    completions = Completions()
    fetch = DelayedFetch(missing_bytes, completions, lambda: missing_bytes)
    fetch.watch(watchers)
    return fetch, completions


def test_enough_bytes_end_the_wait() -> None:
    watchers = Watchers()
    _, completions = delayed_fetch(100, watchers)
    watchers.add_bytes(60)
    assert (completions.count, len(watchers)) == (0, 1)
    watchers.add_bytes(40)
    assert (completions.count, len(watchers)) == (1, 0)


def test_bytes_of_all_partitions_count() -> None:
    first, second = Watchers(), Watchers()
    _, completions = delayed_fetch(100, first, second)
    first.add_bytes(60)
    second.add_bytes(60)
    assert completions.count == 1
    assert not first
    assert not second


def test_a_fetch_completes_once() -> None:
    watchers = Watchers()
    fetch, completions = delayed_fetch(10, watchers)
    fetch.complete()
    fetch.complete()
    watchers.add_bytes(100)
    fetch.add_bytes(100)
    watchers.complete_all()
    assert completions.count == 1


def test_a_cancelled_fetch_never_completes() -> None:
    first, second = Watchers(), Watchers()
    fetch, completions = delayed_fetch(10, first, second)
    fetch.cancel()
    first.add_bytes(100)
    fetch.complete()
    assert completions.count == 0
    assert not first
    assert not second


def test_the_removal_of_a_partition_completes_all_its_fetches() -> None:
    removed, remaining = Watchers(), Watchers()
    _, first = delayed_fetch(10, removed)
    _, second = delayed_fetch(10, removed, remaining)
    _, third = delayed_fetch(10, remaining)
    removed.complete_all()
    assert (first.count, second.count, third.count) == (1, 1, 0)
    assert (len(removed), len(remaining)) == (0, 1)


def test_a_completion_may_start_another_wait_for_the_same_partition() -> None:
    """The client sends its next fetch at once; the new wait does not end with the old one."""
    watchers = Watchers()
    completed: list[str] = []

    def complete_first() -> None:
        completed.append("first")
        DelayedFetch(10, lambda: completed.append("second"), lambda: 10).watch([watchers])

    DelayedFetch(10, complete_first, lambda: 10).watch([watchers])
    watchers.add_bytes(10)
    assert completed == ["first"]
    assert len(watchers) == 1
    watchers.add_bytes(10)
    assert completed == ["first", "second"]


@given(
    st.lists(st.tuples(st.integers(1, 50), st.sets(st.integers(0, 3), min_size=1)), max_size=8),
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 30)), max_size=20),
)
def test_fetches_complete_exactly_when_their_bytes_are_there(
    requests: list[tuple[int, set[int]]], appends: list[tuple[int, int]]
) -> None:
    partitions = [Watchers() for _ in range(4)]
    fetches = [
        delayed_fetch(missing, *(partitions[i] for i in indexes)) for missing, indexes in requests
    ]
    readable = [0] * len(requests)
    for index, size in appends:
        partitions[index].add_bytes(size)
        for number, (_, indexes) in enumerate(requests):
            readable[number] += size if index in indexes else 0
        for number, (missing, indexes) in enumerate(requests):
            is_complete = readable[number] >= missing
            fetch, completions = fetches[number]
            assert completions.count == is_complete
            for partition in indexes:
                assert (fetch in partitions[partition]) != is_complete


def test_a_recount_replaces_the_number_of_missing_bytes() -> None:
    """Bytes that were appended earlier can become readable, by the end of a transaction."""
    watchers = Watchers()
    completions = Completions()
    missing = 5
    DelayedFetch(100, completions, lambda: missing).watch([watchers])
    watchers.recount()
    assert completions.count == 0
    watchers.add_bytes(5)
    assert completions.count == 1
    DelayedFetch(100, completions, lambda: missing).watch([watchers])
    missing = 0
    watchers.recount()
    assert completions.count == 2
    assert not watchers


# --- waits for offsets


def test_waits_complete_in_the_order_of_their_offsets() -> None:
    watchers = OffsetWatchers()
    results: list[tuple[int, ErrorCode]] = []

    def add(offset: int) -> None:
        watchers.add(offset, lambda code: results.append((offset, code)))

    for offset in (30, 10, 20, 20):
        add(offset)
    watchers.reach(9)
    assert results == []
    watchers.reach(20)
    assert results == [(10, ErrorCode.NONE), (20, ErrorCode.NONE), (20, ErrorCode.NONE)]
    watchers.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert results[3:] == [(30, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    assert not watchers


def test_a_wait_that_is_discarded_gets_no_result() -> None:
    watchers = OffsetWatchers()
    results: list[str] = []
    first = watchers.add(10, lambda _: results.append("first"))
    second = watchers.add(10, lambda _: results.append("second"))
    watchers.discard(first)
    watchers.discard(first)
    assert len(watchers) == 1
    watchers.reach(10)
    watchers.discard(second)
    assert results == ["second"]


class Operation:
    """A delayed operation on two partitions, and what has happened to it."""

    def __init__(self) -> None:
        self.partitions = (OffsetWatchers(), OffsetWatchers())
        self.results: dict[int, ErrorCode] = {}
        self.completions = Completions()
        self.delayed = DelayedOperation(self.completions)
        for index, watchers in enumerate(self.partitions):
            self.delayed.add(watchers, 10, partial(self.results.__setitem__, index))


def test_an_operation_completes_when_all_its_partitions_have() -> None:
    operation = Operation()
    operation.partitions[0].reach(10)
    operation.delayed.start()
    assert operation.completions.count == 0
    operation.partitions[1].reach(15, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    assert operation.completions.count == 1
    assert operation.results == {0: ErrorCode.NONE, 1: ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}
    operation.delayed.expire()
    assert operation.completions.count == 1


def test_an_operation_is_not_complete_before_it_starts() -> None:
    operation = Operation()
    for watchers in operation.partitions:
        watchers.reach(10)
    assert operation.completions.count == 0
    operation.delayed.start()
    assert operation.completions.count == 1


def test_only_partitions_that_still_wait_time_out() -> None:
    operation = Operation()
    operation.delayed.start()
    operation.partitions[1].reach(10)
    operation.delayed.expire()
    assert operation.completions.count == 1
    assert operation.results == {0: ErrorCode.REQUEST_TIMED_OUT, 1: ErrorCode.NONE}
    assert not any(operation.partitions), "nothing waits any more"


def test_a_cancelled_operation_has_no_results() -> None:
    operation = Operation()
    operation.delayed.start()
    operation.delayed.cancel()
    operation.partitions[0].fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert not operation.results
    assert operation.completions.count == 0
    assert not any(operation.partitions)


@given(st.lists(st.tuples(st.sampled_from(["add", "reach", "discard"]), st.integers(0, 20))))
def test_each_wait_completes_exactly_when_its_offset_is_reached(
    steps: list[tuple[str, int]],
) -> None:
    watchers = OffsetWatchers()
    waits: dict[OffsetWait, list[ErrorCode]] = {}
    for step, offset in steps:
        if step == "add":
            results: list[ErrorCode] = []
            waits[watchers.add(offset, results.append)] = results
        elif step == "reach":
            expected = [wait for wait in waits if wait.offset <= offset]
            watchers.reach(offset)
            assert [wait for wait, results in waits.items() if results] == expected
            for wait in expected:
                assert waits.pop(wait) == [ErrorCode.NONE]
        elif waits:
            wait = next(iter(waits))
            watchers.discard(wait)
            assert not waits.pop(wait)
        assert len(watchers) == len(waits)
