"""The source on the driver: which offsets a batch reads, and in how many tasks.

Spark runs the planning and each task in Python processes of their own. Readers are pickled on the
way, so that a connection is made only where it is used, and never travels. Methods that are named
in camel case are Spark's.
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


class _Reading:
    """What both readers do: check for losses, plan tasks, read."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._settings = ReadSettings(
            client=dict(options.client),
            include_headers=options.include_headers,
            fail_on_data_loss=options.fail_on_data_loss,
            poll_timeout_ms=options.poll_timeout_ms,
        )
        self._said: set[str] = set()

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """In a task."""
        wanted = cast("OffsetRange | None", partition.value)
        return iter(()) if wanted is None else read_range(wanted, self._settings)

    def _report(self, losses: Iterable[str]) -> None:
        """Stop, or go on and say so: `failOnDataLoss`."""
        for loss in losses:
            if self._options.fail_on_data_loss:
                raise DataLossError(
                    f"{loss}. Records may be missing. To go on with what is there, set "
                    "failOnDataLoss to false; to start anew, remove the checkpoint"
                )
            if loss not in self._said:
                self._said.add(loss)
                logger.warning("%s. Records may be missing; the query goes on", loss)

    def _plan(
        self, broker: BrokerOffsets, start: SourceOffsets, end: SourceOffsets
    ) -> list[InputPartition]:
        """The tasks of a batch."""
        if start == end:
            return []
        found = broker.found()
        replaced = recreated_since(end, found.topic_ids)
        there = [
            partition
            for partition in end.offsets
            if partition in found.partitions and partition.topic not in replaced
        ]
        earliest = broker.earliest(there)
        begin = batch_start(start, end, earliest)
        unread = {
            each
            for each, at in begin.offsets.items()
            if at < end.offsets[each] and each not in earliest
        }
        self._report([*begin.losses, *(f"{each} is gone" for each in sorted(unread))])
        kept = {each: at for each, at in begin.offsets.items() if each not in unread}
        ranges = split(
            ranges_between(BatchStart(kept, ()), end),
            self._options.min_partitions,
            self._options.max_records_per_partition,
        )
        return [InputPartition(range_) for range_ in ranges]


class PenstockReader(_Reading, DataSourceReader):
    """`spark.read`."""

    def partitions(self) -> list[InputPartition]:
        options = self._options
        with BrokerOffsets(options) as broker:
            start = broker.resolve(options.starting, is_start=True)
            end = broker.resolve(options.ending, is_start=False)
            if options.ending is not LogBoundary.LATEST:
                _check_order(start.offsets, end.offsets)
            return self._plan(broker, start, end)


class PenstockStreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream`, in the process that Spark keeps for it as long as the query runs."""

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
        """Spark asks twice in the first batch, and `latest` must mean the same both times."""
        if self._initial is None:
            starting = self._options.starting
            if isinstance(starting, AtOffsets) and starting.offsets.source:
                # A pipeline that goes on: partitions that it does not name are new ones.
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
        """Up to where the next batch reads; `start` itself where it is not time for one. The first
        batch always comes, so that Spark writes down where the query begins."""
        done = SourceOffsets.from_json(start)
        end = self._end(done, limit)
        if start == self._initial:
            return with_first_batch_start(end.to_json(), start)
        return start if end == done else end.to_json()

    def reportLatestOffset(self) -> dict[str, Json] | None:  # noqa: N802
        seen = self._target or self._watch.seen
        return None if seen is None or not seen.offsets else seen.to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._is_available_now = True

    def partitions(self, start: dict[str, Json], end: dict[str, Json]) -> list[InputPartition]:
        begin = first_batch_start(end) if start == self._initial else None
        # Of a first batch that Spark repeats after a crash, the start is another one by now.
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
        if self._holds(begin.offsets, latest):
            return done
        if isinstance(limit, ReadMaxRows):
            ends = limit_ends(limit.max_rows, begin.offsets, latest.offsets)
            return SourceOffsets(ends, latest.topic_ids, latest.source)
        return latest

    def _latest(self, done: SourceOffsets) -> SourceOffsets:
        if not self._is_available_now:
            return self._watch.latest(done)
        if self._target is None:
            self._target = self._broker.latest(done)
        return self._target

    def _holds(self, begin: Mapping[TopicPartition, int], latest: SourceOffsets) -> bool:
        """`minOffsetsPerTrigger`; a query that reads what is there and ends waits for nothing."""
        if self._delay is None or self._is_available_now:
            return False
        return self._delay.should_wait(begin, latest.offsets, time.monotonic() * 1000)

    @property
    def _broker(self) -> BrokerOffsets:
        return self._connected()[0]

    @property
    def _watch(self) -> LatestOffsetCache:
        return self._connected()[1]

    def _connected(self) -> tuple[BrokerOffsets, LatestOffsetCache]:
        if self._connections is None:
            broker = BrokerOffsets(self._options)
            self._connections = broker, LatestOffsetCache(broker, time.monotonic)
        return self._connections


def _check_order(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> None:
    for each in sorted(start.keys() & end.keys()):
        if end[each] < start[each]:
            raise OptionError(
                f"{each} is to be read from offset {start[each]} to {end[each]}: the end lies "
                "before the start"
            )
