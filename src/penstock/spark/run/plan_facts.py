"""Facts from Spark's analysed plan of a query: the streams that it reads and its state."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.spark.errors import PipelineError
from penstock.spark.run.session import JavaObject

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_STATEFUL = (
    "Aggregate",
    "Distinct",
    "Except",
    "Deduplicate",
    "DeduplicateWithinWatermark",
    "GlobalLimit",
    "LocalLimit",
    "Offset",
)
_PLANS = "org.apache.spark.sql.catalyst.plans.logical"
_NOT_QUERIES = ("Command", "ParsedStatement", "ScriptTransformation")
_STATEFUL_BY_PREFIX = ("FlatMapGroups", "TransformWithState")


@dataclass(frozen=True)
class PlanFacts:
    sources: tuple[str, ...]
    """The option `sourceName` of each stream, in Spark's order; a source that is read twice occurs
    twice."""
    stateful: bool
    updates: bool
    """Whether the plan has aggregates that Spark can emit each time they change."""


def facts_of(frame: "DataFrame") -> PlanFacts:
    """Returns the facts of a streaming frame; `PipelineError` for streams that are no sources."""
    sources: list[str] = []
    stateful = aggregates = sessions = False
    for node in _nodes(frame._jdf.queryExecution().analyzed()):
        kind: str = node.getClass().getSimpleName()
        if kind == "StreamingRelationV2":
            sources.append(node.extraOptions().get("sourceName") or "")
        elif kind == "StreamingRelation":
            sources.append("")
        elif node.isStreaming() and _keeps_state(kind, node):
            stateful = True
            aggregates = aggregates or kind in ("Aggregate", "Distinct", "Except")
            sessions = sessions or "session_window" in node.toString()
    if "" in sources:
        raise PipelineError(
            "a step reads a stream that is not a source of the pipeline: its offsets would not be "
            "stored with the results",
            remedy="make it a source, or read it as a static table",
        )
    return PlanFacts(tuple(sources), stateful, aggregates and not sessions)


def refused_operation(spark: "SparkSession", sql: str) -> str | None:
    """Returns Spark's name of the part of a statement that does more than query, or None.

    Spark runs such a statement as soon as it has analysed it.
    """
    plan: JavaObject = spark._jsparkSession.sessionState().sqlParser().parsePlan(sql)
    loader = plan.getClass().getClassLoader()
    refused_kinds = [loader.loadClass(f"{_PLANS}.{name}") for name in _NOT_QUERIES]
    for node in _nodes(plan):
        name = str(node.nodeName())
        if "ExecuteImmediate" in name or any(kind.isInstance(node) for kind in refused_kinds):
            return name
    return None


def _keeps_state(kind: str, node: JavaObject) -> bool:
    if kind == "Join":
        return all(child.isStreaming() for child in _children(node))
    return kind in _STATEFUL or kind.startswith(_STATEFUL_BY_PREFIX)


def _nodes(node: JavaObject) -> Iterator[JavaObject]:
    """Yields the nodes in the order in which Spark numbers its sources."""
    yield node
    for child in _children(node):
        yield from _nodes(child)


def _children(node: JavaObject) -> list[JavaObject]:
    children = node.children()
    return [children.apply(index) for index in range(children.size())]
