"""The readers of the source: they plan which offsets a batch reads, and in how many tasks.

Spark runs the planning and each task in separate Python processes and pickles the readers in
between. So a reader connects only when it needs to, and does not pickle its connection. Methods in
camel case are Spark's.
"""

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from penstock.core.ids import TopicPartition
from penstock.spark.errors import DataLossError, OptionError
from penstock.spark.progress import Json, SourceOffsets, first_batch_start, with_first_batch_start
from penstock.spark.source.broker_offsets import BrokerOffsets
from penstock.spark.source.latest_offset_cache import LatestOffsetCache
from penstock.spark.source.limits import Delay, limit_ends
from penstock.spark.source.loss import (
    BatchStart,
    batch_start,
    new_partitions,
    ranges_between,
    recreated_since,
)
from penstock.spark.source.options import SourceOptions
from penstock.spark.source.positions import AtOffsets, LogBoundary
from penstock.spark.source.range_reader import ReadSettings, read_range
from penstock.spark.source.ranges import OffsetRange, split

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)


class _Reader:
    """The common part of both readers: checks for losses, plans tasks, reads."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._settings = ReadSettings(
            client=dict(options.client),
            include_headers=options.include_headers,
            fail_on_data_loss=options.fail_on_data_loss,
            poll_timeout_ms=options.poll_timeout_ms,
        )
        self._reported_losses: set[str] = set()

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Yields the rows of one range; Spark calls it in a task."""
        offset_range = cast("OffsetRange | None", partition.value)
        return iter(()) if offset_range is None else read_range(offset_range, self._settings)

    def _report(self, losses: Iterable[str]) -> None:
        """Raises `DataLossError`, or logs a warning if `failOnDataLoss` is off."""
        for loss in losses:
            if self._options.fail_on_data_loss:
                raise DataLossError(
                    f"{loss}. Records may be missing. To continue with the records that exist, set "
                    "failOnDataLoss to false; to start from scratch, remove the checkpoint"
                )
            if loss not in self._reported_losses:
                self._reported_losses.add(loss)
                logger.warning("%s. Records may be missing; the query continues", loss)

    def _plan(
        self, broker: BrokerOffsets, start: SourceOffsets, end: SourceOffsets
    ) -> list[InputPartition]:
        """Returns the tasks of a batch."""
        if start == end:
            return []
        current = broker.current_partitions()
        recreated = recreated_since(end, current.topic_ids)
        existing = [
            partition
            for partition in end.offsets
            if partition in current.partitions and partition.topic not in recreated
        ]
        earliest = broker.earliest(existing)
        start_of_batch = batch_start(start, end, earliest)
        missing = {
            partition
            for partition, first in start_of_batch.offsets.items()
            if first < end.offsets[partition] and partition not in earliest
        }
        losses = (f"{partition} is gone" for partition in sorted(missing))
        self._report([*start_of_batch.losses, *losses])
        offsets = {
            partition: first
            for partition, first in start_of_batch.offsets.items()
            if partition not in missing
        }
        ranges = split(
            ranges_between(BatchStart(offsets, ()), end),
            self._options.min_partitions,
            self._options.max_records_per_partition,
        )
        return [InputPartition(offset_range) for offset_range in ranges]


class PenstockReader(_Reader, DataSourceReader):
    """The reader of `spark.read`."""

    def partitions(self) -> list[InputPartition]:
        options = self._options
        with BrokerOffsets(options) as broker:
            start = broker.resolve(options.starting, is_start=True)
            end = broker.resolve(options.ending, is_start=False)
            if options.ending is not LogBoundary.LATEST:
                _check_order(start.offsets, end.offsets)
            return self._plan(broker, start, end)


class PenstockStreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of `spark.readStream`, in a process that Spark keeps as long as the query runs."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._connections: tuple[BrokerOffsets, LatestOffsetCache] | None = None
        self._initial: dict[str, Json] | None = None
        self._is_available_now = False
        self._target: SourceOffsets | None = None
        self._delay = (
            None
            if options.min_offsets_per_trigger is None
            else Delay(options.min_offsets_per_trigger, options.max_trigger_delay_ms)
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connections": None}

    def initialOffset(self) -> dict[str, Json]:  # noqa: N802
        """Returns the same offsets each time: Spark calls it twice in the first batch."""
        if self._initial is None:
            starting = self._options.starting
            if isinstance(starting, AtOffsets) and starting.offsets.source:
                # A pipeline that resumes: partitions that it does not name are new.
                self._initial = starting.offsets.to_json()
            else:
                self._initial = self._broker.resolve(starting, is_start=True).to_json()
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(  # noqa: N802
        self, start: dict[str, Json], limit: ReadLimit
    ) -> dict[str, Json]:
        """Returns where the next batch ends; `start` if no batch is due.

        The first batch is always due, so that Spark stores where the query begins.
        """
        start_offsets = SourceOffsets.from_json(start)
        end = self._end(start_offsets, limit)
        if start == self._initial:
            return with_first_batch_start(end.to_json(), start)
        return start if end == start_offsets else end.to_json()

    def reportLatestOffset(self) -> dict[str, Json] | None:  # noqa: N802
        latest = self._target or self._cache.last
        return None if latest is None or not latest.offsets else latest.to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._is_available_now = True

    def partitions(self, start: dict[str, Json], end: dict[str, Json]) -> list[InputPartition]:
        begin = first_batch_start(end) if start == self._initial else None
        # If Spark repeats the first batch after a crash, `start` was resolved again.
        first = SourceOffsets.from_json(start if begin is None else begin)
        return self._plan(self._broker, first, SourceOffsets.from_json(end))

    def stop(self) -> None:
        if self._connections is not None:
            self._connections[0].close()
            self._connections = None

    def _end(self, done: SourceOffsets, limit: ReadLimit) -> SourceOffsets:
        latest = self._latest(done)
        begin = batch_start(done, latest, self._broker.earliest(new_partitions(done, latest)))
        self._report(begin.losses)
        if isinstance(limit, ReadAllAvailable):
            return latest
        if self._should_wait(begin.offsets, latest):
            return done
        if isinstance(limit, ReadMaxRows):
            ends = limit_ends(limit.max_rows, begin.offsets, latest.offsets)
            return SourceOffsets(ends, latest.topic_ids, latest.source)
        return latest

    def _latest(self, done: SourceOffsets) -> SourceOffsets:
        if not self._is_available_now:
            return self._cache.latest(done)
        if self._target is None:
            self._target = self._broker.latest(done)
        return self._target

    def _should_wait(self, begin: Mapping[TopicPartition, int], latest: SourceOffsets) -> bool:
        """Applies `minOffsetsPerTrigger`; a query with `availableNow` never waits."""
        if self._delay is None or self._is_available_now:
            return False
        return self._delay.should_wait(begin, latest.offsets, time.monotonic() * 1000)

    @property
    def _broker(self) -> BrokerOffsets:
        return self._connected()[0]

    @property
    def _cache(self) -> LatestOffsetCache:
        return self._connected()[1]

    def _connected(self) -> tuple[BrokerOffsets, LatestOffsetCache]:
        if self._connections is None:
            broker = BrokerOffsets(self._options)
            self._connections = broker, LatestOffsetCache(broker, time.monotonic)
        return self._connections


def _check_order(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> None:
    for partition in sorted(start.keys() & end.keys()):
        if end[partition] < start[partition]:
            raise OptionError(
                f"{partition} is to be read from offset {start[partition]} to {end[partition]}: "
                "the end lies before the start"
            )
