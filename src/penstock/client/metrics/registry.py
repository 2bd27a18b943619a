"""Sensors, and the registry of all metrics of a client."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Final, TypeAlias

from penstock.client.metrics.histogram import LinearBins
from penstock.client.metrics.stats import Avg, Count, Max, Percentile, Rate, Stat, Total
from penstock.client.metrics.windows import Windows
from penstock.core.clock import Clock

_PERCENTILE_BINS: Final = 400


@dataclass(frozen=True, slots=True)
class MetricName:
    """The identity of a metric: name, group and tags. The description is not compared."""

    name: str
    group: str
    description: str = field(default="", compare=False)
    tags: Mapping[str, str] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.name, self.group, frozenset(self.tags.items())))


class Sensor:
    """Records values, from any thread. Add all stats before the first value."""

    __slots__ = ("_lock", "_metric_names", "_now_ms", "_registry", "_windows", "name")

    def __init__(self, registry: "Metrics", name: str) -> None:
        """Use `Metrics.sensor` instead."""
        self.name = name
        self._metric_names: set[MetricName] = set()
        self._registry = registry
        self._now_ms = registry.clock.monotonic_ms
        self._lock = Lock()
        self._windows = Windows(registry.num_samples, registry.sample_window_ms)

    def record(self, value: float = 1.0, now_ms: int | None = None) -> None:
        """Records a value. Pass the monotonic time as `now_ms` if it is known already."""
        if now_ms is None:
            now_ms = self._now_ms()
        with self._lock:
            self._windows.record(value, now_ms)

    def add(self, name: MetricName, stat: Stat) -> None:
        """Registers a metric of this sensor's values. Does nothing if this sensor has it already.

        Raises ValueError if another sensor or a gauge has a metric of that name.
        """

        def measure(now_ms: int) -> float:
            with self._lock:
                return stat.measure(self._windows, now_ms)

        with self._lock:
            if name in self._metric_names:
                return
            if stat.bins is not None:
                self._windows.use_bins(stat.bins)
            self._registry.register(name, measure)
            self._metric_names.add(name)

    def add_percentiles(self, percentiles: Mapping[float, MetricName], *, max_value: float) -> None:
        """Registers metrics by their percentage (50, 99, 99.9), for values up to `max_value`."""
        bins = LinearBins(_PERCENTILE_BINS, max_value)
        for percent, name in percentiles.items():
            self.add(name, Percentile(percent, bins))


Stats: TypeAlias = Mapping[str, tuple[Stat, str]]
"""The metrics of a sensor by name: how each is computed, and its description."""


def meter(name: str, subject: str, *, of_count: bool = False) -> Stats:
    """Returns a rate per second and a total, which Kafka calls a meter.

    They are those of the values, or of the number of values with `of_count`.
    """
    return {
        f"{name}-rate": (Rate(of_count=of_count), f"{subject} per second"),
        f"{name}-total": (Count() if of_count else Total(), f"{subject} so far"),
    }


def average(name: str, subject: str) -> Stats:
    """Returns the average and the maximum of the values."""
    return {
        f"{name}-avg": (Avg(), f"{subject}, on average"),
        f"{name}-max": (Max(), f"{subject}, at most"),
    }


class MetricGroup:
    """The sensors and gauges of one group, declared as tables of their metrics."""

    def __init__(
        self, metrics: "Metrics", name: str, tags: Mapping[str, str] | None = None
    ) -> None:
        self._metrics = metrics
        self._name = name
        self._tags = tags

    def sensor(self, name: str, stats: Stats) -> Sensor:
        sensor = self._metrics.sensor(name)
        for metric, (stat, description) in stats.items():
            sensor.add(self.metric_name(metric, description), stat)
        return sensor

    def gauge(self, name: str, description: str, read: Callable[[], float]) -> None:
        self._metrics.gauge(self.metric_name(name, description), read)

    def metric_name(self, name: str, description: str) -> MetricName:
        return self._metrics.name(name, self._name, description, self._tags)


class Metrics:
    """All metrics of one client. Thread-safe."""

    def __init__(
        self,
        clock: Clock,
        num_samples: int = 2,
        sample_window_ms: int = 30_000,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """`num_samples` and `sample_window_ms` are Kafka's settings; all names get `tags`."""
        self.clock = clock
        self.num_samples = num_samples
        self.sample_window_ms = max(sample_window_ms, 1)
        self.tags = dict(tags or {})
        self._lock = Lock()
        self._sensors: dict[str, Sensor] = {}
        self._measures: dict[MetricName, Callable[[int], float]] = {}

    def name(
        self,
        name: str,
        group: str,
        description: str = "",
        tags: Mapping[str, str] | None = None,
    ) -> MetricName:
        """Returns a name with the tags of the client and `tags`."""
        return MetricName(name, group, description, {**self.tags, **(tags or {})})

    def sensor(self, name: str) -> Sensor:
        """Returns the sensor of that name, created on first use."""
        with self._lock:
            sensor = self._sensors.get(name)
            if sensor is None:
                sensor = self._sensors[name] = Sensor(self, name)
            return sensor

    def gauge(self, name: MetricName, read: Callable[[], float]) -> None:
        """Registers a metric that is read in `snapshot`, on the caller's thread."""
        self.register(name, lambda now_ms: read())

    def register(self, name: MetricName, measure: Callable[[int], float]) -> None:
        """Registers a metric that is measured at a monotonic time.

        Raises ValueError if there is a metric of that name.
        """
        with self._lock:
            if name in self._measures:
                raise ValueError(f"metric {name.group}:{name.name} {name.tags} exists already")
            self._measures[name] = measure

    def snapshot(self) -> dict[MetricName, float]:
        """Returns the current values of all metrics."""
        with self._lock:
            measures = list(self._measures.items())
        now_ms = self.clock.monotonic_ms()
        return {name: measure(now_ms) for name, measure in measures}
