"""The dead letters of a batch: records that its sources could not decode.

Spark only counts them while the plan runs. If there are any, their ranges of offsets are read again
to collect them; the pipeline's limits are checked, and they are stored with the rows or in a topic.
"""

from math import floor
from typing import TYPE_CHECKING

from penstock.spark.errors import TooManyDeadLettersError, printable
from penstock.spark.pipeline.model import DeadLetterSpec, PipelineSpec, SourceSpec
from penstock.spark.progress import Batch, SourceOffsets
from penstock.spark.run.record_counts import read_counts
from penstock.spark.run.source_options import range_options_of
from penstock.spark.sinks.topic.dead_letters import DeadLetterTopic

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.spark.sinks.port import Sink

SMALLEST_SHARED = 100
"""The number of records from which on `max_share` applies to a batch."""


class DeadLetterReader:
    """Collects the dead letters of one query. A topic stores them unless the sink does."""

    def __init__(self, spark: "SparkSession", spec: PipelineSpec, key: str, sink: "Sink") -> None:
        self._spark = spark
        self._spec = spec
        self._key = key
        self._sources = {source.name: source for source in spec.sources}
        self._topic: DeadLetterTopic | None = None
        letters = spec.dead_letters
        if letters is not None and letters.topic is not None and not sink.takes_dead_letters:
            self._topic = DeadLetterTopic(letters.topic, key, spec.client_settings)

    def open(self, owner: str) -> None:
        if self._topic is not None:
            self._topic.open(owner)

    def close(self) -> None:
        if self._topic is not None:
            self._topic.close()

    def read(self, query: "StreamingQuery", batch: Batch) -> "tuple[pa.Table | None, int]":
        """Returns the dead letters that the sink must store, and how many the topic has stored.

        Call it after the plan has run. Raises `TooManyDeadLettersError` if the pipeline does not
        allow so many; nothing of the batch may be stored then.
        """
        import pyarrow as pa

        ranges: list[tuple[SourceSpec, SourceOffsets, SourceOffsets]] = []
        records = bad = counted_bad = 0
        for name, end in batch.end.items():
            # A source that the plan reads twice has a second name, which is no source.
            source = self._sources.get(name)
            if source is None:
                continue
            start = batch.start.get(name, SourceOffsets({}))
            counts = read_counts(query, name)
            records += counts.records if counts else span(start, end)
            bad += counts.bad if counts else span(start, end)
            counted_bad += counts.bad if counts else 0
            if start.offsets != end.offsets and (counts is None or counts.bad):
                ranges.append((source, start, end))
        most = most_allowed(self._spec.dead_letters, records)
        # One too many is enough to fail: a wrong schema must not fill the driver's memory.
        at_most = None if most is None or bad <= most else most + 1
        parts = [self._read_again(*range_, at_most=at_most) for range_ in ranges]
        letters = pa.concat_tables(parts) if parts else None
        if letters is None or letters.num_rows == 0:
            return None, 0
        check_limits(self._key, self._spec.dead_letters, letters, records, counted_bad)
        if self._topic is not None:
            return None, self._topic.write(letters, batch)
        return letters, 0

    def _read_again(
        self,
        source: SourceSpec,
        start: SourceOffsets,
        end: SourceOffsets,
        *,
        at_most: int | None,
    ) -> "pa.Table":
        from penstock.spark.decode.dead_letters import dead_letters_of

        options = {**range_options_of(self._spec, source, start, end), "includeHeaders": "true"}
        raw = self._spark.read.format("penstock").options(**options).load()
        return dead_letters_of(raw, source, end.topic_ids, at_most=at_most)


def span(start: SourceOffsets, end: SourceOffsets) -> int:
    """Returns the number of offsets between two positions, an upper bound of the records."""
    return sum(last - start.offsets.get(offset, 0) for offset, last in end.offsets.items())


def most_allowed(allowed: DeadLetterSpec | None, records: int) -> int | None:
    """Returns how many of `records` may be dead letters; None if all may be."""
    if allowed is None:
        return 0
    limits = [] if allowed.max_count is None else [allowed.max_count]
    if allowed.max_share is not None and records >= SMALLEST_SHARED:
        limits.append(floor(allowed.max_share * records))
    return min(limits, default=None)


def check_limits(
    key: str, allowed: DeadLetterSpec | None, letters: "pa.Table", records: int, bad: int = 0
) -> None:
    """Raises `TooManyDeadLettersError` if there are more dead letters than the pipeline allows.

    `letters` may be a part of them, just large enough to exceed the limit; `bad` is Spark's count.
    """
    most = most_allowed(allowed, records)
    if most is None or letters.num_rows <= most:
        return
    count = max(letters.num_rows, bad)
    first = letters.slice(0, 1).to_pylist()[0]
    example = (
        f"for example offset {first['offset']} of {first['topic']}-{first['partition']}: "
        f"{printable(first['reason'])}"
    )
    if allowed is None:
        raise TooManyDeadLettersError(
            f"{key}: {count} of {records} records cannot be read; {example}",
            remedy="name a dead-letter topic or table in the pipeline to continue without them, "
            "or correct the schema of the source",
        )
    if allowed.max_count is not None and letters.num_rows > allowed.max_count:
        raise TooManyDeadLettersError(
            f"{key}: {count} records of a batch cannot be read, and max_count allows "
            f"{allowed.max_count}; {example}. Nothing of the batch was stored"
        )
    raise TooManyDeadLettersError(
        f"{key}: {count} of {records} records of a batch cannot be read, and max_share "
        f"allows {allowed.max_share:.2%}; {example}. Nothing of the batch was stored"
    )
