"""Sensors and their stats: Kafka's numbers, a naive model, and many threads (P5)."""

import math
import threading
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.metrics import (
    Avg,
    Count,
    LinearBins,
    Max,
    MetricGroup,
    MetricName,
    Metrics,
    Percentile,
    Rate,
    Stat,
    Total,
    meter,
)
from tests.support.clock import ManualClock

NAN = math.nan
MEASURE = -1
STEPS = [
    (0, MEASURE), (0, 10), (500, 30), (500, MEASURE), (1000, 5), (1700, MEASURE), (2000, 100),
    (2500, 1), (2999, MEASURE), (3100, 7), (4400, 2), (4400, MEASURE), (6399, MEASURE),
    (6400, MEASURE), (9000, MEASURE), (9100, 50), (9100, MEASURE), (20000, 3), (20000, MEASURE),
    (21001, 4), (22500, 6), (23600, 8), (24000, MEASURE),
]  # fmt: skip
"""Values at times, and when to measure; two samples of one second."""

# What the classes of Kafka 4.3.1 measure for these steps.
MEASURED: dict[str, tuple[Stat, list[float]]] = {
    "rate": (Rate(), [0.0, 26.666666666666668, 26.47058823529412, 53.02651325662831, 45.833333333333336, 1.0005002501250624, 0.0, 0.0, 45.45454545454545, 3.0, 9.333333333333334]),  # noqa: E501
    "count-rate": (Rate(of_count=True), [0.0, 1.3333333333333333, 1.7647058823529411, 1.5007503751875937, 1.6666666666666667, 0.5002501250625312, 0.0, 0.0, 0.9090909090909091, 1.0, 1.3333333333333333]),  # noqa: E501
    "avg": (Avg(), [NAN, 20.0, 15.0, 35.333333333333336, 27.5, 2.0, NAN, NAN, 50.0, 3.0, 7.0]),
    "max": (Max(), [NAN, 30.0, 30.0, 100.0, 100.0, 2.0, NAN, NAN, 50.0, 3.0, 8.0]),
    "total": (Total(), [0, 40, 45, 146, 155, 155, 155, 155, 205, 208, 226]),
    "total-count": (Count(), [0, 2, 3, 5, 7, 7, 7, 7, 8, 9, 12]),
}  # fmt: skip

PERCENTS = (0, 1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9, 100)


def same(measured: list[float], expected: list[float]) -> bool:
    return measured == pytest.approx(expected, rel=1e-12, nan_ok=True)


def new_metrics(num_samples: int = 2, window_ms: int = 1000) -> tuple[Metrics, ManualClock]:
    clock = ManualClock(0)
    return Metrics(clock, num_samples, window_ms, tags={"client-id": "a"}), clock


@pytest.mark.parametrize("together", [False, True], ids=["alone", "together"])
def test_every_stat_measures_the_same_as_in_kafka(together: bool) -> None:
    measured: dict[str, list[float]] = {name: [] for name in MEASURED}
    groups = [list(MEASURED)] if together else [[name] for name in MEASURED]
    for group in groups:
        metrics, clock = new_metrics()
        sensor = metrics.sensor("all")
        for name in group:
            sensor.add(metrics.name(name, "g"), MEASURED[name][0])
        for time, value in STEPS:
            clock.advance(time - clock.monotonic_ms())
            if value == MEASURE:
                for metric, figure in metrics.snapshot().items():
                    measured[metric.name].append(figure)
            else:
                sensor.record(value)
    for name, (_, expected) in MEASURED.items():
        assert same(measured[name], expected), name


def test_percentiles_are_those_of_kafka() -> None:
    first = [0.0, 9.710526315789473, 49.296992481203006, 99.0, 249.86842105263156,
             499.093984962406, 749.2105263157895, 900.0, 900.0, 900.0, 900.0, math.inf]  # fmt: skip
    later = [446.8533834586466, 900.0, 48.24812030075188, 94.56766917293233, NAN, NAN]
    metrics, clock = new_metrics()
    sensor = metrics.sensor("latency")
    names = {percent: metrics.name(f"p{percent}", "g") for percent in PERCENTS}
    sensor.add_percentiles(names, max_value=900.0)
    values = [(number * 7919) % 1000 for number in range(1000)]
    for time, value in enumerate(values):
        sensor.record(value, time)
    clock.advance(1000)
    assert same([metrics.snapshot()[names[percent]] for percent in PERCENTS], first)
    for number in range(100):
        sensor.record(values[number] / 10, 1500 + number * 10)
    percentiles = []
    for time in (2600, 3200, 4600):
        clock.advance(time - clock.monotonic_ms())
        percentiles += [metrics.snapshot()[names[50]], metrics.snapshot()[names[95]]]
    assert same(percentiles, later)


@dataclass
class Window:
    """A window of the naive model, with all its values."""

    start: int
    last: int
    values: list[float] = field(default_factory=list)


class Model:
    """Keeps every value, and computes the statistics from them."""

    def __init__(self, num_samples: int, window_ms: int) -> None:
        self.num = num_samples
        self.size = window_ms
        self.windows: list[Window] = []  # oldest first; those out of use are not in it
        self.everything: list[float] = []

    def record(self, value: float, now: int) -> None:
        self.everything.append(value)
        if not self.windows or now - self.windows[-1].start >= self.size:
            self.windows.append(Window(now, now))
            del self.windows[: -self.num - 1]
        self.windows[-1].last = now
        self.windows[-1].values.append(value)

    def living(self, now: int) -> list[float]:
        for window in self.windows:
            if now - window.last >= self.num * self.size:
                window.start = window.last = now
                window.values = []
        return [value for window in self.windows for value in window.values]

    def rate(self, now: int) -> float:
        total = sum(self.living(now))
        if not self.windows:
            self.windows.append(Window(now, now))
        elapsed = now - min(window.start for window in self.windows)
        least = (self.num - 1) * self.size
        covered = elapsed if elapsed >= least else least + elapsed % self.size
        return total * 1000 / max(covered, 1)


actions = st.lists(
    st.tuples(st.integers(0, 250), st.one_of(st.none(), st.integers(-1000, 1000))), max_size=60
)


@given(actions=actions, num_samples=st.integers(1, 4), window_ms=st.integers(1, 300))
def test_a_sensor_agrees_with_a_naive_model(
    actions: list[tuple[int, int | None]], num_samples: int, window_ms: int
) -> None:
    metrics, clock = new_metrics(num_samples, window_ms)
    sensor = metrics.sensor("s")
    stats: dict[str, Stat] = {
        "rate": Rate(), "avg": Avg(), "max": Max(), "total": Total(), "all": Count(),
        "median": Percentile(50, LinearBins(4000, 1000.0)),
    }  # fmt: skip
    names = {key: metrics.name(key, "g") for key in stats}
    for key, stat in stats.items():
        sensor.add(names[key], stat)
    model = Model(num_samples, window_ms)
    for wait, value in [*actions, (0, None)]:
        clock.advance(wait)
        now = clock.monotonic_ms()
        if value is not None:
            sensor.record(value)
            model.record(value, now)
            continue
        snapshot = metrics.snapshot()
        living = sorted(model.living(now))
        expected = {
            "rate": model.rate(now),
            "avg": sum(living) / len(living) if living else NAN,
            "max": living[-1] if living else NAN,
            "total": sum(model.everything),
            "all": len(model.everything),
        }
        measured = {key: snapshot[names[key]] for key in expected}
        assert measured == pytest.approx(expected, nan_ok=True)
        median = snapshot[names["median"]]
        if living:
            true_median = max(living[len(living) // 2], 0)
            assert median <= true_median + 1e-9
            assert true_median - median <= 1  # the widest bucket is half as wide
        else:
            assert math.isnan(median)


def test_a_name_has_the_tags_of_the_client_and_its_own() -> None:
    metrics, _ = new_metrics()
    name = metrics.name("byte-rate", "producer-topic-metrics", "Bytes.", {"topic": "t"})
    assert name.tags == {"client-id": "a", "topic": "t"}
    assert name == MetricName(
        "byte-rate", "producer-topic-metrics", "other words", {"topic": "t", "client-id": "a"}
    )
    assert hash(name) == hash(MetricName(name.name, name.group, "", name.tags))
    assert name != MetricName(name.name, name.group, name.description, {})


def test_a_name_is_used_once() -> None:
    metrics, _ = new_metrics()
    sensor = metrics.sensor("s")
    name = metrics.name("a", "g")
    sensor.add(name, Total())
    sensor.add(name, Total())
    assert metrics.sensor("s") is sensor
    with pytest.raises(ValueError, match="g:a"):
        metrics.sensor("other").add(name, Total())
    with pytest.raises(ValueError, match="g:a"):
        metrics.gauge(name, lambda: 1.0)


def test_a_meter_counts_events_or_adds_them_up() -> None:
    metrics, _ = new_metrics()
    names = [metrics.name(f"{name}-{kind}", "g") for name in "ab" for kind in ("rate", "total")]
    sensor = MetricGroup(metrics, "g").sensor(
        "s", {**meter("a", "Bytes"), **meter("b", "Sends", of_count=True)}
    )
    sensor.record(300)
    sensor.record(100)
    assert [metrics.snapshot()[name] for name in names] == [400.0, 400.0, 2.0, 2.0]


def test_histograms_reject_invalid_bins() -> None:
    with pytest.raises(ValueError, match="2 bins"):
        LinearBins(1, 10.0)
    with pytest.raises(ValueError, match="must be above 0"):
        LinearBins(10, 0.0)
    metrics, _ = new_metrics()
    sensor = metrics.sensor("s")
    sensor.add(metrics.name("a", "g"), Percentile(50, LinearBins(10, 10.0)))
    with pytest.raises(ValueError, match="same LinearBins"):
        sensor.add(metrics.name("b", "g"), Percentile(50, LinearBins(10, 10.0)))


def test_no_value_is_lost_when_many_threads_record_and_one_reads() -> None:
    metrics, clock = new_metrics(window_ms=1)
    sensor = metrics.sensor("s")
    names = [metrics.name(key, "g") for key in ("total", "count", "max")]
    stats: list[Stat] = [Total(), Count(), Max()]
    for name, stat in zip(names, stats, strict=True):
        sensor.add(name, stat)

    def record() -> None:
        for number in range(2000):
            sensor.record(number)
            if number % 100 == 0:
                clock.advance(1)

    threads = [threading.Thread(target=record) for _ in range(4)]
    for thread in threads:
        thread.start()
    totals = []
    while any(thread.is_alive() for thread in threads):
        totals.append(metrics.snapshot()[names[1]])
    for thread in threads:
        thread.join()
    assert totals == sorted(totals)
    assert metrics.snapshot()[names[0]] == 4 * sum(range(2000))
    assert metrics.snapshot()[names[1]] == 8000
