"""The arithmetic of quotas (X4).

`SampledRate` and `TokenBucket` were compared with Rate and TokenBucket of Kafka 4.3.1 on random
histories; here are cases that can be worked out by hand.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.security.quota_rate import (
    MAX_THROTTLE_MS,
    SampledRate,
    TokenBucket,
    round_half_up,
)

START = 1_700_000_000_000


def test_a_burst_counts_over_the_full_windows() -> None:
    """6000 in 10 s are 600 a second: (600 - 500) / 500 of 10 s to wait."""
    rate = SampledRate(11, 1000)
    rate.record(5000, START)
    assert rate.throttle_ms(500, START) == 0
    rate.record(1000, START)
    assert rate.window_ms(START) == 10_000
    assert rate.throttle_ms(500, START) == 2000


@pytest.mark.parametrize(
    ("after_ms", "window_ms", "throttle_ms"),
    [
        (1, 10_001, 1999),
        (999, 10_999, 1001),
        (1000, 10_000, 2000),
        (2000, 10_000, 2000),
        (2500, 10_500, 1500),
        (10_000, 10_000, 2000),
        (10_999, 10_999, 1001),
        (11_000, 10_000, 0),
    ],
)
def test_a_burst_expires_with_its_windows(after_ms: int, window_ms: int, throttle_ms: int) -> None:
    """Missing windows are added to the elapsed time until the burst has expired."""
    rate = SampledRate(11, 1000)
    rate.record(6000, START)
    assert rate.throttle_ms(500, START + after_ms) == throttle_ms
    assert rate.window_ms(START + after_ms) == window_ms


def test_a_steady_rate_is_hardly_throttled() -> None:
    rate = SampledRate(11, 1000)
    for second in range(60):
        rate.record(500, START + second * 1000)
        assert rate.throttle_ms(500, START + second * 1000) <= 1000
    assert rate.throttle_ms(550, START + 59_000) == 0


def test_a_window_ends_on_the_millisecond() -> None:
    """An amount recorded a second after the first one is in a separate window."""
    rate = SampledRate(2, 1000)
    rate.record(10, START)
    rate.record(10, START + 1000)
    assert rate.throttle_ms(5, START + 1999) == 2001
    assert rate.throttle_ms(5, START + 2000) == 1000
    assert rate.window_ms(START + 2000) == 1000


def test_a_single_window() -> None:
    rate = SampledRate(1, 1000)
    rate.record(1, START)
    assert rate.window_ms(START) == 1
    assert rate.throttle_ms(10, START) == 99


def test_the_throttle_time_is_limited_to_int32() -> None:
    rate = SampledRate(11, 1000)
    rate.record(1e18, START)
    assert rate.throttle_ms(1, START) == MAX_THROTTLE_MS == 0x7FFF_FFFF
    bucket = TokenBucket(1, 11, 1000, START)
    bucket.take(1e18, START)
    assert bucket.throttle_ms(START) == MAX_THROTTLE_MS


@given(
    st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 10_000)), max_size=40),
    st.integers(1, 10_000),
)
def test_a_reverted_amount_has_no_effect(steps: list[tuple[int, int]], amount: int) -> None:
    reverted, unchanged = SampledRate(11, 1000), SampledRate(11, 1000)
    now = START
    for pause, size in steps:
        now += pause
        for rate in (reverted, unchanged):
            rate.record(size, now)
    reverted.record(amount, now)
    reverted.record(-amount, now)
    unchanged.record(0, now)
    assert reverted.throttle_ms(100, now) == unchanged.throttle_ms(100, now)


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 10_000)), min_size=1, max_size=60))
def test_no_throttling_after_all_windows_have_passed(steps: list[tuple[int, int]]) -> None:
    rate = SampledRate(11, 1000)
    now = START
    for pause, size in steps:
        now += pause
        rate.record(size, now)
        rate.throttle_ms(1000, now)
    assert rate.throttle_ms(1000, now + 11_000) == 0


def test_a_bucket_allows_a_burst_and_then_its_rate() -> None:
    """5 a second over 100 windows of a second hold 500: 560 leave 60 to wait for, 12 seconds."""
    bucket = TokenBucket(5, 100, 1000, START)
    assert bucket.tokens(START) == bucket.burst == 500
    bucket.take(560, START)
    assert bucket.throttle_ms(START) == 12_000
    assert bucket.throttle_ms(START + 5000) == 7000
    assert bucket.throttle_ms(START + 12_000) == 0
    assert bucket.tokens(START + 12_000) == 0
    assert bucket.tokens(START + 12_200) == 1
    assert bucket.tokens(START + 1_000_000) == 500


def test_a_bucket_keeps_its_tokens_when_its_rate_changes() -> None:
    bucket = TokenBucket(5, 100, 1000, START)
    bucket.take(560, START)
    bucket.rate = 10
    assert bucket.throttle_ms(START) == 6000
    bucket.rate = 1
    assert bucket.tokens(START + 10**6) == 100


def test_rounding_is_that_of_java() -> None:
    assert [round_half_up(x) for x in (0.4, 0.5, 1.5, 2.5, -0.5)] == [0, 1, 2, 3, 0]
