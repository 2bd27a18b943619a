"""One cleaning of one log, as steps that may run on any thread (S5).

What a cleaning needs to know of the log is frozen on the log's own thread, in a `CleaningPlan`.
The steps then read sealed segments through files of their own and write new ones, which nobody
else knows yet. The first step maps the dirty keys, each further one writes one new segment. After
every step the cleaner takes over what came out of it, on the log's thread again.
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
from penstock.storage.cleaner.planning import LogToClean, SegmentFacts, group_segments
from penstock.storage.cleaner.throttle import CleanerThrottle
from penstock.storage.disk import Disk
from penstock.storage.file_names import CLEANED_SUFFIX, SEGMENT_SUFFIXES, segment_path
from penstock.storage.index.transaction_index import AbortedTxn
from penstock.storage.log.log import Log
from penstock.storage.log_config import LogConfig
from penstock.storage.segment.batch_scan import scan_batches
from penstock.storage.segment.log_segment import LogSegment

_NAP_MS = 250
"""How long a throttled cleaning sleeps before it looks whether it was asked to stop."""


class CleaningAbortedError(Exception):
    """The cleaning was asked to stop."""


class Source(NamedTuple):
    """A sealed segment that is cleaned."""

    segment: LogSegment
    path: str
    facts: SegmentFacts
    end_offset: int
    """Base offset of the next segment."""


@dataclass(frozen=True, slots=True)
class CleaningPlan:
    """What a cleaning knows of its log."""

    log: Log
    disk: Disk
    directory: str
    config: LogConfig
    now_ms: int
    first_dirty_offset: int
    first_uncleanable_offset: int
    sources: Sequence[Source]
    dirty_position: int
    """Where the dirty part starts in the first segment that has any."""
    aborted: Sequence[AbortedTxn]
    producers: Mapping[int, LastRecord]

    @classmethod
    def of(cls, found: LogToClean, now_ms: int) -> "CleaningPlan":
        """Freezes a log; to be called on its own thread."""
        log = found.log
        end = found.first_uncleanable_offset
        segments = [segment for segment in log.local.segments if segment.base_offset < end]
        ends = [segment.base_offset for segment in segments[1:]] + [end]
        sources = [_source(segment, after) for segment, after in zip(segments, ends, strict=True)]
        first_dirty = log.local.segments.from_floor(found.first_dirty_offset)[0]
        return cls(
            log=log,
            disk=log.local.disk,
            directory=log.directory,
            config=log.config,
            now_ms=now_ms,
            first_dirty_offset=found.first_dirty_offset,
            first_uncleanable_offset=end,
            sources=sources,
            dirty_position=first_dirty.offset_index.lookup(found.first_dirty_offset).position,
            aborted=log.aborted_transactions(segments[0].base_offset, end),
            producers={
                producer_id: LastRecord(entry.last_data_offset, entry.producer_epoch)
                for producer_id, entry in log.producers.active_producers().items()
            },
        )

    def is_current(self, offset: int) -> bool:
        """Whether the log still has the segments from this offset on, as they were.

        Retention may have taken some, and truncation may have changed what they hold.
        """
        segments = self.log.local.segments
        for source in self.sources:
            base_offset = source.facts.base_offset
            if base_offset >= offset and segments.floor(base_offset) is not source.segment:
                return False
        last = self.sources[-1]
        following = segments.higher(self.first_uncleanable_offset - 1)
        return (
            following is not None
            and following.base_offset == self.first_uncleanable_offset
            and last.segment.size == last.facts.size
        )


def _source(segment: LogSegment, end_offset: int) -> Source:
    facts = SegmentFacts(
        segment.base_offset,
        segment.size,
        segment.offset_index.size_in_bytes,
        segment.time_index.size_in_bytes,
    )
    return Source(segment, segment.log_path, facts, end_offset)


class Replacement(NamedTuple):
    """What a step has made: the segments `old` become `new`."""

    new: LogSegment
    old: Sequence[LogSegment]
    end_offset: int
    """Base offset of the segment after `old`."""


class CleaningTask:
    """The steps of a cleaning. `run` does the next one; `cleaner.LogCleaner` does the rest."""

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
        self.leftover: OSError | None = None
        """Why a file that is not wanted any more could not be removed. Nothing may be swapped
        beside it: a start after a crash would take that for a swap that was not complete."""
        self.cancelled = False
        """Set it from any thread to end the running step soon."""
        self.replacement: Replacement | None = None
        """What the last step has made, if it has made anything."""
        self.next_base_offset = plan.sources[0].facts.base_offset
        """Where the segments start that are not replaced yet."""
        self.end_offset = plan.first_dirty_offset
        """The first offset that is not cleaned, once the last step is done."""
        self.map_utilization = 0.0
        """Share of the allowed memory that the keys took."""
        self._map_memory = map_memory
        self._load_factor = load_factor
        self._block = max(io_buffer // 2, 4096)
        self._throttle = throttle
        self._sleep = sleep
        self._unpaid = 0
        self._cleaner: BatchCleaner | None = None
        self._legacy_horizon_ms = 0
        self._groups: list[Sequence[Source]] = []
        self._writing: LogSegment | None = None
        self._writing_base: int | None = None

    def __repr__(self) -> str:
        return (
            f"CleaningTask({self.partition}, {self.plan.first_dirty_offset}.."
            f"{self.plan.first_uncleanable_offset}, {len(self._groups)} segments to write)"
        )

    @property
    def partition(self) -> TopicPartition:
        return self.plan.log.partition

    @property
    def done(self) -> bool:
        """Whether all steps are."""
        return self._cleaner is not None and not self._groups

    def run(self) -> None:
        """Does the next step. What goes wrong is in `error` afterwards, and nothing is left."""
        self.replacement = None
        try:
            if self._cleaner is None:
                self._map_keys()
            else:
                self.replacement = self._write_group(self._groups.pop(0))
        except Exception as error:  # noqa: BLE001 - whatever it is, it ends this cleaning only
            self.error = error
            self._drop_output()

    def discard(self) -> None:
        """Removes what the last step has made."""
        if self.replacement is not None:
            self._writing = self.replacement.new
            self._writing_base = self._writing.base_offset
            self.replacement = None
            self._drop_output()

    # --- the map

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
            # Whatever is missing before the next segment was compacted away before.
            offsets.advance(source.end_offset - 1)
            position = 0
        self.end_offset = offsets.latest_offset + 1
        self.map_utilization = offsets.size * BYTES_PER_ENTRY / self._map_memory
        self._legacy_horizon_ms = self._legacy_horizon()
        self._groups = self._group()
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
        """Memory for as many keys as there are offsets, at most what is allowed."""
        count = self.plan.first_uncleanable_offset - self.plan.first_dirty_offset
        slots = max(2 * count, ceil(count / self._load_factor)) + 2
        return min(slots * BYTES_PER_ENTRY, self._map_memory)

    def _map_segment(
        self, source: Source, position: int, offsets: OffsetMap, transactions: CleanedTransactions
    ) -> bool:
        """Puts a segment's keys into the map; False where it became full."""
        start = self.plan.first_dirty_offset
        file = self.plan.disk.open(source.path)
        try:
            size = source.facts.size
            for found in scan_batches(file, position, size, check=True, block=self._block):
                if not map_batch(offsets, found, start, transactions):
                    return False
                self.stats.map_bytes_read += found.header.size
                self.stats.map_messages_read += found.header.records_count
                self._pace(found.header.size)
        finally:
            file.close()
        return True

    def _legacy_horizon(self) -> int:
        """Tombstones of old formats go from segments that were last written before this time."""
        clean = [
            source
            for source in self.plan.sources
            if source.facts.base_offset < self.plan.first_dirty_offset
        ]
        if not clean:
            return 0
        return self.plan.disk.modified_ms(clean[-1].path) - self.plan.config.delete_retention_ms

    def _group(self) -> list[Sequence[Source]]:
        sources = [
            source for source in self.plan.sources if source.facts.base_offset < self.end_offset
        ]
        groups = group_segments(
            [source.facts for source in sources],
            max_size=self.plan.config.segment_bytes,
            max_index_size=self.plan.config.segment_index_bytes,
            first_uncleanable_offset=self.plan.first_uncleanable_offset,
        )
        return [sources[group.start : group.stop] for group in groups]

    # --- the new segments

    def _write_group(self, group: Sequence[Source]) -> Replacement | None:
        """Cleans some neighbours into one segment; None where one would stay as it is."""
        segment = self._writing = self._new_segment(group)
        output = _Output(segment, self._block)
        modified_ms = 0
        for source in group:
            modified_ms = self.plan.disk.modified_ms(source.path)
            self._clean_into(output, source, keep_tombstones=modified_ms > self._legacy_horizon_ms)
        self._pace(output.flush())
        if len(group) == 1 and output.unchanged:
            self._drop_output()
            return None
        segment.seal()
        segment.flush()
        # Retention and the delete horizon of old formats go by the time of the original.
        segment.set_modified_ms(modified_ms)
        self._writing = self._writing_base = None
        return Replacement(segment, [source.segment for source in group], group[-1].end_offset)

    def _new_segment(self, group: Sequence[Source]) -> LogSegment:
        plan = self.plan
        base_offset = group[0].facts.base_offset
        self._remove_files(base_offset)
        self._writing_base = base_offset
        return LogSegment(
            plan.disk,
            plan.directory,
            base_offset,
            replace(plan.config, preallocate=False),
            plan.now_ms,
            create=True,
            suffix=CLEANED_SUFFIX,
        )

    def _clean_into(self, output: "_Output", source: Source, *, keep_tombstones: bool) -> None:
        assert self._cleaner is not None, "the keys are mapped first"
        clean = self._cleaner.clean
        file = self.plan.disk.open(source.path)
        try:
            for found in scan_batches(file, 0, source.facts.size, check=True, block=self._block):
                cleaned = clean(found, keep_legacy_tombstones=keep_tombstones)
                written = 0
                if cleaned is None:
                    output.unchanged = False
                else:
                    if cleaned.aborted is not None:
                        output.segment.txn_index.append(cleaned.aborted)
                    output.unchanged &= cleaned.unchanged
                    written = output.add(cleaned.data, cleaned.header)
                self._pace(found.header.size + written)
        finally:
            file.close()

    def _drop_output(self) -> None:
        """Removes what is written of the new segment, were it only some of its files."""
        segment, self._writing = self._writing, None
        base_offset, self._writing_base = self._writing_base, None
        try:
            if segment is not None:
                segment.close_handlers()
            if base_offset is not None:
                self._remove_files(base_offset)
        except OSError as error:
            self.leftover = error

    def _remove_files(self, base_offset: int) -> None:
        for kind in SEGMENT_SUFFIXES:
            path = segment_path(self.plan.directory, base_offset, kind, CLEANED_SUFFIX)
            self.plan.disk.remove(path)

    def _pace(self, size: int) -> None:
        """Keeps to the rate, and stops where that was asked for."""
        self._unpaid += size
        if self._unpaid < self._block and not self.cancelled:
            return
        wait_ms = self._throttle.spend(self._unpaid)
        self._unpaid = 0
        while wait_ms > 0 and not self.cancelled:
            nap_ms = min(wait_ms, _NAP_MS)
            self._sleep(nap_ms / 1000)
            wait_ms -= nap_ms
        if self.cancelled:
            raise CleaningAbortedError(f"the cleaning of {self.partition} was stopped")


class _Output:
    """A new segment, written in blocks."""

    def __init__(self, segment: LogSegment, block: int) -> None:
        self.segment = segment
        self.unchanged = True
        self._block = block
        self._data = bytearray()
        self._headers: list[BatchHeader] = []

    def add(self, data: bytes | bytearray | memoryview, header: BatchHeader) -> int:
        """Adds a batch; returns how many bytes were written because of it."""
        self._headers.append(header)
        self._data += data
        return self.flush() if len(self._data) >= self._block else 0

    def flush(self) -> int:
        data, self._data = self._data, bytearray()
        headers, self._headers = self._headers, []
        if headers:
            self.segment.append(data, headers)
        return len(data)
