"""Checks of a pipeline's topics against the broker."""

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
    """The topics of a cluster. Every call may raise `KafkaError`."""

    def names(self) -> Sequence[str]:
        """Returns all topics that the user may see."""

    def partitions(self, topics: Sequence[str]) -> Mapping[str, int | KafkaError]:
        """Returns how many partitions each topic has, or why that is unknown."""

    def creates_missing(self) -> bool:
        """Returns whether the broker creates a missing topic when a client writes to it."""


class BrokerTopics:
    """The topics of a real cluster."""

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
            counts = {str(name): len(topic.partitions) for name, topic in error.results.items()}
            return {**counts, **{str(name): cause for name, cause in error.errors.items()}}
        return {str(name): len(topic.partitions) for name, topic in described.items()}

    def creates_missing(self) -> bool:
        """Returns True also if the user may not read the setting."""
        from penstock.client.admin import ConfigResource, ConfigResourceType

        try:
            nodes = self._admin.describe_cluster(timeout_ms=_TIMEOUT_MS).nodes
            broker = ConfigResource(ConfigResourceType.BROKER, str(nodes[0].id))
            configs = self._admin.describe_configs(
                [broker], names=[_AUTO_CREATE], timeout_ms=_TIMEOUT_MS
            )
        except (KafkaError, LookupError):
            return True
        entry = configs[broker].get(_AUTO_CREATE)
        return entry is None or entry.value != "false"


@contextmanager
def broker_topics(spec: PipelineSpec) -> Iterator[BrokerTopics]:
    """Yields the topics of the pipeline's cluster. Raises `KafkaError` if it is unreachable."""
    from penstock.spark.clients import new_admin

    client = {"request.timeout.ms": str(_TIMEOUT_MS), **spec.client_settings}
    with new_admin(client, default_api_timeout_ms=_TIMEOUT_MS) as admin:
        yield BrokerTopics(admin)


def check_topics(spec: PipelineSpec, topics: Topics) -> list[Problem]:
    """Returns a problem for each topic that does not exist or may not be read."""
    used_topics = sorted(
        {topic for source in spec.sources for topic in source.topics}
        | {topic for sink in spec.sinks for topic in kind_of(sink).topics(sink)}
    )
    try:
        existing = topics.names()
        counts = topics.partitions(used_topics)
    except KafkaError as error:
        message = f"the broker cannot be reached: {error.message}"
        return [spec.problem("bootstrap_servers", message)]
    problems: list[Problem] = []
    for source in spec.sources:
        problems += _check_source(source, existing, counts)
    for sink in spec.sinks:
        for topic in kind_of(sink).topics(sink):
            count = counts.get(topic)
            if _is_missing(count) and topics.creates_missing():
                continue
            problem = _topic_problem(topic, count, existing)
            problems += [] if problem is None else [sink.problem("topic", problem)]
    return problems


def matching_topics(pattern: str, names: Sequence[str]) -> list[str]:
    """Returns the topics that a source with this pattern reads."""
    return [name for name in names if re.search(pattern, name)]


def _check_source(
    source: SourceSpec, existing: Sequence[str], counts: Mapping[str, int | KafkaError]
) -> list[Problem]:
    if source.pattern is not None:
        try:
            if matching_topics(source.pattern, existing):
                return []
        except re.error:
            return []
        names = ", ".join(existing[:8]) or "none"
        message = f"no topic matches {source.pattern} (topics: {names})"
        return [source.problem("pattern", message)]
    return [
        source.topic_problem(topic, problem)
        for topic in source.topics
        if (problem := _topic_problem(topic, counts.get(topic), existing)) is not None
    ]


def _topic_problem(
    topic: str, count: int | KafkaError | None, existing: Sequence[str]
) -> str | None:
    if _is_missing(count):
        advice = suggestion(topic, existing)
        if not advice.startswith(":"):
            advice = f": create it (`penstock topic create {topic}`){advice}"
        return f"unknown topic {topic}{advice}"
    return f"topic {topic}: {count.message}" if isinstance(count, KafkaError) else None


def _is_missing(count: int | KafkaError | None) -> bool:
    if isinstance(count, KafkaError):
        return count.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return count is None
