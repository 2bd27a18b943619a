"""Reports of finished micro-batches, parsed from Spark's progress events."""

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
    """Records that were read from the topics."""
    duration_ms: int
    end: Progress
    latest: Progress
    """The end offsets of the topics; Spark reports those at the time of planning."""
    watermark: str | None = None
    state_rows: int = 0
    late_rows: int = 0
    """Rows that were dropped because they are older than the watermark."""

    @property
    def records_per_second(self) -> float:
        return self.records * 1000 / self.duration_ms if self.duration_ms else 0.0

    @property
    def lag(self) -> int:
        """The number of records that exist and were not read yet."""
        return sum(lag_by_partition(self.end, self.latest).values())


def lag_by_partition(end: Progress, latest: Progress) -> dict[tuple[str, TopicPartition], int]:
    """Returns the lag by source and partition; a partition only in `latest` is new, from 0 on."""
    lags: dict[tuple[str, TopicPartition], int] = {}
    for source, offsets in latest.items():
        read = end.get(source, SourceOffsets({})).offsets
        for partition, last in offsets.offsets.items():
            lags[source, partition] = max(0, last - read.get(partition, 0))
    return lags


def report_of(query: str, progress: Mapping[str, Any]) -> BatchReport:
    """Parses the JSON of Spark's StreamingQueryProgress."""
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
    progress: dict[str, SourceOffsets] = {}
    for entry in sources:
        written = entry.get(which)
        # Spark reports an object or, for a Python source, the text of one.
        offsets = json.loads(written) if isinstance(written, str) else written
        if offsets:
            source = SourceOffsets.from_json(offsets)
            progress[source.source] = source
    return progress
