"""Metrics of a client's connections, under Kafka's names."""

from penstock.client.metrics import MetricGroup, Metrics, Sensor, average, meter


class NetworkMetrics:
    """The sensors of all connections of a client. `group` is a metric group: `producer-metrics`."""

    def __init__(self, metrics: Metrics, group: str) -> None:
        table = MetricGroup(metrics, group)

        def counter(name: str, subject: str) -> Sensor:
            return table.sensor(name, meter(name, subject, of_count=True))

        self._open = 0
        self._created = counter("connection-creation", "Connections established")
        self._closed = counter("connection-close", "Connections closed")
        self._requests = counter("request", "Requests sent")
        self._responses = counter("response", "Responses received")
        self._bytes_out = table.sensor("outgoing-byte", meter("outgoing-byte", "Bytes sent"))
        self._bytes_in = table.sensor("incoming-byte", meter("incoming-byte", "Bytes received"))
        self._size = table.sensor("request-size", average("request-size", "Bytes of a request"))
        table.gauge("connection-count", "Open connections", lambda: self._open)

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
