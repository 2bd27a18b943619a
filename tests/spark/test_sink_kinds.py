"""A kind of sink that only this file knows works in every command of a pipeline."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.client.producer.producer import Producer
from penstock.spark.check.plan import plan
from penstock.spark.check.relations import Relation
from penstock.spark.check.validate import validate
from penstock.spark.pipeline.api import Pipeline
from penstock.spark.pipeline.model import PipelineSpec, Problem, SinkSpec
from penstock.spark.pipeline.yaml_file import parse
from penstock.spark.pipeline.yaml_nodes import Part
from penstock.spark.run.rebuild import rebuild
from penstock.spark.run.run import run
from penstock.spark.run.status import status
from penstock.spark.sinks import registry
from penstock.spark.sinks.kind import CommonFields, LastBatch, SinkKind, SinkState, missing_columns
from penstock.spark.sinks.port import Sink
from penstock.testing import Broker
from tests.support.spark.memory_sink import Memory, MemorySink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINE = """
name: toy
bootstrap_servers: {servers}
checkpoint: checkpoints
sources:
  clicks:
    topic: clicks
    schema: id bigint, page string
sinks:
  latest:
    from: clicks
    memory: pages
    unique: {unique}
"""


@dataclass(frozen=True, kw_only=True)
class MemorySinkSpec(SinkSpec):
    memory: str
    unique: tuple[str, ...] = ()


class MemorySinkKind(SinkKind[MemorySinkSpec]):
    spec_type = MemorySinkSpec
    keys = ("memory", "unique")
    required_keys = "memory"

    def __init__(self) -> None:
        self.memories: dict[str, Memory] = {}

    def parse(self, part: Part, common: CommonFields) -> MemorySinkSpec:
        return MemorySinkSpec(
            **common, memory=part.text("memory") or "", unique=part.texts("unique")
        )

    def check(self, sink: MemorySinkSpec, relation: Relation) -> Iterator[Problem]:
        yield from missing_columns(sink, "unique", sink.unique, relation)

    def describe(self, sink: MemorySinkSpec) -> str:
        return f"{sink.view} into the memory {sink.memory}"

    def guarantee(self, sink: MemorySinkSpec, dead_letters: str) -> str:
        return "exactly once, until the process ends"

    def create(self, spec: PipelineSpec, sink: MemorySinkSpec, spark: "SparkSession") -> Sink:
        memory = self.memories.setdefault(sink.memory, Memory())
        return MemorySink(memory, key=sink.unique)

    def read_state(self, spec: PipelineSpec, sink: MemorySinkSpec) -> SinkState | None:
        memory = self.memories.get(sink.memory)
        if memory is None:
            return None
        return SinkState(memory.stored, memory.owner, last_batch=LastBatch(len(memory.rows)))


@pytest.fixture
def kind(monkeypatch: pytest.MonkeyPatch) -> MemorySinkKind:
    kind = MemorySinkKind()
    monkeypatch.setitem(registry.SINK_KINDS, MemorySinkSpec, kind)
    return kind


def parse_pipeline(directory: Path, servers: str, unique: str = "id") -> PipelineSpec:
    text = PIPELINE.format(servers=servers, unique=unique)
    spec, problems = parse(text, str(directory / "pipeline.yml"))
    assert spec is not None
    assert not problems
    return spec


@pytest.mark.usefixtures("kind")
def test_a_new_kind_is_parsed_checked_and_planned(tmp_path: Path) -> None:
    spec = parse_pipeline(tmp_path, "localhost:9092")
    [sink] = spec.sinks
    assert isinstance(sink, MemorySinkSpec)
    assert (sink.view, sink.memory, sink.unique) == ("clicks", "pages", ("id",))
    assert validate(spec) == []
    plan_text = plan(spec)
    assert "clicks into the memory pages" in plan_text
    assert "exactly once, until the process ends" in plan_text
    [problem] = validate(parse_pipeline(tmp_path, "localhost:9092", unique="ids"))
    assert problem.where == "sinks.latest.unique"
    assert "clicks has no column ids: did you mean id?" in problem.message


@pytest.mark.usefixtures("kind")
def test_a_file_without_a_kind_names_the_new_one_too() -> None:
    text = PIPELINE.format(servers="localhost:9092", unique="id").replace("memory: pages", "")
    _, problems = parse(text, "pipeline.yml")
    assert any("or path, or memory" in problem.message for problem in problems)


def test_a_new_kind_is_run_cleared_and_has_a_status(
    spark: "SparkSession", broker: Broker, tmp_path: Path, kind: MemorySinkKind
) -> None:
    broker.create_topic("clicks")
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        values = [b'{"id": %d, "page": "p%d"}' % (number % 3, number) for number in range(5)]
        producer.send_many("clicks", values).result()
    spec = parse_pipeline(tmp_path, broker.bootstrap_servers)
    pipeline = Pipeline("toy", bootstrap_servers=broker.bootstrap_servers)
    pipeline.add_sink(spec.sinks[0])
    assert pipeline.spec.sinks == spec.sinks
    [query] = status(spec).queries
    assert (query.state, query.lag) == (None, 5)
    assert run(spec, once=True, spark=spark).rows == 5
    assert {row["page"] for row in kind.memories["pages"].rows} == {"p2", "p3", "p4"}
    [query] = status(spec).queries
    assert query.lag == 0
    assert query.state is not None
    assert query.state.last_batch == LastBatch(3)
    rebuild(spec, spark)
    assert kind.memories["pages"].rows == []
    assert status(spec).lag == 5
