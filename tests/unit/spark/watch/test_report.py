"""Monitoring of a running pipeline: reports, the progress line, metrics, lag (D4)."""

import io
import json
from dataclasses import replace
from urllib.request import Request, urlopen

import pytest
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from penstock.client import Admin, Producer
from penstock.client.admin import NewTopic
from penstock.core.ids import TopicPartition
from penstock.spark.errors import PipelineError
from penstock.spark.progress import Batch, Progress, SourceOffsets
from penstock.spark.sinks.port import WriteResult
from penstock.spark.watch.lag import GroupLag, SlowestOffsets
from penstock.spark.watch.latest_offsets import LatestOffsets
from penstock.spark.watch.metrics import Metrics
from penstock.spark.watch.progress_line import ProgressLine, line_of
from penstock.spark.watch.report import BatchReport, report_of
from penstock.testing import Broker

ORDERS_0 = TopicPartition("orders", 0)
ORDERS_1 = TopicPartition("orders", 1)


def offsets(*values: int, source: str = "orders", topic: str = "orders") -> SourceOffsets:
    partitions = {TopicPartition(topic, index): value for index, value in enumerate(values)}
    return SourceOffsets(partitions, {}, source)


def at(*values: int) -> Progress:
    return {"orders": offsets(*values)}


REPORT = BatchReport(
    query="shop.main",
    batch_id=3,
    records=5_000,
    duration_ms=500,
    end=at(5_000, 10),
    latest=at(7_000, 10, 40),
    watermark="2026-01-01T00:00:10.000Z",
    state_rows=12,
    late_rows=2,
)


@pytest.mark.parametrize("as_text", [False, True])
def test_a_report_is_parsed_from_sparks_progress(as_text: bool) -> None:
    def given(*values: int) -> object:
        written = offsets(*values).to_json()
        return json.dumps(written) if as_text else written

    progress = {
        "batchId": 3,
        "batchDuration": 500,
        "eventTime": {"watermark": "2026-01-01T00:00:10.000Z"},
        "stateOperators": [
            {"numRowsTotal": 4, "numRowsDroppedByWatermark": 2},
            {"numRowsTotal": 8, "numRowsDroppedByWatermark": 0},
        ],
        "sources": [
            {
                "numInputRows": 5_000,
                "startOffset": given(0, 10),
                "endOffset": given(5_000, 10),
                "latestOffset": given(7_000, 10, 40),
            }
        ],
    }
    assert report_of("shop.main", progress) == REPORT


def test_the_lag_of_an_unread_partition_counts_from_its_beginning() -> None:
    assert REPORT.lag == 2_000 + 40


def test_a_batch_without_time_has_no_speed() -> None:
    assert BatchReport("q", 0, 5, 0, {}, {}).records_per_second == 0


def test_the_progress_line() -> None:
    assert line_of(REPORT) == (
        "shop.main  batch 3  5,000 records  10,000/s  lag 2,040  500 ms  "
        "watermark 2026-01-01 00:00:10  state 12 rows  2 late"
    )
    assert line_of(BatchReport("q", 0, 0, 9, {}, {})) == ("q  batch 0  0 records  0/s  lag 0  9 ms")


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (
            95,
            "shop.main  5,000 records  10,000/s  lag 2,040  500 ms  "
            "watermark 2026-01-01 00:00:10  2 late",
        ),
        (79, "shop.main  10,000/s  lag 2,040  500 ms  watermark 2026-01-01 00:00:10  2 late"),
        (70, "shop.main  10,000/s  lag 2,040  500 ms  watermark 00:00:10  2 late"),
        (30, "shop.main  10,000/s  lag 2,040"),
    ],
)
def test_a_narrow_terminal_shows_the_most_important_values(width: int, line: str) -> None:
    assert line_of(REPORT, width) == line


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_has_one_line_and_a_file_one_for_each_batch_with_records() -> None:
    idle = BatchReport("q", 4, 0, 9, {}, {})
    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        line = ProgressLine(stream)
        for report in (REPORT, idle):
            line.finished(report)
        line.close()
        line.close()
    assert file.getvalue() == line_of(REPORT) + "\n"
    clear = "\r\x1b[K"
    assert terminal.getvalue() == f"{clear}{line_of(REPORT, 79)}{clear}{line_of(idle)}\n"


def test_metrics_are_served_for_prometheus() -> None:
    with Metrics("shop") as metrics:
        port = metrics.serve(0)
        metrics.finished(REPORT)
        metrics.finished(REPORT)
        metrics.stored("shop.main", Batch("id", 3, {}, {}), WriteResult(rows=70, dead_letters=3))
        with urlopen(f"http://127.0.0.1:{port}/metrics") as response:
            lines = response.read().decode().splitlines()
        of = 'pipeline="shop",query="shop.main"'
        expected = {
            f"penstock_pipeline_records_total{{{of}}} 10000.0",
            f"penstock_pipeline_rows_total{{{of}}} 70.0",
            f"penstock_pipeline_dead_letters_total{{{of}}} 3.0",
            f"penstock_pipeline_late_rows_total{{{of}}} 4.0",
            f"penstock_pipeline_state_rows{{{of}}} 12.0",
            f"penstock_pipeline_batch_id{{{of}}} 3.0",
            f"penstock_pipeline_batch_seconds_count{{{of}}} 2.0",
            f"penstock_pipeline_batch_seconds_sum{{{of}}} 1.0",
            f"penstock_pipeline_watermark_timestamp_seconds{{{of}}} 1.76722561e+09",
            f'penstock_pipeline_lag_records{{partition="0",{of},source="orders",topic="orders"}}'
            " 2000.0",
        }
        assert expected <= set(lines)
        with (
            Metrics("other") as second,
            pytest.raises(PipelineError, match="choose another with --metrics-port"),
        ):
            second.serve(port)


def test_prometheus_can_parse_the_metrics() -> None:
    """In both formats of Prometheus."""
    name = 'a "b" \\ \n'
    with Metrics(name) as metrics:
        port = metrics.serve(0)
        metrics.finished(replace(REPORT, query=name))
        metrics.stored(name, Batch("id", 3, {}, {}), WriteResult(rows=70, dead_letters=3))
        plain, open_metrics = (
            scraped(port, accept)
            for accept in ("text/plain;version=0.0.4", "application/openmetrics-text;version=1.0.0")
        )
    for kinds, samples in (plain, open_metrics):
        assert kinds == {
            "penstock_pipeline_records": "counter",
            "penstock_pipeline_rows": "counter",
            "penstock_pipeline_dead_letters": "counter",
            "penstock_pipeline_late_rows": "counter",
            "penstock_pipeline_batch_seconds": "histogram",
            "penstock_pipeline_state_rows": "gauge",
            "penstock_pipeline_batch_id": "gauge",
            "penstock_pipeline_watermark_timestamp_seconds": "gauge",
            "penstock_pipeline_lag_records": "gauge",
        }
        current_samples = [sample for sample in samples if not sample.name.endswith("_created")]
        assert {(item.labels["pipeline"], item.labels["query"]) for item in current_samples} == {
            (name, name)
        }
        values = {item.name: item.value for item in current_samples}
        assert values["penstock_pipeline_records_total"] == 5_000
        assert values["penstock_pipeline_batch_seconds_sum"] == 0.5
        buckets = {
            float(item.labels["le"]): item.value
            for item in current_samples
            if item.name.endswith("_bucket")
        }
        assert (buckets[0.25], buckets[0.5], buckets[float("inf")]) == (0, 1, 1)
        lag = {
            item.labels["partition"]: item.value
            for item in current_samples
            if "lag_records" in item.name
        }
        assert lag == {"0": 2_000, "1": 0, "2": 40}


def scraped(port: int, accept: str) -> tuple[dict[str, str], list[Sample]]:
    """Returns the types of all metrics, and their samples."""
    request = Request(f"http://127.0.0.1:{port}/metrics", headers={"Accept": accept})
    with urlopen(request) as response:
        assert response.headers["Content-Type"].startswith(accept.partition(";")[0])
        text = response.read().decode()
    parse = text_string_to_metric_families
    if accept.startswith("application/"):
        parse = openmetrics_parser.text_string_to_metric_families
    families = [item for item in parse(text) if not item.name.endswith("_created")]
    kinds = {family.name: family.type for family in families}
    assert all(family.documentation for family in families)
    return kinds, [sample for family in families for sample in family.samples]


def test_lag_uses_current_end_offsets_instead_of_planned_ones() -> None:
    """A query that reads all records in each batch lags as well if batches take long."""
    with Broker() as broker:
        broker.create_topic("orders", 2)
        ends = LatestOffsets({"bootstrap.servers": broker.bootstrap_servers})
        planned = replace(REPORT, end=at(3, 0), latest=at(3, 0))
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send_many("orders", [b"x"] * 10, partition=0).result()
        assert planned.lag == 0
        assert ends.update(planned).lag == 7
        # A broker that reports lower offsets, or none.
        assert ends.update(replace(planned, latest=at(30, 0))).lag == 27
        assert ends.update(replace(planned, latest={"x": offsets(5, topic="gone")})).latest == {
            "x": offsets(5, topic="gone")
        }
        assert ends.update(replace(planned, end={}, latest={})).lag == 0
        ends.close()
        ends.close()


def test_the_offsets_of_the_slowest_query_are_committed() -> None:
    slowest = SlowestOffsets()
    assert slowest.update("one", at(5, 9)) == {ORDERS_0: 5, ORDERS_1: 9}
    assert slowest.update("two", at(3)) == {ORDERS_0: 3}
    assert slowest.update("one", at(8, 11)) == {ORDERS_0: 3, ORDERS_1: 11}
    assert slowest.update("two", at(9)) == {ORDERS_0: 8}
    two_sources = {"a": offsets(4, source="a"), "b": offsets(2, source="b")}
    assert slowest.update("three", two_sources) == {ORDERS_0: 2}


def test_the_lag_is_visible_as_that_of_a_consumer_group() -> None:
    """D4."""
    with Broker() as broker:
        client = {"bootstrap.servers": broker.bootstrap_servers}
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("orders", 2)])
            with GroupLag("shop", client) as lag:
                # A query that has not finished a batch counts, too.
                lag.begins("shop.slow", at(6))
                for end in (at(5, 9), at(7, 9), {}):
                    lag.finished(replace(REPORT, end=end))
            result = admin.list_group_offsets(["shop"])["shop"]
    assert {item: result[item].offset for item in result if result[item]} == {  # type: ignore[union-attr]
        ORDERS_0: 6,
        ORDERS_1: 9,
    }


def test_an_unreachable_broker_does_not_stop_the_pipeline(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = {"bootstrap.servers": "127.0.0.1:1", "default.api.timeout.ms": "300"}
    client["request.timeout.ms"] = "200"
    with GroupLag("shop", client) as lag:
        lag.finished(REPORT)
    assert "the lag of group shop is not up to date" in caplog.text
