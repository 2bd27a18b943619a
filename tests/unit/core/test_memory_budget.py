"""The memory budget: limits of each kind, queues, and a count that returns to zero."""

import gc
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.memory_budget import (
    MEDIUM,
    SMALL,
    MemoryBudget,
    MemoryKind,
    Reservation,
    kind_of_request,
)

MIB = 2**20
TOTAL = 64 * MIB


def test_requests_have_their_kind_by_size() -> None:
    sizes = [1, SMALL, SMALL + 1, MEDIUM, MEDIUM + 1]
    assert [kind_of_request(size).name for size in sizes] == [
        "SMALL",
        "SMALL",
        "MEDIUM",
        "MEDIUM",
        "LARGE",
    ]


def test_large_requests_wait_in_order_and_leave_room_for_others() -> None:
    budget = MemoryBudget(TOTAL)
    granted: list[int] = []
    large = [
        budget.reserve(8 * MIB, MemoryKind.LARGE, lambda index=index: granted.append(index))  # type: ignore[misc]
        for index in range(6)
    ]
    assert [reservation.is_granted for reservation in large] == [True] * 3 + [False] * 3
    assert (budget.used, budget.waiting) == (24 * MIB, 3)
    for kind in (MemoryKind.SMALL, MemoryKind.MEDIUM, MemoryKind.LOGIN, MemoryKind.WORK):
        reservation = budget.reserve(2 * MIB, kind)
        assert reservation.is_granted
        reservation.release()
    large[4].release()
    large[0].release()
    large[1].release()
    assert granted == [3, 5]
    for reservation in large:
        reservation.release()
    assert (budget.used, budget.waiting) == (0, 0)


def test_strangers_share_a_small_part() -> None:
    budget = MemoryBudget(TOTAL)
    strangers = [budget.reserve(MIB // 2, MemoryKind.LOGIN) for _ in range(20)]
    assert sum(reservation.is_granted for reservation in strangers) == 8
    assert budget.used == TOTAL // 16


def test_one_request_may_exceed_the_limit_of_large_ones_alone() -> None:
    budget = MemoryBudget(TOTAL)
    small = budget.reserve(SMALL, MemoryKind.SMALL)
    first = budget.reserve(budget.largest_request - SMALL, MemoryKind.LARGE)
    second = budget.reserve(5 * MIB, MemoryKind.LARGE)
    assert (first.is_granted, second.is_granted) == (True, False)
    first.release()
    assert second.is_granted
    small.release()
    second.release()


def test_work_beyond_its_limit_runs_alone() -> None:
    budget = MemoryBudget(TOTAL)
    first = budget.reserve(TOTAL, MemoryKind.WORK)
    second = budget.reserve(1, MemoryKind.WORK)
    assert (first.is_granted, second.is_granted) == (True, False)
    first.release()
    assert second.is_granted


def test_queued_max_request_bytes_stops_requests_but_not_work() -> None:
    """As in Kafka, a request is received if there is any room at all."""
    budget = MemoryBudget(TOTAL, max_request_bytes=MIB)
    first = budget.reserve(MIB - 1, MemoryKind.MEDIUM)
    second = budget.reserve(2 * MIB, MemoryKind.MEDIUM)
    third = budget.reserve(SMALL, MemoryKind.SMALL)
    assert [item.is_granted for item in (first, second, third)] == [True, True, False]
    assert budget.reserve(MIB, MemoryKind.WORK).is_granted
    first.release()
    assert not third.is_granted
    second.release()
    assert third.is_granted


def test_pressure_is_reported_when_it_begins_and_ends() -> None:
    reports: list[bool] = []
    budget = MemoryBudget(TOTAL, on_pressure=reports.append)
    budget.add(budget.largest_request // 2)
    budget.add(MIB)
    budget.subtract(MIB)
    budget.subtract(budget.largest_request // 2)
    assert reports == [True, False]
    assert budget.used == 0


def test_memory_of_work_that_ended_without_a_release_is_collected() -> None:
    budget = MemoryBudget(TOTAL)
    lost: Reservation | None = budget.reserve(20 * MIB, MemoryKind.LARGE)
    waiting = budget.reserve(20 * MIB, MemoryKind.LARGE)
    del lost
    gc.collect()
    assert not waiting.is_granted
    budget.collect()
    assert waiting.is_granted
    waiting.release()
    assert (budget.used, budget.waiting) == (0, 0)


@pytest.mark.parametrize("max_request_bytes", [0, 4 * MIB])
@given(seed=st.integers(0, 2**32))
def test_random_histories_stay_within_the_limits_and_end_at_zero(
    max_request_bytes: int, seed: int
) -> None:
    random = Random(seed)
    budget = MemoryBudget(TOTAL, max_request_bytes)
    held: list[Reservation] = []
    forced = 0
    for _ in range(200):
        action = random.randrange(8)
        if action < 4:
            kind = random.choice(list(MemoryKind))
            size = random.choice([1, SMALL, MIB, MEDIUM, 10 * MIB, 30 * MIB])
            if kind is MemoryKind.LOGIN:
                size = min(size, MIB // 2)
            held.append(budget.reserve(size, kind))
        elif action < 6 and held:
            reservation = held.pop(random.randrange(len(held)))
            reservation.release()
            reservation.release()
        elif action == 6 and held:
            reservation = held.pop(random.randrange(len(held)))
            if not reservation.is_granted:
                reservation.release()
            del reservation
            budget.collect()
        elif forced:
            budget.subtract(MIB)
            forced -= 1
        else:
            budget.add(MIB)
            forced += 1
        granted = sum(item.size for item in held if item.is_granted)
        waiting = sum(not item.is_granted for item in held)
        assert budget.used == granted + forced * MIB
        # Work and decoded requests of 30 MiB run alone; what is added is in use already.
        assert budget.used <= TOTAL + 36 * MIB + forced * MIB
        assert budget.waiting == waiting
    for item in held:
        item.release()
    for _ in range(forced):
        budget.subtract(MIB)
    assert (budget.used, budget.waiting) == (0, 0)
