"""Metrics of a client's connections, under Kafka's names."""

from penstock.client.metrics import Avg, Max, Metrics, Sensor


class NetworkMetrics:
    """The sensors of all connections of a client. `group` is a metric group: `producer-metrics`."""

    def __init__(self, metrics: Metrics, group: str) -> None:
        self._metrics = metrics
        self._group = group
        self._open = 0
        self._created = self._meter("connection-creation", "Connections established")
        self._closed = self._meter("connection-close", "Connections closed")
        self._requests = self._meter("request", "Requests sent")
        self._responses = self._meter("response", "Responses received")
        self._bytes_out = self._meter("outgoing-byte", "Bytes sent", of_count=False)
        self._bytes_in = self._meter("incoming-byte", "Bytes received", of_count=False)
        self._size = metrics.sensor("request-size")
        self._size.add(metrics.name("request-size-avg", group, "Bytes of a request"), Avg())
        self._size.add(
            metrics.name("request-size-max", group, "Bytes of the largest request"), Max()
        )
        metrics.gauge(
            metrics.name("connection-count", group, "Open connections"),
            lambda: self._open,
        )

    def connected(self) -> None:
        self._open += 1
        self._created.record()

    def disconnected(self) -> None:
        self._open -= 1
        self._closed.record()

    def request_sent(self, size: int, now_ms: int) -> None:
        self._requests.record(1.0, now_ms)
        self._bytes_out.record(size, now_ms)
        self._size.record(size, now_ms)

    def bytes_received(self, size: int) -> None:
        self._bytes_in.record(size)

    def response_received(self) -> None:
        self._responses.record()

    def _meter(self, name: str, what: str, *, of_count: bool = True) -> Sensor:
        sensor = self._metrics.sensor(name)
        sensor.add_meter(
            self._metrics.name(f"{name}-rate", self._group, f"{what} a second"),
            self._metrics.name(f"{name}-total", self._group, f"{what} so far"),
            of_count=of_count,
        )
        return sensor
