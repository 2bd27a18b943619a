"""Opening the log in a directory, whatever state a crash left it in (S7).

After a clean stop the files are taken as they are. Otherwise the segments from the recovery point
on are read: their batches are checked one by one, the indexes and the producer state are built
anew, and the log is cut after the last whole batch. What was flushed lies before that point.
"""

import logging
from collections.abc import Callable
from typing import NamedTuple

from penstock.core.clock import Clock
from penstock.core.errors import CorruptRecordError, InvalidRecordError, KafkaStorageError
from penstock.core.ids import TopicId, TopicPartition
from penstock.storage.checkpoint.leader_epoch_cache import EpochEntry, LeaderEpochCache
from penstock.storage.disk import Disk
from penstock.storage.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    base_offset_of,
)
from penstock.storage.index.mapped_index import CorruptIndexError
from penstock.storage.log.local_log import LocalLog
from penstock.storage.log.log import Log
from penstock.storage.log_config import INT_MAX, LogConfig
from penstock.storage.producer.batch_analysis import rebuild_producer_state, replay
from penstock.storage.producer.state_manager import ProducerStateManager
from penstock.storage.segment.batch_scan import scan_batches
from penstock.storage.segment.log_segment import LogSegment
from penstock.storage.segment.log_segments import LogSegments

_log = logging.getLogger(__name__)

DAY_MS = 24 * 60 * 60 * 1000


class ProducerLimits(NamedTuple):
    """Broker settings that every log needs for its producers."""

    max_transaction_timeout_ms: int = 15 * 60 * 1000
    producer_id_expiration_ms: int = DAY_MS
    verify_transactions: bool = False


def load_log(
    disk: Disk,
    directory: str,
    partition: TopicPartition,
    config: LogConfig,
    clock: Clock,
    *,
    clean: bool = False,
    log_start_offset: int = 0,
    recovery_point: int = 0,
    cleaned_to: int = 0,
    high_watermark: int = 0,
    topic_id: TopicId | None = None,
    limits: ProducerLimits = ProducerLimits(),
    on_failure: Callable[[OSError], None] = lambda error: None,
    roll_jitter: Callable[[int], int] = lambda limit: 0,
) -> Log:
    """Opens the log in `directory`, creating an empty one where there is none.

    `clean` says that the last stop was clean; the offsets are those of the checkpoints.
    """
    disk.make_directory(directory)
    loader = _Loader(
        disk,
        directory,
        partition,
        config,
        clock,
        limits,
        clean,
        log_start_offset,
        recovery_point,
        cleaned_to,
    )
    try:
        return loader.load(high_watermark, topic_id, on_failure, roll_jitter)
    except Exception:
        # The partition stays offline until a restart: its files need not stay open.
        for segment in loader.segments:
            segment.close_handlers()
        raise


class _Recovered(NamedTuple):
    """What recovery found in a segment."""

    size: int
    """Bytes of the batches before the first one that is broken."""
    next_offset: int
    producers: ProducerStateManager


class _Loader:
    def __init__(
        self,
        disk: Disk,
        directory: str,
        partition: TopicPartition,
        config: LogConfig,
        clock: Clock,
        limits: ProducerLimits,
        clean: bool,
        log_start_offset: int,
        recovery_point: int,
        cleaned_to: int,
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.partition = partition
        self.config = config
        self.clock = clock
        self.limits = limits
        self.clean = clean
        self.log_start_offset = log_start_offset
        self.recovery_point = recovery_point
        self.cleaned_to = cleaned_to
        self.segments = LogSegments()
        self.epochs = LeaderEpochCache(disk, directory)
        self.replayed: ProducerStateManager | None = None
        """Of the segment that was recovered last, at its end."""

    def load(
        self,
        high_watermark: int,
        topic_id: TopicId | None,
        on_failure: Callable[[OSError], None],
        roll_jitter: Callable[[int], int],
    ) -> Log:
        self._finish_swaps()
        self._recover_segments(self._open_segments())
        end_offset = self._end_offset()
        active = self.segments.active
        active.make_active()
        start_offset = self._start_offset
        self._mend_epochs(start_offset, end_offset)
        self.epochs.truncate_from_start(start_offset)
        self.epochs.truncate_from_end(end_offset)
        if self.epochs.is_stale:
            self.epochs.flush()
        producers = self._known_producers(end_offset)
        producers.remove_straggling_snapshots(self.segments.base_offsets)
        rebuild_producer_state(
            producers, self.segments, start_offset, end_offset, self.clock.now_ms()
        )
        # Only a flush moves the recovery point on: what was just read may still be in memory only.
        recovery_point = end_offset if self.clean else min(self.recovery_point, end_offset)
        local = LocalLog(
            self.disk, self.directory, self.config, self.segments, end_offset, recovery_point
        )
        return Log(
            self.partition,
            local,
            self.epochs,
            producers,
            self.clock,
            log_start_offset=start_offset,
            high_watermark=high_watermark,
            topic_id=topic_id,
            verify_transactions=self.limits.verify_transactions,
            on_failure=on_failure,
            roll_jitter=roll_jitter,
        )

    @property
    def _start_offset(self) -> int:
        return max(self.log_start_offset, self.segments.first.base_offset)

    # --- files that a crash left behind

    def _path(self, name: str) -> str:
        return f"{self.directory}/{name}"

    def _finish_swaps(self) -> None:
        """Completes a replacement of segments that was interrupted, or undoes it."""
        cleaned: list[str] = []
        swaps: list[str] = []
        for name in self.disk.names(self.directory):
            if name.endswith(DELETED_SUFFIX):
                self.disk.remove(self._path(name))
            elif name.endswith(CLEANED_SUFFIX):
                cleaned.append(name)
            elif name.endswith(SWAP_SUFFIX):
                swaps.append(name)
        # LogSegments become .swap from the last to the first, so one that still has a .cleaned
        # file before it belongs to a replacement that was not complete.
        least = min((_offset(name) for name in cleaned), default=None)
        for name in list(swaps):
            if least is not None and _offset(name) >= least:
                self.disk.remove(self._path(name))
                swaps.remove(name)
        for name in cleaned:
            self.disk.remove(self._path(name))
        if swaps:
            self._drop_replaced(swaps)
            for name in swaps:
                self.disk.rename(self._path(name), self._path(name.removesuffix(SWAP_SUFFIX)))
            self.disk.sync_directory(self.directory)

    def _drop_replaced(self, swaps: list[str]) -> None:
        bounds: list[int] = []
        for name in swaps:
            if name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
                bounds += [_offset(name), self._next_offset(name)]
        if not bounds:
            return
        for name in self.disk.names(self.directory):
            offset = base_offset_of(name)
            if offset is None or name.endswith(SWAP_SUFFIX):
                continue
            if min(bounds) <= offset < max(bounds) and name.endswith(SEGMENT_SUFFIXES):
                _log.info("%s: dropping %s, which was compacted", self.partition, name)
                self.disk.remove(self._path(name))

    def _next_offset(self, name: str) -> int:
        """Where a `.log` file ends, by its batches alone: its indexes need not be there."""
        next_offset = _offset(name)
        file = self.disk.open(self._path(name))
        try:
            for found in scan_batches(file, 0, file.size()):
                next_offset = found.header.next_offset
        finally:
            file.close()
        return next_offset

    def _segment(self, base_offset: int) -> LogSegment:
        return LogSegment(self.disk, self.directory, base_offset, self.config, self.clock.now_ms())

    # --- segments

    def _open_segments(self) -> set[LogSegment]:
        """Opens every segment; returns those whose indexes cannot be right."""
        names = set(self.disk.names(self.directory))
        damaged: set[LogSegment] = set()
        for name in sorted(names):
            offset = base_offset_of(name)
            if offset is None or not name.endswith(SEGMENT_SUFFIXES):
                continue
            if not name.endswith(LOG_SUFFIX):
                if f"{offset:020d}{LOG_SUFFIX}" not in names:
                    _log.warning("%s: removing %s: there is no log file", self.partition, name)
                    self.disk.remove(self._path(name))
                continue
            segment = self._segment(offset)
            self.segments.add(segment)
            try:
                for kind in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
                    if f"{offset:020d}{kind}" not in names:
                        raise CorruptIndexError(f"{name} has no {kind} file")
                segment.txn_index.sanity_check()
                if self.clean:
                    segment.offset_index.sanity_check()
                    segment.time_index.sanity_check()
            except CorruptIndexError as error:
                _log.warning("%s: rebuilding the indexes: %s", self.partition, error)
                damaged.add(segment)
        return damaged

    def _recover_segments(self, damaged: set[LogSegment]) -> None:
        """Recovers what may not have been flushed or is damaged, and drops what follows a loss.

        From the first segment to the last: each needs the producer state at the end of the one
        before it. The segment that ends at the recovery point counts as unflushed: a flush of the
        active segment leaves out its indexes.
        """
        after = [] if self.clean else self.segments.from_floor(self.recovery_point - 1)
        unflushed = set(after)
        for segment in self.segments:
            if segment in damaged or segment in unflushed:
                found = self._recover(segment)
                lost = segment in unflushed and self._is_loss(segment, found)
                if lost:
                    # First what follows, then the broken end: the other way round, a crash in
                    # between would leave a whole segment before a gap.
                    self._drop_after(segment)
                self._cut(segment, found)
                if lost:
                    return

    def _drop_after(self, segment: LogSegment) -> None:
        lost = [other for other in self.segments if other.base_offset > segment.base_offset]
        _log.warning(
            "%s: the end of %r was never flushed; dropping %d segments after it",
            self.partition,
            segment,
            len(lost),
        )
        for other in lost:
            self.segments.remove(other.base_offset)
            other.delete()
        self.disk.sync_directory(self.directory)

    def _is_loss(self, segment: LogSegment, found: _Recovered) -> bool:
        """Whether the end of a segment is missing, so that what follows is of no use.

        The file system may have written a later segment before this one. Compaction makes gaps
        that are meant: ours below the recovery point only, Kafka's wherever it has been, which a
        compacted topic or the cleaner's checkpoint tells.
        """
        following = self.segments.higher(segment.base_offset)
        if following is None or following.base_offset <= self.recovery_point:
            return False
        if found.next_offset >= following.base_offset:
            return False
        meant = self.config.compact or following.base_offset <= self.cleaned_to
        return found.size < segment.size or not meant

    def _recover(self, segment: LogSegment) -> _Recovered:
        """Reads the segment and rebuilds what belongs to it, up to the first broken batch."""
        producers = self._producers()
        rebuild_producer_state(
            producers,
            self.segments,
            self._start_offset,
            segment.base_offset,
            self.clock.now_ms(),
        )
        size = 0
        segment.begin_rebuild()
        next_offset = segment.base_offset
        latest = self.epochs.latest_epoch
        try:
            for found in scan_batches(segment.file, 0, segment.size, check=True):
                header = found.header
                last_offset = header.base_offset + header.last_offset_delta
                if last_offset < next_offset:
                    raise InvalidRecordError(f"offset {last_offset} comes after {next_offset - 1}")
                self._refuse_overflow(segment, last_offset)
                segment.rebuild_from(found)
                next_offset = last_offset + 1
                size = found.position + header.size
                epoch = header.partition_leader_epoch
                if epoch >= 0 and (latest is None or epoch > latest):
                    self.epochs.assign(epoch, header.base_offset)
                    latest = epoch
                if header.producer_id >= 0:
                    replay(producers, found, segment)
        except (CorruptRecordError, InvalidRecordError) as error:
            _log.warning("%s: %r ends at byte %d: %s", self.partition, segment, size, error)
        producers.map_end_offset = next_offset
        return _Recovered(size, next_offset, producers)

    def _refuse_overflow(self, segment: LogSegment, last_offset: int) -> None:
        """An offset that no index entry can tell, but that fits in before the next segment.

        It is meant, then: to cut the batch off, as one that is broken, would lose it.
        """
        if last_offset - segment.base_offset <= INT_MAX:
            return
        following = self.segments.higher(segment.base_offset)
        if following is not None and last_offset < following.base_offset:
            raise KafkaStorageError(
                f"{segment!r} of {self.partition} has offset {last_offset}, too far from its base "
                f"offset for an index, as Kafka before 1.1 made them: start Apache Kafka on the "
                f"directory once, which splits such segments"
            )

    def _cut(self, segment: LogSegment, found: _Recovered) -> None:
        """Cuts off what is broken."""
        segment.end_rebuild(found.size)
        # So that the next segment's recovery need not read this one again.
        found.producers.take_snapshot()
        self.replayed = found.producers

    def _known_producers(self, end_offset: int) -> ProducerStateManager:
        """The producers as recovery has just read them from the end of the log, or none yet.

        A snapshot has the last batch of a producer only. Who replayed the log knows the last five:
        a producer with several batches under way when the broker died sends them all again.
        """
        replayed = self.replayed
        if replayed is not None and replayed.map_end_offset == end_offset:
            return replayed
        return self._producers()

    def _mend_epochs(self, start_offset: int, end_offset: int) -> None:
        """Finds the epochs at the start of the log that the file lacks.

        The file is cut when the log start offset rises, and a crash may take that rise back.
        """
        earliest = self.epochs.earliest_entry
        known_from = end_offset if earliest is None else earliest.start_offset
        found: list[EpochEntry] = []
        for segment in self.segments.between(start_offset, known_from):
            first = segment.find(start_offset)
            if first is None:
                continue
            for batch in scan_batches(segment.file, first.position, segment.size):
                epoch = batch.header.partition_leader_epoch
                if epoch < 0 or batch.header.base_offset >= known_from:
                    break
                if not found or epoch > found[-1].epoch:
                    found.append(EpochEntry(epoch, batch.header.base_offset))
            if not found:
                # Written before there were epochs, as is all that comes before them.
                return
        if found:
            self.epochs.assign_all([*found, *self.epochs.entries()])

    def _producers(self) -> ProducerStateManager:
        return ProducerStateManager(
            self.disk,
            self.directory,
            self.partition,
            max_transaction_timeout_ms=self.limits.max_transaction_timeout_ms,
            producer_id_expiration_ms=self.limits.producer_id_expiration_ms,
        )

    def _end_offset(self) -> int:
        """The log end offset; makes a first segment where there is none."""
        if len(self.segments):
            end_offset = self.segments.active.next_offset()
            if end_offset >= self.log_start_offset:
                return end_offset
            _log.warning(
                "%s ends at %d, before its log start offset %d: segment files are missing; "
                "starting anew there",
                self.partition,
                end_offset,
                self.log_start_offset,
            )
            for segment in self.segments:
                self.segments.remove(segment.base_offset)
                segment.delete()
            self.epochs.clear()
        self.segments.add(
            LogSegment(
                self.disk,
                self.directory,
                self.log_start_offset,
                self.config,
                self.clock.now_ms(),
                create=True,
            )
        )
        return self.log_start_offset


def _offset(name: str) -> int:
    offset = base_offset_of(name)
    if offset is None:
        raise CorruptRecordError(f"{name} is no segment file: remove it")
    return offset
