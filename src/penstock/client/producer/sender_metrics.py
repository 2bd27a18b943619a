"""Metrics of a producer, under Kafka's names. Recorded per batch and per request."""

from collections.abc import Callable
from typing import Final

from penstock.client.metrics import Avg, Max, MetricName, Metrics, Sensor, Total
from penstock.client.producer.batch import ProducerBatch

GROUP: Final = "producer-metrics"
TOPIC_GROUP: Final = "producer-topic-metrics"
_TOTAL_TIMES: Final = {
    "flush": "flush",
    "txn-init": "init_transactions",
    "txn-begin": "begin_transaction",
    "txn-send-offsets": "send_offsets_to_transaction",
    "txn-commit": "commit_transaction",
    "txn-abort": "abort_transaction",
    "metadata-wait": "waiting for metadata",
}


class _TopicSensors:
    __slots__ = ("bytes", "compression", "errors", "records", "retries")

    def __init__(self, metrics: Metrics, topic: str) -> None:
        def meter(what: str, metric: str, of: str) -> Sensor:
            sensor = metrics.sensor(f"topic.{topic}.{what}")
            sensor.add_meter(
                metrics.name(f"{metric}-rate", TOPIC_GROUP, f"{of} per second", tags),
                metrics.name(f"{metric}-total", TOPIC_GROUP, f"All {of.lower()}", tags),
            )
            return sensor

        tags = {"topic": topic}
        self.records = meter("records-per-batch", "record-send", "Records sent")
        self.bytes = meter("bytes", "byte", "Bytes sent")
        self.retries = meter("record-retries", "record-retry", "Records retried")
        self.errors = meter("record-errors", "record-error", "Records that failed")
        self.compression = metrics.sensor(f"topic.{topic}.compression-rate")
        self.compression.add(
            metrics.name(
                "compression-rate",
                TOPIC_GROUP,
                "Compressed by uncompressed size",
                tags,
            ),
            Avg(),
        )


class SenderMetrics:
    """The sensors of a producer."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self._topics: dict[str, _TopicSensors] = {}
        self._batch_size = self._sensor("batch-size", "Bytes of a batch", maximum=True)
        self._compression = self._sensor("compression-rate", "Compressed by uncompressed size")
        self._queue_time = self._sensor(
            "record-queue-time", "Milliseconds that batches wait in the accumulator", maximum=True
        )
        self._latency = self._sensor("request-latency", "Milliseconds of requests", maximum=True)
        self._latency.add_percentiles(
            {
                percent: self._name(f"request-latency-p{percent}", "Milliseconds of requests")
                for percent in (50, 95, 99)
            },
            max_value=30_000.0,
        )
        self._record_size = self._sensor(
            "record-size", "Bytes per record, averaged over a batch", maximum=True
        )
        self._throttle = self._sensor(
            "produce-throttle-time",
            "Milliseconds that brokers throttled requests",
            maximum=True,
        )
        self._records = metrics.sensor("records-per-request")
        self._records.add(self._name("records-per-request-avg", "Records of a request"), Avg())
        self._meter(self._records, "record-send", "Records sent")
        self._retries = self._meter(metrics.sensor("record-retries"), "record-retry", "Retries")
        self._errors = self._meter(metrics.sensor("errors"), "record-error", "Failed records")
        self._splits = self._meter(metrics.sensor("batch-split"), "batch-split", "Split batches")
        self._times: dict[str, Sensor] = {}
        for name, what in _TOTAL_TIMES.items():
            self._times[name] = sensor = metrics.sensor(name)
            sensor.add(self._name(f"{name}-time-ns-total", f"Nanoseconds of {what}"), Total())

    def gauge(self, name: str, description: str, read: Callable[[], float]) -> None:
        self.metrics.gauge(self._name(name, description), read)

    def request_sent(self, batches: list[ProducerBatch], now_ms: int) -> None:
        records = 0
        for batch in batches:
            count = batch.records_count
            size = batch.size_in_bytes
            ratio = batch.compression_ratio
            topic = self._topic(batch.topic_partition.topic)
            topic.records.record(count, now_ms)
            topic.bytes.record(size, now_ms)
            topic.compression.record(ratio, now_ms)
            self._batch_size.record(size, now_ms)
            self._queue_time.record(batch.queue_time_ms(), now_ms)
            self._compression.record(ratio, now_ms)
            self._record_size.record(size / count, now_ms)
            records += count
        self._records.record(records, now_ms)

    def response_received(self, latency_ms: float, throttle_ms: int, now_ms: int) -> None:
        self._latency.record(latency_ms, now_ms)
        self._throttle.record(throttle_ms, now_ms)

    def batch_retried(self, batch: ProducerBatch, now_ms: int) -> None:
        self._retries.record(batch.records_count, now_ms)
        self._topic(batch.topic_partition.topic).retries.record(batch.records_count, now_ms)

    def records_failed(self, topic: str, count: int) -> None:
        self._errors.record(count)
        self._topic(topic).errors.record(count)

    def batch_split(self) -> None:
        self._splits.record()

    def record_time(self, call: str, nanoseconds: int) -> None:
        """Records the time of a user's call: `flush`, `txn-commit` and so on."""
        self._times[call].record(nanoseconds)

    def _topic(self, name: str) -> _TopicSensors:
        sensors = self._topics.get(name)
        if sensors is None:
            sensors = self._topics[name] = _TopicSensors(self.metrics, name)
        return sensors

    def _name(self, name: str, description: str) -> MetricName:
        return self.metrics.name(name, GROUP, description)

    def _sensor(self, name: str, of: str, *, maximum: bool = False) -> Sensor:
        sensor = self.metrics.sensor(name)
        sensor.add(self._name(f"{name}-avg", f"{of}, on average"), Avg())
        if maximum:
            sensor.add(self._name(f"{name}-max", f"{of}, at most"), Max())
        return sensor

    def _meter(self, sensor: Sensor, name: str, of: str) -> Sensor:
        sensor.add_meter(
            self._name(f"{name}-rate", f"{of} per second"), self._name(f"{name}-total", f"All {of}")
        )
        return sensor
