"""The topics of a pipeline, as the broker has them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from penstock.core.errors import ErrorCode, KafkaError
from penstock.spark.pipeline.model import PipelineSpec, Problem, SourceSpec
from penstock.spark.pipeline.nearest import suggestion
from penstock.spark.sinks.registry import kind_of

if TYPE_CHECKING:
    from penstock.client.admin.admin import Admin

_TIMEOUT_MS = 10_000
_AUTO_CREATE = "auto.create.topics.enable"


class Topics(Protocol):
    """What checks ask of a broker. Every call may raise `KafkaError`."""

    def names(self) -> Sequence[str]:
        """All topics that the user may see."""

    def partitions(self, topics: Sequence[str]) -> Mapping[str, int | KafkaError]:
        """How many partitions each has, or why that is not known."""

    def are_created(self) -> bool:
        """Whether the broker makes a topic that somebody writes to and that is not there."""


class BrokerTopics:
    """Topics of a real cluster."""

    def __init__(self, admin: "Admin") -> None:
        self._admin = admin

    def names(self) -> Sequence[str]:
        return list(self._admin.list_topics(timeout_ms=_TIMEOUT_MS))

    def partitions(self, topics: Sequence[str]) -> Mapping[str, int | KafkaError]:
        from penstock.client.admin.errors import AdminError

        if not topics:
            return {}
        try:
            described = self._admin.describe_topics(topics, timeout_ms=_TIMEOUT_MS)
        except AdminError as error:
            counted = {str(name): len(each.partitions) for name, each in error.results.items()}
            return {**counted, **{str(name): each for name, each in error.errors.items()}}
        return {str(name): len(each.partitions) for name, each in described.items()}

    def are_created(self) -> bool:
        """Yes, too, where the user may not ask."""
        from penstock.client.admin import ConfigResource, ConfigResourceType

        try:
            nodes = self._admin.describe_cluster(timeout_ms=_TIMEOUT_MS).nodes
            broker = ConfigResource(ConfigResourceType.BROKER, str(nodes[0].id))
            found = self._admin.describe_configs(
                [broker], names=[_AUTO_CREATE], timeout_ms=_TIMEOUT_MS
            )
        except (KafkaError, LookupError):
            return True
        entry = found[broker].get(_AUTO_CREATE)
        return entry is None or entry.value != "false"


@contextmanager
def broker_topics(spec: PipelineSpec) -> Iterator[BrokerTopics]:
    """The topics of the pipeline's own cluster. `KafkaError` if it cannot be reached."""
    from penstock.spark.clients import new_admin

    client = {"request.timeout.ms": str(_TIMEOUT_MS), **spec.client_settings}
    with new_admin(client, default_api_timeout_ms=_TIMEOUT_MS) as admin:
        yield BrokerTopics(admin)


def check_topics(spec: PipelineSpec, topics: Topics) -> list[Problem]:
    """Topics that are not there, or that may not be read."""
    named = sorted(
        {topic for source in spec.sources for topic in source.topics}
        | {topic for sink in spec.sinks for topic in kind_of(sink).topics(sink)}
    )
    try:
        known = topics.names()
        counts = topics.partitions(named)
    except KafkaError as error:
        where = "pipeline.bootstrap_servers"
        line = spec.line_of("bootstrap_servers")
        return [Problem(line, where, f"the broker cannot be asked: {error.message}")]
    found: list[Problem] = []
    for source in spec.sources:
        found += _source(source, known, counts)
    for sink in spec.sinks:
        for topic in kind_of(sink).topics(sink):
            count = counts.get(topic)
            if _is_missing(count) and topics.are_created():
                continue
            line = sink.line_of("topic")
            found += _one(topic, count, known, f"sinks.{sink.name}.topic", line)
    return found


def matching(pattern: str, names: Sequence[str]) -> list[str]:
    """The topics that a source's pattern stands for."""
    return [each for each in names if re.search(pattern, each)]


def _source(
    source: SourceSpec, known: Sequence[str], counts: Mapping[str, int | KafkaError]
) -> list[Problem]:
    where = f"sources.{source.name}"
    if source.pattern is not None:
        try:
            if matching(source.pattern, known):
                return []
        except re.error:
            return []
        listed = ", ".join(known[:8]) or "none"
        return [
            Problem(
                source.line_of("pattern"),
                f"{where}.pattern",
                f"no topic matches {source.pattern} (topics: {listed})",
            )
        ]
    return [
        problem
        for topic in source.topics
        for problem in _one(
            topic, counts.get(topic), known, f"{where}.topic", source.line_of_topic(topic)
        )
    ]


def _one(
    topic: str, count: int | KafkaError | None, known: Sequence[str], where: str, line: int | None
) -> list[Problem]:
    if _is_missing(count):
        advice = suggestion(topic, known)
        if not advice.startswith(":"):
            advice = f": create it (`penstock topic create {topic}`)" + advice
        return [Problem(line, where, f"unknown topic {topic}{advice}")]
    if isinstance(count, KafkaError):
        return [Problem(line, where, f"topic {topic}: {count.message}")]
    return []


def _is_missing(count: int | KafkaError | None) -> bool:
    if isinstance(count, KafkaError):
        return count.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return count is None
