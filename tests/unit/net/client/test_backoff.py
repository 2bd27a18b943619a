"""Waits double up to their limit, and are spread."""

from penstock.net.client.backoff import Backoff


def test_waits_double_up_to_the_limit() -> None:
    backoff = Backoff(100, 1000, jitter=0)
    assert [backoff.delay_ms(n) for n in range(6)] == [100, 200, 400, 800, 1000, 1000]
    assert backoff.delay_ms(10_000) == 1000


def test_chance_spreads_a_wait_by_a_fifth_each_way_and_never_beyond_the_limit() -> None:
    low = Backoff(100, 1000, rng=lambda: 0.0)
    high = Backoff(100, 1000, rng=lambda: 0.9999)
    assert (low.delay_ms(0), high.delay_ms(0)) == (80, 119)
    assert high.delay_ms(9) == 1000


def test_no_wait_where_none_is_wanted() -> None:
    assert Backoff(0, 0).delay_ms(5) == 0


def test_the_limit_holds_for_the_first_wait_too() -> None:
    assert Backoff(500, 100, jitter=0).delay_ms(0) == 100
