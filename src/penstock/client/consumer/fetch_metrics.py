"""The metrics of fetches and polls, under Kafka's names."""

from collections.abc import Callable
from typing import Final

from penstock.client.metrics import Avg, MetricGroup, Metrics, average, meter

GROUP: Final = "consumer-fetch-manager-metrics"


class FetchMetrics:
    """The sensors of fetches and polls, recorded once per request or poll."""

    def __init__(self, metrics: Metrics, max_lag: Callable[[], float]) -> None:
        group = MetricGroup(metrics, GROUP)
        self.latency = group.sensor(
            "fetch-latency",
            {
                **average("fetch-latency", "Time of a fetch in ms"),
                **meter("fetch", "Fetches", of_count=True),
            },
        )
        self.throttle = group.sensor(
            "fetch-throttle-time", average("fetch-throttle-time", "Time throttled in ms")
        )
        self.bytes = group.sensor(
            "bytes-fetched",
            {**average("fetch-size", "Bytes of a fetch"), **meter("bytes-consumed", "Bytes")},
        )
        self.records = group.sensor(
            "records-fetched",
            {
                "records-per-request-avg": (Avg(), "Records of a poll, on average"),
                **meter("records-consumed", "Records"),
            },
        )
        group.gauge("records-lag-max", "Largest lag of a partition", max_lag)
