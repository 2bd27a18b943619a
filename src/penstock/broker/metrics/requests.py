"""Metrics of requests: counts, errors, and times by phase (Kafka's RequestMetrics)."""

from collections.abc import Callable
from typing import Final

from penstock.broker.metrics.exposition import Exposition
from penstock.broker.metrics.request_metrics import ApiMetrics, RequestMetrics, error_name
from penstock.broker.pacer import Steps
from penstock.core.histogram import Histogram

_PREFIX: Final = "kafka_network_requestmetrics"
_PHASES: Final[tuple[tuple[str, Callable[[ApiMetrics], Histogram], str], ...]] = (
    ("totaltime", lambda api: api.total, "From the receipt of a request until its response."),
    ("requestqueuetime", lambda api: api.queue, "Waiting behind requests of the same connection."),
    ("localtime", lambda api: api.local, "Handling by this broker, with its work on threads."),
    ("remotetime", lambda api: api.remote, "Waiting for replicas, flushes, records or members."),
    ("responsesendtime", lambda api: api.response, "Encoding and passing to the socket."),
    ("throttletime", lambda api: api.throttle, "Of throttled requests: how long, by quotas."),
)


def collect_requests(exposition: Exposition, metrics: RequestMetrics) -> Steps[None]:
    requests = exposition.counter(f"{_PREFIX}_requests_total", "Requests by API.")
    errors = exposition.counter(
        f"{_PREFIX}_errors_total", "Errors in responses, of each partition, topic or group."
    )
    apis = metrics.apis
    for api in apis:
        requests.add(api.requests, request=api.name)
        for code, count in sorted(api.errors.items()):
            errors.add(count, request=api.name, error=error_name(code))
    for name, histogram_of, documentation in _PHASES:
        family = exposition.histogram(f"{_PREFIX}_{name}_seconds", documentation)
        for api in apis:
            yield
            histogram = histogram_of(api)
            if histogram.count:
                family.add_histogram(histogram, request=api.name)
