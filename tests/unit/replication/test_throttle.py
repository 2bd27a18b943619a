"""Throttled replication: which replicas are throttled, and when the rate is exceeded."""

from penstock.replication.throttle import UNLIMITED_RATE, ReplicationQuota, throttled_partitions


def test_replicas_are_listed_as_partition_and_broker() -> None:
    assert throttled_partitions(("0:1", "1:2", "3:1"), 1) == {0, 3}
    assert throttled_partitions((), 1) == frozenset()


def test_a_star_throttles_every_partition_of_the_topic() -> None:
    assert 77 in throttled_partitions(("*",), 1)


def test_the_first_window_counts_as_a_whole_one() -> None:
    quota = ReplicationQuota(window_num=11, window_size_ms=1000, rate=500)
    quota.record(500, 10_000)
    assert quota.measured_rate(10_001) == 500
    assert not quota.is_exceeded(10_001)
    quota.record(1, 10_002)
    assert quota.is_exceeded(10_003)


def test_the_rate_falls_as_time_passes() -> None:
    quota = ReplicationQuota(rate=100)
    quota.record(1000, 0)
    assert quota.is_exceeded(5_000)
    assert quota.measured_rate(5_000) == 200
    assert not quota.is_exceeded(10_000)


def test_traffic_older_than_all_windows_is_forgotten() -> None:
    quota = ReplicationQuota(window_num=2, window_size_ms=1000, rate=100)
    quota.record(10_000, 0)
    assert quota.is_exceeded(1_999)
    assert quota.measured_rate(2_000) == 0.0
    quota.record(50, 2_100)
    assert quota.measured_rate(2_100) == 50


def test_a_constant_rate_is_measured_over_the_last_windows() -> None:
    quota = ReplicationQuota(window_num=2, window_size_ms=1000)
    for tick in range(100):
        quota.record(10, tick * 100)
    assert 90 <= quota.measured_rate(9_900) <= 110


def test_without_a_limit_nothing_is_exceeded() -> None:
    quota = ReplicationQuota(rate=UNLIMITED_RATE)
    quota.record(2**40, 0)
    assert not quota.is_exceeded(1)
