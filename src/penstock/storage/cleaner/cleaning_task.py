"""One cleaning of one log, in steps that run on any thread (S5).

The event loop copies what a cleaning must know about the log into a `CleaningPlan`. The steps then
read sealed segments through file handles of their own and write new segments, which nothing else
uses yet. The first step maps the dirty keys, each further step writes one new segment. After every
step the event loop handles the result.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import NamedTuple

from penstock.core.ids import TopicPartition
from penstock.records.batch import BatchHeader
from penstock.storage.cleaner.batch_cleaner import BatchCleaner, CleanerStats, LastRecord, map_batch
from penstock.storage.cleaner.cleaned_transactions import CleanedTransactions
from penstock.storage.cleaner.offset_map import BYTES_PER_ENTRY, OffsetMap
from penstock.storage.cleaner.planning import LogToClean, SegmentSizes, group_segments
from penstock.storage.cleaner.throttle import CleanerThrottle
from penstock.storage.disk import Disk
from penstock.storage.file_names import CLEANED_SUFFIX, SEGMENT_SUFFIXES, segment_path
from penstock.storage.index.transaction_index import AbortedTxn
from penstock.storage.log.log import Log
from penstock.storage.log_config import LogConfig
from penstock.storage.segment.batch_scan import scan_batches
from penstock.storage.segment.log_segment import LogSegment

_SLEEP_MS = 250
"""How often a throttled cleaning checks whether it was cancelled."""


class CleaningAbortedError(Exception):
    """The cleaning was cancelled."""


class SourceSegment(NamedTuple):
    """A sealed segment to clean."""

    segment: LogSegment
    path: str
    sizes: SegmentSizes
    end_offset: int
    """The base offset of the next segment."""


@dataclass(frozen=True, slots=True)
class CleaningPlan:
    """The state of a log when its cleaning starts."""

    log: Log
    disk: Disk
    directory: str
    config: LogConfig
    now_ms: int
    first_dirty_offset: int
    first_uncleanable_offset: int
    sources: Sequence[SourceSegment]
    dirty_position: int
    """The position of the first dirty batch in its segment."""
    aborted: Sequence[AbortedTxn]
    producers: Mapping[int, LastRecord]

    @classmethod
    def of(cls, candidate: LogToClean, now_ms: int) -> "CleaningPlan":
        """Returns the plan for a log; to be called on the event loop."""
        log = candidate.log
        end = candidate.first_uncleanable_offset
        segments = [segment for segment in log.local.segments if segment.base_offset < end]
        ends = [segment.base_offset for segment in segments[1:]] + [end]
        sources = [_source(segment, after) for segment, after in zip(segments, ends, strict=True)]
        first_dirty = log.local.segments.from_floor(candidate.first_dirty_offset)[0]
        return cls(
            log=log,
            disk=log.local.disk,
            directory=log.directory,
            config=log.config,
            now_ms=now_ms,
            first_dirty_offset=candidate.first_dirty_offset,
            first_uncleanable_offset=end,
            sources=sources,
            dirty_position=first_dirty.indexes.offset_index.lookup(
                candidate.first_dirty_offset
            ).position,
            aborted=log.aborted_transactions(segments[0].base_offset, end),
            producers={
                producer_id: LastRecord(entry.last_data_offset, entry.producer_epoch)
                for producer_id, entry in log.producers.active_producers().items()
            },
        )

    def is_current(self, offset: int) -> bool:
        """Returns whether the log still has the same segments from this offset on.

        Retention may have deleted some, and a truncation may have changed their content.
        """
        segments = self.log.local.segments
        for source in self.sources:
            base_offset = source.sizes.base_offset
            if base_offset >= offset and segments.floor(base_offset) is not source.segment:
                return False
        last = self.sources[-1]
        next_segment = segments.higher(self.first_uncleanable_offset - 1)
        return (
            next_segment is not None
            and next_segment.base_offset == self.first_uncleanable_offset
            and last.segment.size == last.sizes.size
        )


def _source(segment: LogSegment, end_offset: int) -> SourceSegment:
    sizes = SegmentSizes(
        segment.base_offset,
        segment.size,
        segment.indexes.offset_index.size_in_bytes,
        segment.indexes.time_index.size_in_bytes,
    )
    return SourceSegment(segment, segment.log_path, sizes, end_offset)


class Replacement(NamedTuple):
    """The result of a step: the segment `new` replaces the `old` ones."""

    new: LogSegment
    old: Sequence[LogSegment]
    end_offset: int
    """The base offset of the segment after `old`."""


class CleaningTask:
    """A cleaning. `run` does the next step, `LogCleaner` handles its result."""

    is_urgent = False

    def __init__(
        self,
        plan: CleaningPlan,
        *,
        map_memory: int,
        load_factor: float,
        io_buffer: int,
        throttle: CleanerThrottle,
        sleep: Callable[[float], None],
    ) -> None:
        self.plan = plan
        self.stats = CleanerStats()
        self.error: Exception | None = None
        """Why the last step failed."""
        self.removal_error: OSError | None = None
        """Why an unused `.cleaned` file could not be removed. While it exists, nothing may be
        swapped: a start after a crash would take that for an incomplete swap."""
        self.is_cancelled = False
        """May be set from any thread to end the running step soon."""
        self.replacement: Replacement | None = None
        """The result of the last step; None if it wrote no segment."""
        self.next_base_offset = plan.sources[0].sizes.base_offset
        """The base offset of the first segment that is not replaced yet."""
        self.end_offset = plan.first_dirty_offset
        """The first offset that is not cleaned, after the last step."""
        self.map_utilization = 0.0
        """The share of the allowed memory that the keys use."""
        self._map_memory = map_memory
        self._load_factor = load_factor
        self._block = max(io_buffer // 2, 4096)
        self._throttle = throttle
        self._sleep = sleep
        self._unthrottled_bytes = 0
        self._cleaner: BatchCleaner | None = None
        self._legacy_horizon_ms = 0
        self._groups: list[Sequence[SourceSegment]] = []
        self._output_segment: LogSegment | None = None
        self._output_base_offset: int | None = None

    def __repr__(self) -> str:
        return (
            f"CleaningTask({self.partition}, {self.plan.first_dirty_offset}.."
            f"{self.plan.first_uncleanable_offset}, {len(self._groups)} segments to write)"
        )

    @property
    def log(self) -> Log:
        return self.plan.log

    @property
    def partition(self) -> TopicPartition:
        return self.plan.log.partition

    @property
    def progress(self) -> int:
        """The bytes that were read."""
        return self.stats.map_bytes_read + self.stats.bytes_read

    @property
    def is_done(self) -> bool:
        """Whether all steps have been run."""
        return self._cleaner is not None and not self._groups

    def run(self) -> None:
        """Does the next step. After a failure `error` is set and the new files are removed."""
        self.replacement = None
        try:
            if self._cleaner is None:
                self._map_keys()
            else:
                self.replacement = self._write_group(self._groups.pop(0))
        except Exception as error:  # noqa: BLE001 - any error ends this cleaning only
            self.error = error
            self._remove_output()

    def discard(self) -> None:
        """Removes the segment that the last step has written."""
        if self.replacement is not None:
            self._output_segment = self.replacement.new
            self._output_base_offset = self._output_segment.base_offset
            self.replacement = None
            self._remove_output()

    # --- mapping of the keys

    def _map_keys(self) -> None:
        plan = self.plan
        offsets = OffsetMap(self._map_size(), self._load_factor)
        transactions = CleanedTransactions(plan.aborted, plan.first_dirty_offset)
        position = plan.dirty_position
        for source in plan.sources:
            if source.end_offset <= plan.first_dirty_offset:
                continue
            if not self._map_segment(source, position, offsets, transactions):
                break
            # Offsets missing before the next segment were removed by an earlier cleaning.
            offsets.advance(source.end_offset - 1)
            position = 0
        self.end_offset = offsets.latest_offset + 1
        self.map_utilization = offsets.size * BYTES_PER_ENTRY / self._map_memory
        self._legacy_horizon_ms = self._legacy_horizon()
        self._groups = self._group_sources()
        self._cleaner = BatchCleaner(
            offsets,
            CleanedTransactions(plan.aborted),
            plan.producers,
            self.stats,
            now_ms=plan.now_ms,
            delete_retention_ms=plan.config.delete_retention_ms,
            max_message_bytes=plan.config.max_message_bytes,
            end_offset=plan.first_uncleanable_offset,
        )

    def _map_size(self) -> int:
        """Returns the memory for as many keys as offsets, at most the allowed memory."""
        count = self.plan.first_uncleanable_offset - self.plan.first_dirty_offset
        slots = max(2 * count, ceil(count / self._load_factor)) + 2
        return min(slots * BYTES_PER_ENTRY, self._map_memory)

    def _map_segment(
        self,
        source: SourceSegment,
        position: int,
        offsets: OffsetMap,
        transactions: CleanedTransactions,
    ) -> bool:
        """Adds a segment's keys to the map; returns False if it became full."""
        start = self.plan.first_dirty_offset
        file = self.plan.disk.open(source.path)
        try:
            size = source.sizes.size
            for batch in scan_batches(file, position, size, check=True, block=self._block):
                if not map_batch(offsets, batch, start, transactions):
                    return False
                self.stats.map_bytes_read += batch.header.size
                self.stats.map_messages_read += batch.header.records_count
                self._throttle_io(batch.header.size)
        finally:
            file.close()
        return True

    def _legacy_horizon(self) -> int:
        """Returns the write time up to which a segment's old-format tombstones are removed."""
        clean_sources = [
            source
            for source in self.plan.sources
            if source.sizes.base_offset < self.plan.first_dirty_offset
        ]
        if not clean_sources:
            return 0
        return (
            self.plan.disk.modified_ms(clean_sources[-1].path)
            - self.plan.config.delete_retention_ms
        )

    def _group_sources(self) -> list[Sequence[SourceSegment]]:
        sources = [
            source for source in self.plan.sources if source.sizes.base_offset < self.end_offset
        ]
        groups = group_segments(
            [source.sizes for source in sources],
            max_size=self.plan.config.segment_bytes,
            max_index_size=self.plan.config.segment_index_bytes,
            first_uncleanable_offset=self.plan.first_uncleanable_offset,
        )
        return [sources[group.start : group.stop] for group in groups]

    # --- writing of new segments

    def _write_group(self, group: Sequence[SourceSegment]) -> Replacement | None:
        """Cleans adjacent segments into one; returns None if a single one would not change."""
        segment = self._output_segment = self._new_segment(group)
        output = _SegmentWriter(segment, self._block)
        modified_ms = 0
        for source in group:
            modified_ms = self.plan.disk.modified_ms(source.path)
            self._clean_into(output, source, keep_tombstones=modified_ms > self._legacy_horizon_ms)
        self._throttle_io(output.flush())
        if len(group) == 1 and output.is_unchanged:
            self._remove_output()
            return None
        segment.seal()
        segment.flush()
        # Retention and the delete horizon of old formats use the write time of the original.
        segment.set_modified_ms(modified_ms)
        self._output_segment = self._output_base_offset = None
        return Replacement(segment, [source.segment for source in group], group[-1].end_offset)

    def _new_segment(self, group: Sequence[SourceSegment]) -> LogSegment:
        plan = self.plan
        base_offset = group[0].sizes.base_offset
        self._remove_files(base_offset)
        self._output_base_offset = base_offset
        return LogSegment(
            plan.disk,
            plan.directory,
            base_offset,
            replace(plan.config, preallocate=False),
            plan.now_ms,
            create=True,
            suffix=CLEANED_SUFFIX,
        )

    def _clean_into(
        self, output: "_SegmentWriter", source: SourceSegment, *, keep_tombstones: bool
    ) -> None:
        assert self._cleaner is not None, "the keys are mapped first"
        clean = self._cleaner.clean
        file = self.plan.disk.open(source.path)
        try:
            for batch in scan_batches(file, 0, source.sizes.size, check=True, block=self._block):
                cleaned = clean(batch, keep_legacy_tombstones=keep_tombstones)
                written_bytes = 0
                if cleaned is None:
                    output.is_unchanged = False
                else:
                    if cleaned.aborted is not None:
                        output.segment.indexes.txn_index.append(cleaned.aborted)
                    output.is_unchanged &= cleaned.is_unchanged
                    written_bytes = output.add(cleaned.data, cleaned.header)
                self._throttle_io(batch.header.size + written_bytes)
        finally:
            file.close()

    def _remove_output(self) -> None:
        """Removes the files of the new segment, even if only some exist."""
        segment, self._output_segment = self._output_segment, None
        base_offset, self._output_base_offset = self._output_base_offset, None
        try:
            if segment is not None:
                segment.close_handlers()
            if base_offset is not None:
                self._remove_files(base_offset)
        except OSError as error:
            self.removal_error = error

    def _remove_files(self, base_offset: int) -> None:
        for kind in SEGMENT_SUFFIXES:
            path = segment_path(self.plan.directory, base_offset, kind, CLEANED_SUFFIX)
            self.plan.disk.remove(path)

    def _throttle_io(self, size: int) -> None:
        """Sleeps to stay below the I/O rate; raises CleaningAbortedError if cancelled."""
        self._unthrottled_bytes += size
        if self._unthrottled_bytes < self._block and not self.is_cancelled:
            return
        wait_ms = self._throttle.spend(self._unthrottled_bytes)
        self._unthrottled_bytes = 0
        while wait_ms > 0 and not self.is_cancelled:
            sleep_ms = min(wait_ms, _SLEEP_MS)
            self._sleep(sleep_ms / 1000)
            wait_ms -= sleep_ms
        if self.is_cancelled:
            raise CleaningAbortedError(f"the cleaning of {self.partition} was cancelled")


class _SegmentWriter:
    """Writes a new segment in blocks."""

    def __init__(self, segment: LogSegment, block: int) -> None:
        self.segment = segment
        self.is_unchanged = True
        self._block = block
        self._data = bytearray()
        self._headers: list[BatchHeader] = []

    def add(self, data: bytes | bytearray | memoryview, header: BatchHeader) -> int:
        """Adds a batch; returns how many bytes this call has written."""
        self._headers.append(header)
        self._data += data
        return self.flush() if len(self._data) >= self._block else 0

    def flush(self) -> int:
        data, self._data = self._data, bytearray()
        headers, self._headers = self._headers, []
        if headers:
            self.segment.append(data, headers)
        return len(data)
