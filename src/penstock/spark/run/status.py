"""The status of a pipeline: the progress of its queries and their lag, without Spark.

`penstock pipeline status` shows it, and `plan` takes progress and partition counts from it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition
from penstock.spark.errors import SparkPartError
from penstock.spark.exactly_once import recreated_topics
from penstock.spark.pipeline.model import PipelineSpec, SinkSpec, SourceSpec
from penstock.spark.progress import Progress, SourceOffsets
from penstock.spark.run.compile import views_needed
from penstock.spark.run.offset_log import source_of
from penstock.spark.run.source_options import options_of
from penstock.spark.sinks.kind import SinkState
from penstock.spark.sinks.registry import kind_of

_TIMEOUT_MS = 10_000


class LogEnds(NamedTuple):
    """The first and the next offsets of the partitions of a source."""

    latest: SourceOffsets
    earliest: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class PartitionStatus:
    """The progress of a query in one partition."""

    source: str
    partition: TopicPartition
    next_offset: int | None
    """None: nothing of the partition was read."""
    end: int | None
    """None: the broker does not have the partition, or did not respond."""
    lag: int | None


@dataclass(frozen=True)
class QueryStatus:
    """The progress of one query."""

    key: str
    state: SinkState | None
    """None: the query has never run, or its state could not be read."""
    partitions: tuple[PartitionStatus, ...]
    problems: tuple[str, ...] = ()
    """What could not be read, or is wrong."""

    @property
    def lag(self) -> int:
        return sum(partition.lag or 0 for partition in self.partitions)


@dataclass(frozen=True)
class Status:
    """The progress of all queries of a pipeline."""

    pipeline: str
    queries: tuple[QueryStatus, ...]

    @property
    def lag(self) -> int:
        """The lag of the query that is furthest behind."""
        return max((query.lag for query in self.queries), default=0)


def status(spec: PipelineSpec) -> Status:
    """Returns the status of a pipeline. Changes nothing and does not disturb a running driver.

    Waits only once for a broker that does not respond, for ten seconds unless the pipeline sets
    `default.api.timeout.ms`.
    """
    broker_problem = _broker_problem(spec)
    log_ends: dict[str, LogEnds | str] = {}
    for source in spec.sources:
        try:
            log_ends[source.name] = (
                f"source {source.name}: {broker_problem}"
                if broker_problem
                else _read_log_ends(spec, source)
            )
        except KafkaError as error:
            log_ends[source.name] = f"source {source.name}: {error.message}"
    queries = (_query_status(spec, sink, log_ends, broker_problem) for sink in spec.sinks)
    return Status(spec.name, tuple(queries))


def _broker_problem(spec: PipelineSpec) -> str | None:
    """Returns why the brokers do not respond; None if they do."""
    from penstock.spark.clients import new_admin

    limits = dict.fromkeys(("default.api.timeout.ms", "request.timeout.ms"), str(_TIMEOUT_MS))
    client = limits | spec.client_settings
    try:
        with new_admin(client) as admin:
            admin.describe_cluster()
    except KafkaError as error:
        return error.message
    return None


def _read_log_ends(spec: PipelineSpec, source: SourceSpec) -> LogEnds:
    from penstock.spark.source.broker_offsets import BrokerOffsets
    from penstock.spark.source.options import stream_options

    with BrokerOffsets(stream_options(options_of(spec, source))) as broker:
        latest = broker.latest()
        return LogEnds(latest, broker.earliest(latest.offsets))


def _query_status(
    spec: PipelineSpec,
    sink: SinkSpec,
    log_ends: Mapping[str, LogEnds | str],
    broker_problem: str | None,
) -> QueryStatus:
    state: SinkState | None = None
    problems: tuple[str, ...] = (f"sink {sink.name}: {broker_problem}",)
    if not broker_problem or not kind_of(sink).state_needs_broker:
        state, problems = read_state(spec, sink)
    stored: Progress = state.stored.progress if state and state.stored else {}
    names = list(stored)
    needed = views_needed(spec, sink.view)
    names += [
        source.name
        for source in spec.sources
        if source.name in needed and source.name not in stored
    ]
    partitions: list[PartitionStatus] = []
    for name in names:
        ends = log_ends.get(source_of(name))
        if ends is None:
            problems = (*problems, f"source {name} is no longer in the pipeline")
        elif isinstance(ends, str):
            problems = (*problems, ends)
        else:
            read = stored.get(name, SourceOffsets({}))
            problems = (*problems, *_recreated_topic_problems(read, ends.latest))
            partitions += _partition_statuses(name, read, ends)
    return QueryStatus(spec.query(sink), state, tuple(partitions), problems)


def read_state(spec: PipelineSpec, sink: SinkSpec) -> tuple[SinkState | None, tuple[str, ...]]:
    """Returns what a sink has stored, None if its query has never run, and problems."""
    try:
        return kind_of(sink).read_state(spec, sink), ()
    except (SparkPartError, KafkaError, OSError, ValueError) as error:
        return None, (f"sink {sink.name}: {error}",)


def _recreated_topic_problems(read: SourceOffsets, now: SourceOffsets) -> list[str]:
    return [
        f"topic {topic} was deleted and created again: the pipeline stops there"
        for topic in sorted(recreated_topics(read, now))
    ]


def _partition_statuses(
    source: str, read: SourceOffsets, ends: LogEnds
) -> Iterator[PartitionStatus]:
    for partition in sorted(read.offsets.keys() | ends.latest.offsets.keys()):
        position, end = read.offsets.get(partition), ends.latest.offsets.get(partition)
        start = ends.earliest.get(partition, 0) if position is None else position
        lag = None if end is None else max(0, end - start)
        yield PartitionStatus(source, partition, position, end, lag)
