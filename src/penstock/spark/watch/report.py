"""What Spark says of a finished micro-batch, as far as a pipeline's user wants to know it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.core.ids import TopicPartition
from penstock.spark.progress import Progress, SourceOffsets


@dataclass(frozen=True)
class BatchReport:
    """A finished micro-batch of one query."""

    query: str
    batch_id: int
    records: int
    """Read from the topics."""
    duration_ms: int
    end: Progress
    latest: Progress
    """Where the topics end. Spark says where they did when the batch was planned."""
    watermark: str | None = None
    state_rows: int = 0
    late_rows: int = 0
    """Left out because the watermark had passed them."""

    @property
    def records_per_second(self) -> float:
        return self.records * 1000 / self.duration_ms if self.duration_ms else 0.0

    @property
    def lag(self) -> int:
        """Records that were there and are not read yet."""
        return sum(lag_by_partition(self.end, self.latest).values())


def lag_by_partition(end: Progress, latest: Progress) -> dict[tuple[str, TopicPartition], int]:
    """By source and partition. One that is only in `latest` is new, and counts from zero."""
    found: dict[tuple[str, TopicPartition], int] = {}
    for source, offsets in latest.items():
        read = end.get(source, SourceOffsets({})).offsets
        for partition, last in offsets.offsets.items():
            found[source, partition] = max(0, last - read.get(partition, 0))
    return found


def report_of(query: str, progress: Mapping[str, Any]) -> BatchReport:
    """From the JSON of Spark's StreamingQueryProgress."""
    sources: Sequence[Mapping[str, Any]] = progress.get("sources", ())
    operators: Sequence[Mapping[str, Any]] = progress.get("stateOperators", ())
    end = _progress(sources, "endOffset")
    return BatchReport(
        query=query,
        batch_id=progress["batchId"],
        records=sum(source.get("numInputRows", 0) for source in sources),
        duration_ms=progress.get("batchDuration", 0),
        end=end,
        latest=_progress(sources, "latestOffset") or end,
        watermark=progress.get("eventTime", {}).get("watermark"),
        state_rows=sum(operator.get("numRowsTotal", 0) for operator in operators),
        late_rows=sum(operator.get("numRowsDroppedByWatermark", 0) for operator in operators),
    )


def _progress(sources: Sequence[Mapping[str, Any]], which: str) -> Progress:
    found: dict[str, SourceOffsets] = {}
    for each in sources:
        written = each.get(which)
        # Spark gives it as an object or, from Python, as the text of one.
        offsets = json.loads(written) if isinstance(written, str) else written
        if offsets:
            source = SourceOffsets.from_json(offsets)
            found[source.source] = source
    return found
