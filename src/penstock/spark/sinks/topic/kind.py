"""Topics as a kind of sink: see `sinks/kind.py`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.spark.pipeline.model import PipelineSpec, Problem, SinkSpec
from penstock.spark.sinks.kind import (
    CommonFields,
    LastBatch,
    SinkKind,
    SinkState,
    missing_columns,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.check.relations import Relation
    from penstock.spark.pipeline.yaml_nodes import Part
    from penstock.spark.sinks.port import Sink


@dataclass(frozen=True, kw_only=True)
class TopicSinkSpec(SinkSpec):
    """A topic, or the topics that a column names.

    The view has the columns `key`, `value`, `headers`, `topic`, `partition`, as for Spark's Kafka
    sink. A view without `value` is written as JSON objects, with the columns of `key` as the key.
    """

    topic: str | None = None
    key: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)


class TopicSinkKind(SinkKind[TopicSinkSpec]):
    spec_type = TopicSinkSpec
    keys = ("topic", "key", "options")
    required_keys = "topic"
    dead_letters_with_rows = "topic"
    state_needs_broker = True

    def parse(self, part: "Part", common: CommonFields) -> TopicSinkSpec:
        return TopicSinkSpec(
            **common,
            topic=part.text("topic", optional=True),
            key=part.texts("key"),
            options=part.settings("options"),
        )

    # --- validate

    def check(self, sink: TopicSinkSpec, relation: "Relation") -> Iterator[Problem]:
        from penstock.spark.check.spec_check import destination_problem

        if sink.topic is None:
            if relation.is_complete and not relation.find("topic"):
                message = f"say the topic: {sink.view} has no column topic to name it row by row"
                yield sink.problem("topic", message)
        else:
            name_problem = destination_problem(sink.topic)
            if name_problem is not None:
                yield sink.problem("topic", name_problem)
        yield from missing_columns(sink, "key", sink.key, relation)
        if relation.is_complete and not relation.columns:
            yield sink.problem("from", f"{sink.view} has no columns to write")

    def topics(self, sink: TopicSinkSpec) -> Sequence[str]:
        return (sink.topic,) if sink.topic else ()

    # --- plan

    def describe(self, sink: TopicSinkSpec) -> str:
        where = f"topic {sink.topic}" if sink.topic is not None else "the topics of its column"
        key = f", keyed by {', '.join(sink.key)}" if sink.key else ""
        return f"{sink.view} into {where}{key}"

    def guarantee(self, sink: TopicSinkSpec, dead_letters: str) -> str:
        return (
            "exactly once for readers with isolation.level=read_committed: "
            f"rows{dead_letters} and offsets are one Kafka transaction"
        )

    # --- run, rebuild and status

    def create(self, spec: PipelineSpec, sink: TopicSinkSpec, spark: "SparkSession") -> "Sink":
        from penstock.spark.sinks.topic.sink import TopicSink

        topic = spec.dead_letters.topic if spec.dead_letters is not None else None
        return TopicSink(sink, spec.query(sink), spec.client_settings, dead_letter_topic=topic)

    def read_state(self, spec: PipelineSpec, sink: TopicSinkSpec) -> SinkState | None:
        from penstock.spark.clients import new_admin
        from penstock.spark.sinks.topic.ledger import TOPIC, Ledger

        with new_admin(spec.client_settings) as admin:
            if TOPIC not in admin.list_topics(include_internal=True):
                return None
        with Ledger(spec.client_settings) as ledger:
            entry = ledger.read(spec.query(sink))
        if entry is None:
            return None
        has_run = entry.stored is not None and entry.stored.batch_id >= 0
        last_batch = LastBatch(entry.rows) if has_run else None
        return SinkState(entry.stored, entry.owner, last_batch=last_batch)
