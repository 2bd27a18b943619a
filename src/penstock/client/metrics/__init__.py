"""Metrics of a client: sensors record values, metrics are numbers computed from them.

    metrics = Metrics(clock, tags={"client-id": "orders"})
    group = MetricGroup(metrics, "producer-metrics")
    sensor = group.sensor("request-latency", average("request-latency", "Time of a request"))
    sensor.record(12.5)
    metrics.snapshot()  # {MetricName: float}

Names, groups and the meaning of the numbers are Kafka's.
"""

from penstock.client.metrics.histogram import LinearBins
from penstock.client.metrics.registry import (
    MetricGroup,
    MetricName,
    Metrics,
    Sensor,
    Stats,
    average,
    meter,
)
from penstock.client.metrics.stats import Avg, Count, Max, Percentile, Rate, Stat, Total

__all__ = [
    "Avg",
    "Count",
    "LinearBins",
    "Max",
    "MetricGroup",
    "MetricName",
    "Metrics",
    "Percentile",
    "Rate",
    "Sensor",
    "Stat",
    "Stats",
    "Total",
    "average",
    "meter",
]
