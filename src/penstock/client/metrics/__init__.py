"""Metrics of a client: sensors take values in, metrics are what can be read of them.

    metrics = Metrics(clock, tags={"client-id": "orders"})
    sensor = metrics.sensor("request-latency")
    sensor.add(metrics.name("request-latency-avg", "producer-metrics"), Avg())
    sensor.add(metrics.name("request-latency-max", "producer-metrics"), Max())
    sensor.record(12.5)
    metrics.snapshot()  # {MetricName: float}

Names, groups and what the numbers mean are Kafka's.
"""

from penstock.client.metrics.histogram import BinScheme, ConstantBins, LinearBins
from penstock.client.metrics.registry import MetricName, Metrics, RecordingLevel, Sensor
from penstock.client.metrics.stats import (
    Avg,
    Count,
    Max,
    Min,
    Percentile,
    Rate,
    Stat,
    Total,
    Value,
    WindowedCount,
    WindowedSum,
)

__all__ = [
    "Avg",
    "BinScheme",
    "ConstantBins",
    "Count",
    "LinearBins",
    "Max",
    "MetricName",
    "Metrics",
    "Min",
    "Percentile",
    "Rate",
    "RecordingLevel",
    "Sensor",
    "Stat",
    "Total",
    "Value",
    "WindowedCount",
    "WindowedSum",
]
