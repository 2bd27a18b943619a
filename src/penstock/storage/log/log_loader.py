"""Loading of a log from its directory, with recovery after a crash (S7).

After a clean shutdown the files are used as they are. Otherwise the segments from the recovery
point on are read: their batches are checked, the indexes and the producer state are rebuilt, and
the log is truncated after the last valid batch. Everything that was flushed is before that point.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
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

logger = logging.getLogger(__name__)

_BLOCK_BYTES = 1024 * 1024
DAY_MS = 24 * 60 * 60 * 1000


class ProducerLimits(NamedTuple):
    """The broker settings for the producers of every log."""

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
    rewrite: bool = False,
    high_watermark: int = 0,
    topic_id: TopicId | None = None,
    limits: ProducerLimits = ProducerLimits(),
    on_failure: Callable[[Exception], None] = lambda error: None,
    roll_jitter: Callable[[int], int] = lambda limit: 0,
) -> Log:
    """Opens the log in `directory`; creates an empty one if there is none.

    `clean` means that the last shutdown was clean. The offsets come from the checkpoints. After a
    sync that failed, what recovery reads may be in the page cache only, and the kernel may take it
    for written: with `rewrite` it is written again.
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
        rewrite,
    )
    try:
        return loader.load(high_watermark, topic_id, on_failure, roll_jitter)
    except Exception:
        # The partition is offline until a restart, so its files need not stay open.
        for segment in loader.segments:
            segment.close_handlers()
        raise


class _RecoveredSegment(NamedTuple):
    """The valid part of a segment."""

    size: int
    """The number of bytes before the first invalid batch."""
    next_offset: int
    producers: ProducerStateManager


@dataclass(slots=True)
class _Loader:
    disk: Disk
    directory: str
    partition: TopicPartition
    config: LogConfig
    clock: Clock
    limits: ProducerLimits
    clean: bool
    log_start_offset: int
    recovery_point: int
    cleaned_to: int
    rewrite: bool
    segments: LogSegments = field(default_factory=LogSegments)
    epochs: LeaderEpochCache = field(init=False)
    replayed_producers: ProducerStateManager | None = None
    """The producer state at the end of the segment that was recovered last."""

    def __post_init__(self) -> None:
        self.epochs = LeaderEpochCache(self.disk, self.directory)

    def load(
        self,
        high_watermark: int,
        topic_id: TopicId | None,
        on_failure: Callable[[Exception], None],
        roll_jitter: Callable[[int], int],
    ) -> Log:
        self._finish_swaps()
        self._recover_segments(self._open_segments())
        end_offset = self._end_offset()
        active = self.segments.active
        active.indexes.make_active()
        start_offset = self._start_offset
        self._add_missing_epochs(start_offset, end_offset)
        self.epochs.truncate_from_start(start_offset)
        self.epochs.truncate_from_end(end_offset)
        if self.epochs.is_stale:
            self.epochs.flush()
        producers = self._load_producers(end_offset)
        producers.remove_straggling_snapshots(self.segments.base_offsets)
        rebuild_producer_state(
            producers, self.segments, start_offset, end_offset, self.clock.now_ms()
        )
        # Only a flush advances the recovery point: the batches that were just read may still be in
        # the page cache only.
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

    # --- files left by a crash

    def _path(self, name: str) -> str:
        return f"{self.directory}/{name}"

    def _finish_swaps(self) -> None:
        """Completes or reverts a replacement of segments that a crash interrupted."""
        cleaned: list[str] = []
        swaps: list[str] = []
        for name in self.disk.names(self.directory):
            if name.endswith(DELETED_SUFFIX):
                self.disk.remove(self._path(name))
            elif name.endswith(CLEANED_SUFFIX):
                cleaned.append(name)
            elif name.endswith(SWAP_SUFFIX):
                swaps.append(name)
        # Segments are renamed to .swap from the last to the first. A segment with a .cleaned file
        # before it therefore belongs to a replacement that was not complete.
        first_cleaned = min((_offset(name) for name in cleaned), default=None)
        for name in list(swaps):
            if first_cleaned is not None and _offset(name) >= first_cleaned:
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
                logger.info("%s: removing %s, which compaction has replaced", self.partition, name)
                self.disk.remove(self._path(name))

    def _next_offset(self, name: str) -> int:
        """Returns the end offset of a `.log` file by its batches; its indexes may be missing."""
        next_offset = _offset(name)
        file = self.disk.open(self._path(name))
        try:
            for batch in scan_batches(file, 0, file.size()):
                next_offset = batch.header.next_offset
        finally:
            file.close()
        return next_offset

    def _segment(self, base_offset: int) -> LogSegment:
        return LogSegment(self.disk, self.directory, base_offset, self.config, self.clock.now_ms())

    # --- segments

    def _open_segments(self) -> set[LogSegment]:
        """Opens every segment; returns those with missing or invalid indexes."""
        names = set(self.disk.names(self.directory))
        damaged: set[LogSegment] = set()
        for name in sorted(names):
            offset = base_offset_of(name)
            if offset is None or not name.endswith(SEGMENT_SUFFIXES):
                continue
            if not name.endswith(LOG_SUFFIX):
                if f"{offset:020d}{LOG_SUFFIX}" not in names:
                    logger.warning("%s: removing %s, which has no .log file", self.partition, name)
                    self.disk.remove(self._path(name))
                continue
            segment = self._segment(offset)
            self.segments.add(segment)
            missing_kinds = [
                kind
                for kind in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)
                if f"{offset:020d}{kind}" not in names
            ]
            if missing_kinds:
                logger.warning(
                    "%s: rebuilding the indexes: %s has no %s file",
                    self.partition,
                    name,
                    missing_kinds[0],
                )
                damaged.add(segment)
        return damaged | self._segments_with_invalid_indexes()

    def _segments_with_invalid_indexes(self) -> set[LogSegment]:
        damaged: set[LogSegment] = set()
        # The others are rebuilt in any case.
        flushed = set(self.segments) - self._unflushed_segments()
        for segment in self.segments:
            try:
                segment.indexes.txn_index.sanity_check()
                if segment in flushed:
                    segment.indexes.offset_index.sanity_check()
                    segment.indexes.time_index.sanity_check()
                    self._check_last_entry(segment)
            except CorruptIndexError as error:
                logger.warning("%s: rebuilding the indexes: %s", self.partition, error)
                damaged.add(segment)
        return damaged

    def _check_last_entry(self, segment: LogSegment) -> None:
        """Raises CorruptIndexError if the offset index points behind the segment."""
        index = segment.indexes.offset_index
        if not index.entries:
            return
        last = index.entry(index.entries - 1)
        next_segment = self.segments.higher(segment.base_offset)
        is_behind = next_segment is not None and last.offset >= next_segment.base_offset
        if is_behind or not 0 <= last.position < segment.size:
            raise CorruptIndexError(f"{index.path} ends with {last}, which is not in the segment")

    def _unflushed_segments(self) -> set[LogSegment]:
        """Returns the segments that may not be durable.

        The segment that ends at the recovery point is one of them, because a flush of the active
        segment does not include its indexes.
        """
        if self.clean or not len(self.segments):
            return set()
        return set(self.segments.from_floor(self.recovery_point - 1))

    def _recover_segments(self, damaged: set[LogSegment]) -> None:
        """Recovers the unflushed and damaged segments, and drops the segments after a loss.

        It starts with the first segment: each needs the producer state at the end of the previous
        one.
        """
        unflushed = self._unflushed_segments()
        for segment in self.segments:
            if segment in damaged or segment in unflushed:
                recovered = self._recover(segment)
                is_loss = segment in unflushed and self._is_loss(segment, recovered)
                if is_loss:
                    # The later segments first, then the invalid end: in the other order, a crash in
                    # between would leave a valid segment before a gap.
                    self._drop_after(segment)
                self._truncate(segment, recovered)
                if is_loss:
                    return

    def _drop_after(self, segment: LogSegment) -> None:
        later_segments = [
            later for later in self.segments if later.base_offset > segment.base_offset
        ]
        logger.warning(
            "%s: the end of %r was never flushed; dropping %d later segments",
            self.partition,
            segment,
            len(later_segments),
        )
        for later in later_segments:
            self.segments.remove(later.base_offset)
            later.delete()
        self.disk.sync_directory(self.directory)

    def _is_loss(self, segment: LogSegment, recovered: _RecoveredSegment) -> bool:
        """Returns whether the end of a segment is missing, so that later segments are useless.

        The file system may have written a later segment before this one. Compaction leaves gaps
        that are not losses: Penstock's only below the recovery point, Kafka's anywhere in a
        compacted topic or below the offset in the cleaner's checkpoint.
        """
        next_segment = self.segments.higher(segment.base_offset)
        if next_segment is None or next_segment.base_offset <= self.recovery_point:
            return False
        if recovered.next_offset >= next_segment.base_offset:
            return False
        is_compacted = self.config.compact or next_segment.base_offset <= self.cleaned_to
        return recovered.size < segment.size or not is_compacted

    def _recover(self, segment: LogSegment) -> _RecoveredSegment:
        """Rebuilds the indexes and the producer state up to the segment's first invalid batch."""
        producers = self._new_producer_state()
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
        latest_epoch = self.epochs.latest_epoch
        try:
            for batch in scan_batches(segment.file, 0, segment.size, check=True):
                header = batch.header
                last_offset = header.base_offset + header.last_offset_delta
                if last_offset < next_offset:
                    raise InvalidRecordError(f"offset {last_offset} is not after {next_offset - 1}")
                self._refuse_overflow(segment, last_offset)
                segment.rebuild_from(batch)
                next_offset = last_offset + 1
                size = batch.position + header.size
                epoch = header.partition_leader_epoch
                if epoch >= 0 and (latest_epoch is None or epoch > latest_epoch):
                    self.epochs.assign(epoch, header.base_offset)
                    latest_epoch = epoch
                if header.producer_id >= 0:
                    replay(producers, batch, segment)
        except (CorruptRecordError, InvalidRecordError) as error:
            logger.warning(
                "%s: truncating %r to %d bytes: %s", self.partition, segment, size, error
            )
        producers.map_end_offset = next_offset
        return _RecoveredSegment(size, next_offset, producers)

    def _refuse_overflow(self, segment: LogSegment, last_offset: int) -> None:
        """Raises an error for an offset that is too far from the base offset for an index entry.

        Such a batch is valid if it is before the next segment: truncating it would lose records.
        """
        if last_offset - segment.base_offset <= INT_MAX:
            return
        next_segment = self.segments.higher(segment.base_offset)
        if next_segment is not None and last_offset < next_segment.base_offset:
            raise KafkaStorageError(
                f"{segment!r} of {self.partition} has offset {last_offset}, too far from its base "
                "offset for an index. Kafka before 1.1 wrote such segments",
                remedy="start a newer Apache Kafka on the log directory once: it splits them",
            )

    def _truncate(self, segment: LogSegment, recovered: _RecoveredSegment) -> None:
        if self.rewrite:
            for position in range(0, recovered.size, _BLOCK_BYTES):
                size = min(_BLOCK_BYTES, recovered.size - position)
                segment.file.write_at(segment.file.read_at(position, size), position)
        segment.end_rebuild(recovered.size)
        # With the snapshot, the recovery of the next segment need not read this one again.
        recovered.producers.take_snapshot()
        self.replayed_producers = recovered.producers

    def _load_producers(self, end_offset: int) -> ProducerStateManager:
        """Returns the producer state that recovery replayed up to the end of the log, or a new one.

        A snapshot has only the last batch of a producer; the replayed state has the last five.
        A producer that had several batches in flight when the broker died sends them all again.
        """
        producers = self.replayed_producers
        if producers is not None and producers.map_end_offset == end_offset:
            return producers
        return self._new_producer_state()

    def _add_missing_epochs(self, start_offset: int, end_offset: int) -> None:
        """Adds the epochs at the start of the log that the file does not have.

        The file is truncated when the log start offset rises, and a crash may revert that rise.
        """
        earliest = self.epochs.earliest_entry
        known_from = end_offset if earliest is None else earliest.start_offset
        missing: list[EpochEntry] = []
        for segment in self.segments.between(start_offset, known_from):
            first = segment.find(start_offset)
            if first is None:
                continue
            for batch in scan_batches(segment.file, first.position, segment.size):
                epoch = batch.header.partition_leader_epoch
                if epoch < 0 or batch.header.base_offset >= known_from:
                    break
                if not missing or epoch > missing[-1].epoch:
                    missing.append(EpochEntry(epoch, batch.header.base_offset))
            if not missing:
                # These batches, and all earlier ones, were written before epochs existed.
                return
        if missing:
            self.epochs.assign_all([*missing, *self.epochs.entries()])

    def _new_producer_state(self) -> ProducerStateManager:
        return ProducerStateManager(
            self.disk,
            self.directory,
            self.partition,
            producer_id_expiration_ms=self.limits.producer_id_expiration_ms,
        )

    def _end_offset(self) -> int:
        """Returns the log end offset; creates the first segment if there is none."""
        if len(self.segments):
            end_offset = self.segments.active.next_offset()
            if end_offset >= self.log_start_offset:
                return end_offset
            logger.warning(
                "%s ends at %d, before its log start offset %d: segment files are missing; "
                "the log starts empty at that offset",
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
        raise CorruptRecordError(
            f"{name} is not a segment file",
            remedy="remove it",
        )
    return offset
