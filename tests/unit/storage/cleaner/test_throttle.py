"""The rate of the cleaner (S5: throttled)."""

from math import inf

import pytest

from penstock.storage.cleaner.throttle import BURST_MS, CleanerThrottle
from tests.support.clock import ManualClock


def test_without_a_limit_there_is_no_delay() -> None:
    throttle = CleanerThrottle(inf, ManualClock())
    assert throttle.spend(10**12) == 0


def test_the_delay_matches_the_bytes() -> None:
    clock = ManualClock()
    throttle = CleanerThrottle(1000, clock)
    assert throttle.spend(500) == 500
    clock.advance(500)
    assert throttle.spend(100) == 100
    # A caller that does not wait has a longer delay the next time.
    assert throttle.spend(100) == 200


def test_idle_time_is_worth_one_burst_and_no_more() -> None:
    clock = ManualClock()
    throttle = CleanerThrottle(1000, clock)
    clock.advance(3_600_000)
    assert throttle.spend(BURST_MS) == 0
    assert throttle.spend(50) == 50


@pytest.mark.parametrize("rate", [0, -1, float("nan")])
def test_a_rate_must_be_above_0(rate: float) -> None:
    with pytest.raises(ValueError, match=r"log\.cleaner\.io\.max\.bytes\.per\.second"):
        CleanerThrottle(rate, ManualClock())
