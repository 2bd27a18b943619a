"""Sensors, and the registry of all metrics of a client."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from threading import Lock
from typing import Final

from penstock.client.metrics.histogram import BinScheme, LinearBins
from penstock.client.metrics.stats import Count, Percentile, Rate, Stat, Total
from penstock.client.metrics.windows import Windows
from penstock.core.clock import Clock

_PERCENTILE_BINS: Final = 400


class RecordingLevel(IntEnum):
    """Which sensors record: those up to `metrics.recording.level`."""

    INFO = 0
    DEBUG = 1
    TRACE = 2


@dataclass(frozen=True, slots=True)
class MetricName:
    """Two names are the same metric where name, group and tags are the same."""

    name: str
    group: str
    description: str = field(default="", compare=False)
    tags: Mapping[str, str] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.name, self.group, frozenset(self.tags.items())))


class Sensor:
    """Takes values in. Its stats share what it keeps: add them before the first value."""

    __slots__ = (
        "_lock",
        "_now_ms",
        "_own_windows",
        "_parents",
        "_registry",
        "_windows",
        "enabled",
        "metric_names",
        "name",
    )

    def __init__(
        self, registry: "Metrics", name: str, parents: tuple["Sensor", ...], *, enabled: bool
    ) -> None:
        """Use `Metrics.sensor`."""
        self.name = name
        self.enabled = enabled
        self.metric_names: list[MetricName] = []
        self._registry = registry
        self._parents = parents
        self._now_ms = registry.clock.monotonic_ms
        self._lock = Lock()
        self._windows = Windows(registry.num_samples, registry.sample_window_ms)
        self._own_windows: tuple[Windows, ...] = ()

    def record(self, value: float = 1.0, now_ms: int | None = None) -> None:
        """Take one value in. `now_ms` is the monotonic time, where the caller knows it already."""
        if not self.enabled:
            return
        if now_ms is None:
            now_ms = self._now_ms()
        with self._lock:
            self._windows.record(value, now_ms)
            if self._own_windows:
                for windows in self._own_windows:
                    windows.record(value, now_ms)
        for parent in self._parents:
            parent.record(value, now_ms)

    def add(self, name: MetricName, stat: Stat) -> None:
        """A metric that is read of this sensor's values. The same name again changes nothing."""

        def measure(now_ms: int) -> float:
            with self._lock:
                return stat.measure(windows, now_ms)

        with self._lock:
            if name in self.metric_names:
                return
            windows = self._windows_of(stat)
            if stat.scheme is not None:
                windows.use_bins(stat.scheme)
            self._registry.register(name, measure)
            self.metric_names.append(name)

    def add_meter(self, rate: MetricName, total: MetricName, *, of_count: bool = False) -> None:
        """A rate per second and the total over all time, which Kafka calls a meter."""
        self.add(rate, Rate(of_count=of_count))
        self.add(total, Count() if of_count else Total())

    def add_percentiles(
        self,
        percentiles: Mapping[float, MetricName],
        *,
        max_value: float,
        scheme: BinScheme | None = None,
    ) -> None:
        """Metrics by their percentage (50, 99, 99.9): latencies up to `max_value`."""
        scheme = scheme or LinearBins(_PERCENTILE_BINS, max_value)
        for percent, name in percentiles.items():
            self.add(name, Percentile(percent, scheme))

    def _windows_of(self, stat: Stat) -> Windows:
        window_ms = stat.window_ms
        if window_ms is None or window_ms == self._windows.window_ms:
            return self._windows
        for windows in self._own_windows:
            if windows.window_ms == window_ms:
                return windows
        added = Windows(self._windows.num_samples, window_ms)
        self._own_windows += (added,)
        return added


class Metrics:
    """All metrics of one client. Every method may be called from any thread."""

    def __init__(
        self,
        clock: Clock,
        num_samples: int = 2,
        sample_window_ms: int = 30_000,
        tags: Mapping[str, str] | None = None,
        recording_level: RecordingLevel | str = RecordingLevel.INFO,
    ) -> None:
        """`metrics.num.samples`, `metrics.sample.window.ms`, `metrics.recording.level`.

        `tags` are on every name that `name` makes.
        """
        self.clock = clock
        self.num_samples = num_samples
        self.sample_window_ms = max(sample_window_ms, 1)
        self.tags = dict(tags or {})
        if isinstance(recording_level, str):
            recording_level = RecordingLevel[recording_level.upper()]
        self.recording_level = recording_level
        self._lock = Lock()
        self._sensors: dict[str, Sensor] = {}
        self._children: dict[str, list[str]] = {}
        self._measures: dict[MetricName, Callable[[int], float]] = {}

    def name(
        self,
        name: str,
        group: str,
        description: str = "",
        tags: Mapping[str, str] | None = None,
    ) -> MetricName:
        """A name with the tags of the client, and `tags`."""
        return MetricName(name, group, description, {**self.tags, **(tags or {})})

    def sensor(
        self,
        name: str,
        parents: Iterable[Sensor] = (),
        level: RecordingLevel = RecordingLevel.INFO,
    ) -> Sensor:
        """The sensor of that name, made at the first call. What it records its parents do too."""
        with self._lock:
            sensor = self._sensors.get(name)
            if sensor is None:
                above = tuple(parents)
                enabled = level <= self.recording_level
                sensor = self._sensors[name] = Sensor(self, name, above, enabled=enabled)
                for parent in above:
                    self._children.setdefault(parent.name, []).append(name)
            return sensor

    def remove_sensor(self, name: str) -> None:
        """Forget a sensor with its metrics, and the sensors below it."""
        with self._lock:
            sensor = self._sensors.pop(name, None)
            if sensor is None:
                return
            for metric in sensor.metric_names:
                self._measures.pop(metric, None)
            children = self._children.pop(name, [])
        for child in children:
            self.remove_sensor(child)

    def gauge(self, name: MetricName, read: Callable[[], float]) -> None:
        """A metric that is read when somebody looks; `read` is called on that thread."""
        self.register(name, lambda now_ms: read())

    def remove(self, name: MetricName) -> None:
        """Forget one metric, such as a gauge."""
        with self._lock:
            self._measures.pop(name, None)

    def register(self, name: MetricName, measure: Callable[[int], float]) -> None:
        """A metric that is measured at a monotonic time. Each name can be used once."""
        with self._lock:
            if name in self._measures:
                raise ValueError(f"there is a metric {name.group}:{name.name} {name.tags} already")
            self._measures[name] = measure

    def value(self, name: MetricName) -> float:
        """One metric now. KeyError where there is none of that name."""
        with self._lock:
            measure = self._measures[name]
        return measure(self.clock.monotonic_ms())

    def snapshot(self) -> dict[MetricName, float]:
        """All metrics now."""
        with self._lock:
            measures = list(self._measures.items())
        now_ms = self.clock.monotonic_ms()
        return {name: measure(now_ms) for name, measure in measures}
