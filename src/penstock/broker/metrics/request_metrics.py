"""Counts and times of requests by API.

Every request is counted. Its times are measured as well, as long as an API has few requests; of an
API with more than `MEASURED_PER_S` only every second, fourth, … one is, and stands for the others.
So a small Produce pays for one addition, and the histograms have the right proportions all the
same.
"""

from collections import Counter
from typing import Final

from penstock.core.errors import ErrorCode
from penstock.core.histogram import Histogram
from penstock.protocol.api_key import ApiKey

MEASURED_PER_S: Final = 500
_NEVER: Final = -1
_ALWAYS: Final = 0

FETCH_FOLLOWER: Final = "FetchFollower"
FETCH_CONSUMER: Final = "FetchConsumer"


class ApiMetrics:
    """The requests of one API. A request is measured unless `requests & mask`, after counting it:

    `requests += 1`, then `started = 0.0 if requests & mask else perf_counter()`.
    """

    __slots__ = (
        "_last_requests",
        "errors",
        "local",
        "mask",
        "name",
        "queue",
        "remote",
        "requests",
        "response",
        "throttle",
        "total",
    )

    def __init__(self, name: str, mask: int = _NEVER) -> None:
        self.name = name
        self.requests = 0
        self.mask = mask
        self._last_requests = 0
        self.errors: Counter[int] = Counter()
        """Errors in responses by their code: one for each partition, group or topic."""
        self.total = Histogram()
        self.queue = Histogram()
        """From the receipt of a request until it is handled, behind others of its connection."""
        self.local = Histogram()
        """Until the handler is done, with its work on threads."""
        self.remote = Histogram()
        """The wait after that: for replicas, flushes, records or other members of a group."""
        self.response = Histogram()
        """Encoding the response and passing it to the socket."""
        self.throttle = Histogram()
        """Only of requests that were throttled; each of them is recorded."""

    def record_at_once(self, started: float, handled: float, sent: float) -> None:
        """Records a request that waited for nothing."""
        weight = self.mask + 1 or 1
        self.total.record(sent - started, weight)
        self.local.record(handled - started, weight)
        self.response.record(sent - handled, weight)
        self.queue.counts[0] += weight
        self.remote.counts[0] += weight

    def record(
        self, queued: float, started: float, handled: float, completed: float, sent: float
    ) -> None:
        """Records the times at which the phases of a request ended; `queued` is when it began."""
        weight = self.mask + 1 or 1
        self.total.record(sent - queued, weight)
        self.queue.record(started - queued, weight)
        self.local.record(handled - started, weight)
        self.remote.record(completed - handled, weight)
        self.response.record(sent - completed, weight)

    def adapt(self, seconds: float) -> None:
        """Decides by the requests of the last `seconds` how many are measured.

        Load comes in bursts: after one, the share of measured requests rises slowly.
        """
        requests = self.requests - self._last_requests
        self._last_requests = self.requests
        excess = int(requests / (MEASURED_PER_S * seconds))
        self.mask = max((1 << excess.bit_length()) - 1, self.mask >> 1)


class RequestMetrics:
    """The metrics of all APIs. Times are measured only if they are `enabled`."""

    def __init__(self, *, enabled: bool) -> None:
        self.enabled = enabled
        mask = _ALWAYS if enabled else _NEVER
        self.by_api = {key: ApiMetrics(_kafka_name(key), mask) for key in ApiKey}
        self.by_api[ApiKey.FETCH] = ApiMetrics(FETCH_CONSUMER, mask)
        self.follower_fetch = ApiMetrics(FETCH_FOLLOWER, mask)
        self.produce = self.by_api[ApiKey.PRODUCE]

    def move_to_follower(self) -> ApiMetrics:
        """Counts the current Fetch as one of a follower, and returns those metrics."""
        self.by_api[ApiKey.FETCH].requests -= 1
        self.follower_fetch.requests += 1
        return self.follower_fetch

    @property
    def apis(self) -> list[ApiMetrics]:
        """The metrics of APIs that have had requests."""
        apis = [*self.by_api.values(), self.follower_fetch]
        return [api for api in apis if api.requests]

    def adapt(self, seconds: float) -> None:
        if not self.enabled:
            return
        for api in self.apis:
            api.adapt(seconds)
        # Both kinds of Fetch are sampled before it is known which one a request is.
        fetch = self.by_api[ApiKey.FETCH]
        fetch.mask = self.follower_fetch.mask = max(fetch.mask, self.follower_fetch.mask)


def _kafka_name(key: ApiKey) -> str:
    """Returns Kafka's name of an API: `InitProducerId` for INIT_PRODUCER_ID."""
    return "".join(word.capitalize() for word in key.name.split("_"))


def error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)
