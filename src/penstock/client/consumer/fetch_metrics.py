"""The metrics of fetches and polls, under Kafka's names."""

from collections.abc import Callable
from typing import Final

from penstock.client.metrics import Avg, Max, MetricName, Metrics

GROUP: Final = "consumer-fetch-manager-metrics"


class FetchMetrics:
    """The sensors of fetches and polls, recorded once per request or poll."""

    def __init__(self, metrics: Metrics, max_lag: Callable[[], float]) -> None:
        self.registry = metrics

        def name(text: str, description: str) -> MetricName:
            return metrics.name(text, GROUP, description)

        self._latency = metrics.sensor("fetch-latency")
        self._latency.add(name("fetch-latency-avg", "Time of a fetch, ms."), Avg())
        self._latency.add(name("fetch-latency-max", "Longest time of a fetch, ms."), Max())
        self._latency.add_meter(
            name("fetch-rate", "Fetches per second."),
            name("fetch-total", "Fetches."),
            of_count=True,
        )
        self._throttle = metrics.sensor("fetch-throttle-time")
        self._throttle.add(name("fetch-throttle-time-avg", "Time throttled, ms."), Avg())
        self._throttle.add(name("fetch-throttle-time-max", "Longest time throttled, ms."), Max())
        self._bytes = metrics.sensor("bytes-fetched")
        self._bytes.add(name("fetch-size-avg", "Bytes of a fetch."), Avg())
        self._bytes.add(name("fetch-size-max", "Largest number of bytes of a fetch."), Max())
        self._bytes.add_meter(
            name("bytes-consumed-rate", "Bytes per second."), name("bytes-consumed-total", "Bytes.")
        )
        self._records = metrics.sensor("records-fetched")
        self._records.add(name("records-per-request-avg", "Records of a poll."), Avg())
        self._records.add_meter(
            name("records-consumed-rate", "Records per second."),
            name("records-consumed-total", "Records."),
        )

        metrics.gauge(name("records-lag-max", "Largest lag of a partition."), max_lag)

    def record_fetch(self, latency_ms: int, throttle_ms: int) -> None:
        self._latency.record(latency_ms)
        self._throttle.record(throttle_ms)

    def record_bytes(self, size: int) -> None:
        self._bytes.record(size)

    def record_poll(self, records: int) -> None:
        self._records.record(records)
