"""The progress of a query: the offsets of its sources, as Spark and the sinks store them.

In Spark's offset log, the offsets of a source are the JSON of Spark's own Kafka source with one
more entry, whose name cannot be the name of a topic:

    {"#penstock": {"source": "clicks", "topicIds": {"clicks": "Zm9v…"}}, "clicks": {"0": 17}}

The topic ids are stored because the offsets of a topic are meaningless once it was deleted and
created again. Spark compares offsets as text, so the order of the keys is fixed. The end offsets of
a query's first batch contain its start offsets in the same entry, because Spark stores only ends.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from penstock.core.ids import TopicPartition
from penstock.spark.errors import ProgressError

_PROGRESS_KEY = "#penstock"
_BEGIN = "begin"

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


@dataclass(frozen=True)
class SourceOffsets:
    """The next offset to read of each partition of a source."""

    offsets: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """By topic; brokers before Kafka 2.8 have none."""
    source: str = ""
    """The name of the source in a pipeline; empty outside of pipelines."""

    def to_json(self) -> dict[str, Json]:
        """Returns the offsets as Spark stores them."""
        topics: dict[str, dict[int, int]] = {}
        for (topic, partition), offset in self.offsets.items():
            topics.setdefault(topic, {})[partition] = offset
        own_progress: dict[str, Json] = {}
        if self.source:
            own_progress["source"] = self.source
        if self.topic_ids:
            own_progress["topicIds"] = {
                name: self.topic_ids[name] for name in sorted(self.topic_ids)
            }
        document: dict[str, Json] = {_PROGRESS_KEY: own_progress} if own_progress else {}
        for topic in sorted(topics):
            partitions = topics[topic]
            document[topic] = {
                str(partition): partitions[partition] for partition in sorted(partitions)
            }
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Json]) -> "SourceOffsets":
        """Also reads what Spark's own Kafka source has written, which has no topic ids.

        Raises `ProgressError` if the document is neither.
        """
        own_progress = document.get(_PROGRESS_KEY, {})
        if not isinstance(own_progress, dict):
            raise ProgressError(f"{_PROGRESS_KEY!r} in the offsets is not an object: {document}")
        ids = own_progress.get("topicIds", {})
        source = own_progress.get("source", "")
        if not isinstance(ids, dict) or not isinstance(source, str):
            raise ProgressError(f"the offsets are not those of this source: {document}")
        offsets: dict[TopicPartition, int] = {}
        for topic, partitions in document.items():
            if topic == _PROGRESS_KEY:
                continue
            if not isinstance(partitions, dict):
                raise ProgressError(f"the offsets of topic {topic} are not an object: {document}")
            for partition, offset in partitions.items():
                if not isinstance(offset, int) or not partition.isdecimal():
                    raise ProgressError(f"{topic}: {partition}: {offset} is not an offset")
                offsets[TopicPartition(topic, int(partition))] = offset
        return cls(offsets, {name: str(topic_id) for name, topic_id in ids.items()}, source)


def with_first_batch_start(end: Mapping[str, Json], begin: dict[str, Json]) -> dict[str, Json]:
    """Returns the end offsets of a first batch, with its start offsets added."""
    own_progress = end.get(_PROGRESS_KEY, {})
    assert isinstance(own_progress, dict)
    return {**end, _PROGRESS_KEY: {**own_progress, _BEGIN: begin}}


def first_batch_start(end: Mapping[str, Json]) -> Mapping[str, Json] | None:
    """Returns the start offsets that `with_first_batch_start` has added; None if there are none."""
    own_progress = end.get(_PROGRESS_KEY)
    begin = own_progress.get(_BEGIN) if isinstance(own_progress, dict) else None
    return begin if isinstance(begin, dict) else None


Progress: TypeAlias = Mapping[str, SourceOffsets]
"""By the name of the source."""


@dataclass(frozen=True)
class Batch:
    """A micro-batch of a query: the offsets that it reads."""

    query_id: str
    """Spark's id of the query; it is the same as long as the checkpoint exists."""
    batch_id: int
    start: Progress
    end: Progress


@dataclass(frozen=True)
class StoredProgress:
    """The progress that a sink has stored with the results."""

    progress: Progress
    query_id: str = ""
    """Of the last batch."""
    batch_id: int = -1
    """Of the last batch; -1 if none was stored yet."""

    def to_json(self) -> dict[str, Json]:
        """Returns the form that sinks without tables store."""
        progress: dict[str, Json] = {
            name: offsets.to_json() for name, offsets in self.progress.items()
        }
        return {"queryId": self.query_id, "batchId": self.batch_id, "progress": progress}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "StoredProgress":
        """Raises `KeyError`, `ValueError` and the like if something else has written it."""
        progress = {
            name: SourceOffsets.from_json(offsets) for name, offsets in document["progress"].items()
        }
        return cls(progress, document["queryId"], int(document["batchId"]))
