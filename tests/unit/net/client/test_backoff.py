"""Waits double up to their limit, and are spread."""

from penstock.net.client.backoff import Backoff


def test_delays_double_up_to_the_limit() -> None:
    backoff = Backoff(100, 1000, jitter=0)
    assert [backoff.delay_ms(n) for n in range(6)] == [100, 200, 400, 800, 1000, 1000]
    assert backoff.delay_ms(10_000) == 1000


def test_jitter_is_a_fifth_each_way_and_never_exceeds_the_limit() -> None:
    low = Backoff(100, 1000, rng=lambda: 0.0)
    high = Backoff(100, 1000, rng=lambda: 0.9999)
    assert (low.delay_ms(0), high.delay_ms(0)) == (80, 119)
    assert high.delay_ms(9) == 1000


def test_a_delay_of_zero_stays_zero() -> None:
    assert Backoff(0, 0).delay_ms(5) == 0


def test_the_limit_applies_to_the_first_delay_too() -> None:
    assert Backoff(500, 100, jitter=0).delay_ms(0) == 100
