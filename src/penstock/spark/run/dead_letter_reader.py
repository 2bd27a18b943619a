"""The records of a batch that could not be read: found again, counted, put where they belong."""

from math import floor
from typing import TYPE_CHECKING

from penstock.spark.errors import TooManyDeadLettersError
from penstock.spark.pipeline.model import DeadLetterSpec, PipelineSpec, SourceSpec
from penstock.spark.progress import Batch, SourceOffsets
from penstock.spark.run.record_counts import read_counts
from penstock.spark.run.source_options import range_options_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.spark.sinks.port import Sink
    from penstock.spark.sinks.topic.dead_letters import DeadLetterTopic as _Topic

SMALLEST_SHARED = 100
"""Records from which on a share of a batch says something."""


class DeadLetterReader:
    """For one query. `sink` takes dead letters itself, or a topic of their own does."""

    def __init__(self, spark: "SparkSession", spec: PipelineSpec, key: str, sink: "Sink") -> None:
        self._spark = spark
        self._spec = spec
        self._key = key
        self._sources = {source.name: source for source in spec.sources}
        self._topic: _Topic | None = None
        letters = spec.dead_letters
        if letters is not None and letters.topic is not None and not sink.takes_dead_letters:
            from penstock.spark.sinks.topic.dead_letters import DeadLetterTopic

            self._topic = DeadLetterTopic(letters.topic, key, spec.client_settings)

    def open(self, owner: str) -> None:
        if self._topic is not None:
            self._topic.open(owner)

    def close(self) -> None:
        if self._topic is not None:
            self._topic.close()

    def of_batch(self, query: "StreamingQuery", batch: Batch) -> "tuple[pa.Table | None, int]":
        """What the sink is to store, and how many were written elsewhere. The plan has run.

        Raises where the pipeline does not allow so many: nothing of the batch is stored then.
        """
        import pyarrow as pa

        ranges: list[tuple[SourceSpec, SourceOffsets, SourceOffsets]] = []
        records = bad = counted_bad = 0
        for name, end in batch.end.items():
            # A source that the plan reads twice is looked at once.
            source = self._sources.get(name)
            if source is None:
                continue
            start = batch.start.get(name, SourceOffsets({}))
            counted = read_counts(query, name)
            records += counted.records if counted else span(start, end)
            bad += counted.bad if counted else span(start, end)
            counted_bad += counted.bad if counted else 0
            if start.offsets != end.offsets and (counted is None or counted.bad):
                ranges.append((source, start, end))
        most = most_allowed(self._spec.dead_letters, records)
        # One too many is enough to know: a wrong schema must not fill the driver's memory.
        at_most = None if most is None or bad <= most else most + 1
        parts = [self._read_again(*range_, at_most=at_most) for range_ in ranges]
        found = pa.concat_tables(parts) if parts else None
        if found is None or found.num_rows == 0:
            return None, 0
        check_limits(self._key, self._spec.dead_letters, found, records, counted_bad)
        if self._topic is not None:
            return None, self._topic.write(found, batch)
        return found, 0

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
    """Offsets between two places: at least as many as there are records."""
    return sum(last - start.offsets.get(each, 0) for each, last in end.offsets.items())


def most_allowed(allowed: DeadLetterSpec | None, records: int) -> int | None:
    """How many of so many records may be unreadable; None: all of them."""
    if allowed is None:
        return 0
    limits = [] if allowed.max_count is None else [allowed.max_count]
    if allowed.max_share is not None and records >= SMALLEST_SHARED:
        limits.append(floor(allowed.max_share * records))
    return min(limits, default=None)


def check_limits(
    key: str, allowed: DeadLetterSpec | None, found: "pa.Table", records: int, bad: int = 0
) -> None:
    """`TooManyDeadLettersError` where there are more than the pipeline leaves out.

    `found` may be only as many as tell that; `bad` is what Spark has counted.
    """
    most = most_allowed(allowed, records)
    if most is None or found.num_rows <= most:
        return
    count = max(found.num_rows, bad)
    one = found.slice(0, 1).to_pylist()[0]
    example = (
        f"offset {one['offset']} of {one['topic']}-{one['partition']} for one: {one['reason']}"
    )
    if allowed is None:
        raise TooManyDeadLettersError(
            f"{key}: {count} of {records} records cannot be read; {example}. Name a dead-letter "
            "topic or table in the pipeline to go on without them, or correct the source's schema"
        )
    if allowed.max_count is not None and found.num_rows > allowed.max_count:
        raise TooManyDeadLettersError(
            f"{key}: {count} records of a batch cannot be read, and max_count allows "
            f"{allowed.max_count}; {example}. Nothing of the batch was stored"
        )
    raise TooManyDeadLettersError(
        f"{key}: {count} of {records} records of a batch cannot be read, and max_share "
        f"allows {allowed.max_share:.2%}; {example}. Nothing of the batch was stored"
    )
