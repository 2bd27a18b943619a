"""Percentiles and rates of `penstock perf`."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.records.measures import Latencies, Pace, latency_fields, rates


@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(1, 5)), min_size=1))
def test_percentiles_are_those_of_all_records(times: list[tuple[float, int]]) -> None:
    latencies = Latencies()
    every: list[float] = []
    for time, count in times:
        latencies.add(time, count)
        every += [time] * count
    every.sort()
    for percent, result in latencies.percentiles().items():
        assert result == every[math.ceil(len(every) * percent / 100) - 1]
    assert latencies.records == len(every)
    assert latencies.largest() == every[-1]
    assert latencies.average() == pytest.approx(sum(every) / len(every))


def test_nothing_measured() -> None:
    assert set(latency_fields(Latencies()).values()) == {None}


def test_names() -> None:
    latencies = Latencies()
    latencies.add(2.0, 10)
    names = ["average", "max", "p50", "p95", "p99", "p99.9"]
    assert latency_fields(latencies) == {f"latency_ms_{name}": 2.0 for name in names}


def test_rates() -> None:
    assert rates(1000, 2_000_000, 2.0) == {"records_per_second": 500.0, "mb_per_second": 1.0}


def test_a_pace() -> None:
    pace = Pace(1000, started=5.0)
    assert pace.wait_s(100, now=5.0) == pytest.approx(0.1)
    assert pace.wait_s(100, now=6.0) == 0.0
    assert pace.bulk(500) == 10
    assert Pace(10, 0.0).bulk(500) == 1


def test_no_pace() -> None:
    assert Pace(None, 0.0).wait_s(10**9, 0.0) == 0.0
    assert Pace(None, 0.0).bulk(500) == 500
