"""How far a pipeline is, from what its sinks have stored and its topics hold: without Spark."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition
from penstock.spark.errors import SparkPartError
from penstock.spark.pipeline.model import PipelineSpec, SinkSpec, SourceSpec
from penstock.spark.progress import Progress, SourceOffsets
from penstock.spark.run.compile import views_needed
from penstock.spark.run.offset_log import source_of
from penstock.spark.run.source_options import options_of
from penstock.spark.sinks.kind import SinkState
from penstock.spark.sinks.registry import kind_of

_TIMEOUT_MS = 10_000


@dataclass(frozen=True)
class PartitionStatus:
    source: str
    partition: TopicPartition
    next_offset: int | None
    """None: nothing of it was read."""
    end: int | None
    """None: the broker does not have it, or could not be asked."""
    lag: int | None


@dataclass(frozen=True)
class QueryStatus:
    key: str
    state: SinkState | None
    """None: it has never run."""
    partitions: tuple[PartitionStatus, ...]
    problems: tuple[str, ...] = ()
    """What could not be found out, or is wrong."""

    @property
    def lag(self) -> int:
        return sum(partition.lag or 0 for partition in self.partitions)


@dataclass(frozen=True)
class Status:
    pipeline: str
    queries: tuple[QueryStatus, ...]

    @property
    def lag(self) -> int:
        """Of the query that is furthest behind."""
        return max((query.lag for query in self.queries), default=0)


def status(spec: PipelineSpec) -> Status:
    """Looks, and changes nothing: a driver that runs is not disturbed.

    A broker that does not answer is waited for once, for ten seconds unless the pipeline says
    otherwise (`default.api.timeout.ms`).
    """
    silent = _silent(spec)
    ends: dict[str, tuple[SourceOffsets, Mapping[TopicPartition, int]] | str] = {}
    for source in spec.sources:
        try:
            ends[source.name] = f"source {source.name}: {silent}" if silent else _ends(spec, source)
        except KafkaError as error:
            ends[source.name] = f"source {source.name}: {error.message}"
    return Status(spec.name, tuple(_query(spec, sink, ends, silent) for sink in spec.sinks))


def _silent(spec: PipelineSpec) -> str | None:
    """Why the broker cannot be asked; None if it can."""
    from penstock.spark.clients import new_admin

    limits = dict.fromkeys(("default.api.timeout.ms", "request.timeout.ms"), str(_TIMEOUT_MS))
    client = limits | spec.client_settings
    try:
        with new_admin(client) as admin:
            admin.describe_cluster()
    except KafkaError as error:
        return error.message
    return None


def _ends(
    spec: PipelineSpec, source: SourceSpec
) -> tuple[SourceOffsets, Mapping[TopicPartition, int]]:
    from penstock.spark.source.broker_offsets import BrokerOffsets
    from penstock.spark.source.options import stream_options

    with BrokerOffsets(stream_options(options_of(spec, source))) as broker:
        latest = broker.latest()
        return latest, broker.earliest(latest.offsets)


def _query(
    spec: PipelineSpec,
    sink: SinkSpec,
    ends: Mapping[str, tuple[SourceOffsets, Mapping[TopicPartition, int]] | str],
    silent: str | None,
) -> QueryStatus:
    state: SinkState | None = None
    problems: tuple[str, ...] = (f"sink {sink.name}: {silent}",)
    if not silent or not kind_of(sink).state_needs_broker:
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
        known = ends.get(source_of(name))
        if known is None:
            problems = (*problems, f"source {name} is not in the pipeline any more")
        elif isinstance(known, str):
            problems = (*problems, known)
        else:
            read = stored.get(name, SourceOffsets({}))
            problems = (*problems, *_replaced(read, known[0]))
            partitions += _partitions(name, read, *known)
    return QueryStatus(spec.query(sink), state, tuple(partitions), problems)


def read_state(spec: PipelineSpec, sink: SinkSpec) -> tuple[SinkState | None, tuple[str, ...]]:
    """Returns what a sink has stored, None if its query has never run, and problems."""
    try:
        return kind_of(sink).read_state(spec, sink), ()
    except (SparkPartError, KafkaError, OSError, ValueError) as error:
        return None, (f"sink {sink.name}: {error}",)


def _replaced(read: SourceOffsets, now: SourceOffsets) -> list[str]:
    return [
        f"topic {topic} was deleted and made again: the pipeline stops there"
        for topic, found in sorted(now.topic_ids.items())
        if read.topic_ids.get(topic, found) != found
    ]


def _partitions(
    source: str,
    read: SourceOffsets,
    latest: SourceOffsets,
    earliest: Mapping[TopicPartition, int],
) -> list[PartitionStatus]:
    found: list[PartitionStatus] = []
    for partition in sorted(read.offsets.keys() | latest.offsets.keys()):
        at, end = read.offsets.get(partition), latest.offsets.get(partition)
        lag = (
            None
            if end is None
            else max(0, end - (earliest.get(partition, 0) if at is None else at))
        )
        found.append(PartitionStatus(source, partition, at, end, lag))
    return found
