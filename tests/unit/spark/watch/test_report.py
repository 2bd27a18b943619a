"""What is shown of a running pipeline: reports, the progress line, metrics, lag (D4)."""

import io
import json
from dataclasses import replace
from urllib.request import urlopen

import pytest

from penstock.client import Admin
from penstock.client.admin import NewTopic
from penstock.core.ids import TopicPartition
from penstock.spark.errors import PipelineError
from penstock.spark.progress import Batch, Progress, SourceOffsets
from penstock.spark.sinks.port import Applied
from penstock.spark.watch.lag import Behind, GroupLag
from penstock.spark.watch.metrics import Metrics
from penstock.spark.watch.progress_line import ProgressLine, line_of
from penstock.spark.watch.report import BatchReport, report_of
from penstock.testing import Broker

ORDERS_0 = TopicPartition("orders", 0)
ORDERS_1 = TopicPartition("orders", 1)


def offsets(*values: int, source: str = "orders", topic: str = "orders") -> SourceOffsets:
    partitions = {TopicPartition(topic, index): each for index, each in enumerate(values)}
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
def test_a_report_is_what_spark_says(as_text: bool) -> None:
    def given(*values: int) -> object:
        written = offsets(*values).to_json()
        return json.dumps(written) if as_text else written

    said = {
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
    assert report_of("shop.main", said) == REPORT


def test_a_partition_that_nothing_was_read_of_counts_from_its_beginning() -> None:
    assert REPORT.lag == 2_000 + 40


def test_a_batch_without_time_has_no_speed() -> None:
    assert BatchReport("q", 0, 5, 0, {}, {}).records_per_second == 0


def test_the_line_says_what_a_person_wants_to_know() -> None:
    assert line_of(REPORT) == (
        "shop.main  batch 3  5,000 records  10,000/s  lag 2,040  500 ms  "
        "watermark 2026-01-01T00:00:10.000Z  state 12 rows  2 late"
    )
    assert line_of(BatchReport("q", 0, 0, 9, {}, {})) == ("q  batch 0  0 records  0/s  lag 0  9 ms")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_has_one_line_and_a_file_one_for_each_batch_that_read() -> None:
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
    assert terminal.getvalue() == f"{clear}{line_of(REPORT)}{clear}{line_of(idle)}\n"


def test_metrics_are_served_for_prometheus() -> None:
    with Metrics("shop") as metrics:
        port = metrics.serve(0)
        metrics.finished(REPORT)
        metrics.finished(REPORT)
        metrics.stored("shop.main", Batch("id", 3, {}, {}), Applied(rows=70, dead_letters=3))
        with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            lines = answer.read().decode().splitlines()
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
            f"penstock_pipeline_watermark_seconds{{{of}}} 1.76722561e+09",
            f'penstock_pipeline_lag_records{{partition="0",{of},source="orders",topic="orders"}}'
            " 2000.0",
        }
        assert expected <= set(lines)
        with (
            Metrics("other") as second,
            pytest.raises(PipelineError, match="Choose another port with --metrics-port"),
        ):
            second.serve(port)


def test_the_slowest_query_counts() -> None:
    behind = Behind()
    assert behind.moved("one", at(5, 9)) == {ORDERS_0: 5, ORDERS_1: 9}
    assert behind.moved("two", at(3)) == {ORDERS_0: 3}
    assert behind.moved("one", at(8, 11)) == {ORDERS_0: 3, ORDERS_1: 11}
    assert behind.moved("two", at(9)) == {ORDERS_0: 8}
    both = {"a": offsets(4, source="a"), "b": offsets(2, source="b")}
    assert behind.moved("three", both) == {ORDERS_0: 2}


def test_every_kafka_tool_sees_the_lag() -> None:
    """D4."""
    with Broker() as broker:
        client = {"bootstrap.servers": broker.bootstrap_servers}
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("orders", 2)])
            with GroupLag("shop", client) as lag:
                for end in (at(5, 9), at(6, 9), {}):
                    lag.finished(replace(REPORT, end=end))
            found = admin.list_group_offsets(["shop"])["shop"]
    assert {each: found[each].offset for each in found if found[each]} == {  # type: ignore[union-attr]
        ORDERS_0: 6,
        ORDERS_1: 9,
    }


def test_a_broker_that_is_away_does_not_stop_the_pipeline(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = {"bootstrap.servers": "127.0.0.1:1", "default.api.timeout.ms": "300"}
    client["request.timeout.ms"] = "200"
    with GroupLag("shop", client) as lag:
        lag.finished(REPORT)
    assert "the lag of group shop is not up to date" in caplog.text
