"""How far a query has read: offsets of its sources, as Spark and the sinks keep them.

A source's offsets are, in Spark's offset log, the JSON of Spark's own Kafka source with one entry
more, whose name cannot be that of a topic:

    {"#penstock": {"source": "clicks", "topicIds": {"clicks": "Zm9v…"}}, "clicks": {"0": 17}}

The ids are there because offsets of a topic mean nothing once it was deleted and made again.
Spark compares offsets as text, so the order of the keys is fixed. The end of a query's first batch
says in the same entry where the batch began, because Spark keeps ends alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from penstock.core.ids import TopicPartition
from penstock.spark.errors import ProgressError

_OURS = "#penstock"
_BEGIN = "begin"

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


@dataclass(frozen=True)
class SourceOffsets:
    """The next offset to be read of each partition of a source."""

    offsets: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """By topic; none for a topic whose broker has no ids (before Kafka 2.8)."""
    source: str = ""
    """The name that a pipeline gave to the source."""

    def to_json(self) -> dict[str, Json]:
        """As Spark writes it down."""
        topics: dict[str, dict[int, int]] = {}
        for (topic, partition), offset in self.offsets.items():
            topics.setdefault(topic, {})[partition] = offset
        ours: dict[str, Json] = {}
        if self.source:
            ours["source"] = self.source
        if self.topic_ids:
            ours["topicIds"] = {name: self.topic_ids[name] for name in sorted(self.topic_ids)}
        found: dict[str, Json] = {_OURS: ours} if ours else {}
        for topic in sorted(topics):
            partitions = topics[topic]
            found[topic] = {
                str(partition): partitions[partition] for partition in sorted(partitions)
            }
        return found

    @classmethod
    def from_json(cls, written: Mapping[str, Json]) -> "SourceOffsets":
        """Also of a checkpoint that Spark's own Kafka source has written, which has no ids."""
        ours = written.get(_OURS, {})
        if not isinstance(ours, dict):
            raise ProgressError(f"{_OURS!r} in the offsets is not an object: {written}")
        ids = ours.get("topicIds", {})
        source = ours.get("source", "")
        if not isinstance(ids, dict) or not isinstance(source, str):
            raise ProgressError(f"the offsets are not those of this source: {written}")
        offsets: dict[TopicPartition, int] = {}
        for topic, partitions in written.items():
            if topic == _OURS:
                continue
            if not isinstance(partitions, dict):
                raise ProgressError(f"the offsets of topic {topic} are not an object: {written}")
            for partition, offset in partitions.items():
                if not isinstance(offset, int) or not partition.isdecimal():
                    raise ProgressError(f"{topic}: {partition}: {offset} is not an offset")
                offsets[TopicPartition(topic, int(partition))] = offset
        return cls(offsets, {name: str(each) for name, each in ids.items()}, source)


def with_first_batch_start(end: Mapping[str, Json], begin: dict[str, Json]) -> dict[str, Json]:
    """Where a first batch ends, and where it began."""
    ours = end.get(_OURS, {})
    assert isinstance(ours, dict)
    return {**end, _OURS: {**ours, _BEGIN: begin}}


def first_batch_start(end: Mapping[str, Json]) -> Mapping[str, Json] | None:
    """Where a batch began, if this is the end of a first one."""
    ours = end.get(_OURS)
    begin = ours.get(_BEGIN) if isinstance(ours, dict) else None
    return begin if isinstance(begin, dict) else None


Progress: TypeAlias = Mapping[str, SourceOffsets]
"""By the name of the source."""


@dataclass(frozen=True)
class Batch:
    """A micro-batch of a query: what it reads."""

    query_id: str
    """Spark's: it lives as long as the checkpoint."""
    batch_id: int
    start: Progress
    end: Progress


@dataclass(frozen=True)
class StoredProgress:
    """How far a sink has come, as it was stored with the results."""

    progress: Progress
    query_id: str = ""
    """Of the last batch."""
    batch_id: int = -1

    def to_json(self) -> dict[str, Json]:
        """As sinks write it down that keep no tables."""
        progress: dict[str, Json] = {name: each.to_json() for name, each in self.progress.items()}
        return {"queryId": self.query_id, "batchId": self.batch_id, "progress": progress}

    @classmethod
    def from_json(cls, written: Mapping[str, Any]) -> "StoredProgress":
        """`KeyError`, `ValueError` and the like where it was written by something else."""
        progress = {
            name: SourceOffsets.from_json(each) for name, each in written["progress"].items()
        }
        return cls(progress, written["queryId"], int(written["batchId"]))
