"""Delayed fetches: each completes exactly once, whatever ends its wait (C1)."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.replication.purgatory import DelayedFetch, Watchers


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
