"""Metrics of a client: sensors record values, metrics are numbers computed from them.

    metrics = Metrics(clock, tags={"client-id": "orders"})
    sensor = metrics.sensor("request-latency")
    sensor.add(metrics.name("request-latency-avg", "producer-metrics"), Avg())
    sensor.add(metrics.name("request-latency-max", "producer-metrics"), Max())
    sensor.record(12.5)
    metrics.snapshot()  # {MetricName: float}

Names, groups and the meaning of the numbers are Kafka's.
"""

from penstock.client.metrics.histogram import LinearBins
from penstock.client.metrics.registry import MetricName, Metrics, Sensor
from penstock.client.metrics.stats import Avg, Count, Max, Percentile, Rate, Stat, Total

__all__ = [
    "Avg",
    "Count",
    "LinearBins",
    "Max",
    "MetricName",
    "Metrics",
    "Percentile",
    "Rate",
    "Sensor",
    "Stat",
    "Total",
]
