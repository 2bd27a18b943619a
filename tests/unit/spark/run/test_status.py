"""The status of a pipeline, without Spark and without disturbing a driver."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.client import Admin, Producer
from penstock.client.admin import NewTopic
from penstock.core.ids import TopicPartition
from penstock.spark.pipeline.model import (
    PipelineSpec,
    SourceSpec,
)
from penstock.spark.progress import Batch, Progress, SourceOffsets, StoredProgress
from penstock.spark.run.status import PartitionStatus, read_state, status
from penstock.spark.sinks.database.kind import DatabaseSinkSpec
from penstock.spark.sinks.database.sink import DatabaseSink
from penstock.spark.sinks.parquet.commit_log import DIRECTORY, Commit
from penstock.spark.sinks.parquet.kind import ParquetSinkSpec
from penstock.spark.sinks.topic.kind import TopicSinkSpec
from penstock.spark.sinks.topic.sink import TopicSink
from penstock.testing import Broker

PARTITION = TopicPartition("orders", 0)


def at(offset: int) -> Progress:
    return {"orders": SourceOffsets({PARTITION: offset}, {}, "orders")}


@pytest.fixture
def spec(tmp_path: Path) -> "PipelineSpec":
    return PipelineSpec(
        name="shop",
        bootstrap_servers="127.0.0.1:1",
        sources=(SourceSpec(name="orders", topics=("orders",), schema="id bigint"),),
        sinks=(
            DatabaseSinkSpec(
                name="table",
                view="orders",
                database=f"sqlite:///{tmp_path}/shop.db",
                table="orders",
            ),
            TopicSinkSpec(name="copy", view="orders", topic="copy"),
            ParquetSinkSpec(name="files", view="orders", path=str(tmp_path / "files")),
        ),
    )


def test_the_state_of_each_kind_of_sink_is_read(spec: PipelineSpec, tmp_path: Path) -> None:
    """D4."""
    table, copy, files = spec.sinks
    assert isinstance(table, DatabaseSinkSpec)
    assert isinstance(copy, TopicSinkSpec)
    with Broker() as broker:
        servers = broker.bootstrap_servers
        spec = PipelineSpec(**{**spec.__dict__, "bootstrap_servers": servers})
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topics([NewTopic("orders", 1), NewTopic("copy", 1)])
        with Producer(bootstrap_servers=servers) as producer:
            for number in range(10):
                producer.send("orders", b"%d" % number)

        before = status(spec)
        assert [query.state for query in before.queries] == [None, None, None]
        assert before.lag == 10
        assert not (tmp_path / "shop.db").exists()
        assert not (tmp_path / "files").exists()
        with Admin(bootstrap_servers=servers) as admin:
            assert sorted(admin.list_topics()) == ["copy", "orders"]

        rows = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
        sink = DatabaseSink(table, spec.query(table))
        sink.open("ann")
        sink.begin_at(at(0))
        sink.write_table(rows, Batch("q", 0, at(0), at(3)))
        sink.close()
        values = pa.table({"value": pa.array(["a", "b"], pa.string())})
        topic = TopicSink(copy, spec.query(copy), {"bootstrap.servers": servers})
        topic.open("bob")
        topic.begin_at(at(0))
        topic.write_table(values, Batch("q", 4, at(0), at(7)))
        topic.close()
        commit = Commit(1, "batch", StoredProgress(at(10), "q", 2), "cleo", rows=10)
        commit_log = tmp_path / "files" / DIRECTORY / spec.query(files)
        commit_log.mkdir(parents=True)
        (commit_log / "00000000000000000001.json").write_bytes(commit.to_bytes(datetime.now(UTC)))

        result = status(spec)
    assert [query.lag for query in result.queries] == [7, 3, 0]
    assert result.lag == 7
    states = [query.state for query in result.queries]
    assert [state.owner for state in states if state] == ["ann", "bob", "cleo"]
    assert [state.last_batch.rows for state in states if state and state.last_batch] == [3, 2, 10]
    assert [state.stored.batch_id for state in states if state and state.stored] == [0, 4, 2]
    assert result.queries[1].partitions == (PartitionStatus("orders", PARTITION, 7, 10, 3),)
    assert [query.problems for query in result.queries] == [(), (), ()]


def test_a_broker_that_does_not_respond_is_waited_for_once(spec: PipelineSpec) -> None:
    """E6: everything that does not need the broker is still shown."""
    spec = PipelineSpec(**{**spec.__dict__, "kafka": {"default.api.timeout.ms": "300"}})
    table = spec.sinks[0]
    assert isinstance(table, DatabaseSinkSpec)
    sink = DatabaseSink(table, spec.query(table))
    sink.open("ann")
    sink.begin_at(at(0))
    sink.close()
    result = status(spec)
    assert [bool(query.state) for query in result.queries] == [True, False, False]
    assert [len(query.problems) for query in result.queries] == [1, 2, 1]
    [response] = {
        problem.partition(": ")[2] for query in result.queries for problem in query.problems
    }
    assert "127.0.0.1:1" in response


def test_a_file_system_that_is_not_known_is_a_problem_and_no_traceback(spec: PipelineSpec) -> None:
    files = ParquetSinkSpec(name="files", view="orders", path="nofs://bucket/files")
    state, [problem] = read_state(spec, files)
    assert state is None
    assert problem.startswith("sink files: Unrecognized filesystem type")
