"""Metrics of a pipeline for Prometheus, served on a port of their own."""

from datetime import datetime
from typing import TYPE_CHECKING, Self

from penstock.spark.errors import MissingPartError, PipelineError
from penstock.spark.watch.report import BatchReport, lag_by_partition
from penstock.spark.watch.run_listener import RunListener

if TYPE_CHECKING:
    from threading import Thread
    from wsgiref.simple_server import WSGIServer

    from penstock.spark.progress import Batch
    from penstock.spark.sinks.port import WriteResult

_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class Metrics(RunListener):
    """Updates metrics from finished batches; `serve` starts the HTTP server."""

    def __init__(self, pipeline: str) -> None:
        try:
            from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
        except ModuleNotFoundError:
            raise MissingPartError(
                'metrics need prometheus-client: pip install "penstock[spark]"'
            ) from None
        self.registry = registry = CollectorRegistry()
        self._pipeline = pipeline
        self._server: tuple[WSGIServer, Thread] | None = None
        labels = ("pipeline", "query")

        def name(suffix: str) -> str:
            return f"penstock_pipeline_{suffix}"

        def counter(suffix: str, description: str) -> Counter:
            return Counter(name(suffix), description, labels, registry=registry)

        def gauge(suffix: str, description: str, *more_labels: str) -> Gauge:
            return Gauge(name(suffix), description, (*labels, *more_labels), registry=registry)

        self._records = counter("records", "Records read from the topics")
        self._rows = counter("rows", "Rows stored by the sink")
        self._dead = counter("dead_letters", "Records that could not be read")
        self._late = counter("late_rows", "Rows behind the watermark, left out")
        self._batches = Histogram(
            name("batch_seconds"),
            "Time of a micro-batch",
            labels,
            buckets=_SECONDS,
            registry=registry,
        )
        self._state = gauge("state_rows", "Rows in the state")
        self._batch_id = gauge("batch_id", "The last micro-batch")
        self._watermark = gauge("watermark_timestamp_seconds", "The watermark, as Unix time")
        self._lag = gauge("lag_records", "Records not read yet", "source", "topic", "partition")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def finished(self, report: BatchReport) -> None:
        labels = (self._pipeline, report.query)
        self._records.labels(*labels).inc(report.records)
        self._late.labels(*labels).inc(report.late_rows)
        self._batches.labels(*labels).observe(report.duration_ms / 1000)
        self._state.labels(*labels).set(report.state_rows)
        self._batch_id.labels(*labels).set(report.batch_id)
        if report.watermark is not None:
            self._watermark.labels(*labels).set(
                datetime.fromisoformat(report.watermark).timestamp()
            )
        for (source, partition), lag in lag_by_partition(report.end, report.latest).items():
            self._lag.labels(*labels, source, partition.topic, str(partition.partition)).set(lag)

    def stored(self, query: str, batch: "Batch", applied: "WriteResult") -> None:
        self._rows.labels(self._pipeline, query).inc(applied.rows)
        self._dead.labels(self._pipeline, query).inc(applied.dead_letters)

    def serve(self, port: int, address: str = "127.0.0.1") -> int:
        """Serves GET /metrics and returns the port; port 0 selects a free one."""
        from prometheus_client import start_http_server

        try:
            server, thread = start_http_server(port, address, registry=self.registry)
        except OSError as error:
            raise PipelineError(
                f"metrics cannot be served on {address}:{port}: {error.strerror}",
                remedy="choose another with --metrics-port or --metrics-host",
            ) from None
        self._server = server, thread
        return int(server.server_port)

    def close(self) -> None:
        if self._server is not None:
            server, thread = self._server
            server.shutdown()
            server.server_close()
            thread.join()
            self._server = None
