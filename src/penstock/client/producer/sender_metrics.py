"""Metrics of a producer, under Kafka's names. Recorded per batch and per request."""

from typing import Final

from penstock.client.metrics import (
    Avg,
    MetricGroup,
    Metrics,
    Sensor,
    Stats,
    Total,
    average,
    meter,
)
from penstock.client.producer.batch import ProducerBatch

GROUP: Final = "producer-metrics"
TOPIC_GROUP: Final = "producer-topic-metrics"
_COMPRESSION_RATE: Final = "Compressed by uncompressed size, on average"
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
        group = MetricGroup(metrics, TOPIC_GROUP, {"topic": topic})

        def sensor(name: str, stats: Stats) -> Sensor:
            return group.sensor(f"topic.{topic}.{name}", stats)

        self.records = sensor("records-per-batch", meter("record-send", "Records sent"))
        self.bytes = sensor("bytes", meter("byte", "Bytes sent"))
        self.retries = sensor("record-retries", meter("record-retry", "Records retried"))
        self.errors = sensor("record-errors", meter("record-error", "Records that failed"))
        self.compression = sensor(
            "compression-rate", {"compression-rate": (Avg(), _COMPRESSION_RATE)}
        )


class SenderMetrics:
    """The sensors of a producer."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self._topics: dict[str, _TopicSensors] = {}
        group = MetricGroup(metrics, GROUP)
        self.gauge = group.gauge

        def average_of(name: str, subject: str) -> Sensor:
            return group.sensor(name, average(name, subject))

        self._batch_size = average_of("batch-size", "Bytes of a batch")
        self._compression = group.sensor(
            "compression-rate", {"compression-rate-avg": (Avg(), _COMPRESSION_RATE)}
        )
        self._queue_time = average_of(
            "record-queue-time", "Milliseconds that batches wait in the accumulator"
        )
        self._latency = average_of("request-latency", "Milliseconds of requests")
        self._latency.add_percentiles(
            {
                percent: group.metric_name(
                    f"request-latency-p{percent}", "Milliseconds of requests"
                )
                for percent in (50, 95, 99)
            },
            max_value=30_000.0,
        )
        self._record_size = average_of("record-size", "Bytes per record, averaged over a batch")
        self._throttle = average_of(
            "produce-throttle-time", "Milliseconds that brokers throttled requests"
        )
        self._records = group.sensor(
            "records-per-request",
            {
                "records-per-request-avg": (Avg(), "Records of a request, on average"),
                **meter("record-send", "Records sent"),
            },
        )
        self._retries = group.sensor("record-retries", meter("record-retry", "Retries"))
        self._errors = group.sensor("errors", meter("record-error", "Failed records"))
        self._splits = group.sensor("batch-split", meter("batch-split", "Split batches"))
        self._times = {
            name: group.sensor(name, {f"{name}-time-ns-total": (Total(), f"Nanoseconds of {call}")})
            for name, call in _TOTAL_TIMES.items()
        }

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
