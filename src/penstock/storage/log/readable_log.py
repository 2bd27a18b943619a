"""The log of one partition as readers see it: what may be read, and what everyone agrees on.

    log start offset <= last stable offset <= high watermark <= log end offset

Records below the log start offset are deleted; consumers see up to the high watermark, or with
`read_committed` up to the last stable offset, before which every transaction is decided. `Log`
puts everything on top that changes a log.
"""

import logging
from collections.abc import Callable
from typing import NoReturn, TypeVar

from penstock.core.errors import KafkaStorageError, OffsetOutOfRangeError
from penstock.core.ids import TopicId, TopicPartition
from penstock.storage.checkpoint.leader_epoch_cache import LeaderEpochCache
from penstock.storage.index.transaction_index import AbortedTxn
from penstock.storage.log.local_log import LocalLog
from penstock.storage.log.results import FetchData, FetchIsolation, OffsetAndEpoch
from penstock.storage.log.timestamp_search import TimestampAndOffset, TimestampSearch
from penstock.storage.producer.state_manager import ProducerStateManager

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class ReadableLog:
    """What a log is, and what can be read from it."""

    def __init__(
        self,
        partition: TopicPartition,
        local: LocalLog,
        epochs: LeaderEpochCache,
        producers: ProducerStateManager,
        *,
        log_start_offset: int,
        topic_id: TopicId | None,
        on_failure: Callable[[OSError], None],
    ) -> None:
        self.partition = partition
        self.local = local
        self.epochs = epochs
        self.producers = producers
        self.topic_id = topic_id
        self.log_start_offset = log_start_offset
        self.high_watermark = log_start_offset
        self.failure: KafkaStorageError | None = None
        """Why the log takes no more changes."""
        self.on_failure = on_failure

    def __repr__(self) -> str:
        return f"Log({self.partition}, {self.log_start_offset}..{self.log_end_offset})"

    # --- offsets

    @property
    def directory(self) -> str:
        return self.local.directory

    @property
    def log_end_offset(self) -> int:
        """Offset that the next record gets."""
        return self.local.next_offset

    @property
    def recovery_point(self) -> int:
        """Everything below is on disk."""
        return self.local.recovery_point

    @property
    def size(self) -> int:
        """Bytes of the records."""
        return self.local.segments.size

    @property
    def last_stable_offset(self) -> int:
        """Where the first transaction that is not decided starts, at most the high watermark."""
        unstable = self.producers.first_unstable_offset
        if unstable is None:
            return self.high_watermark
        return min(max(unstable, self.log_start_offset), self.high_watermark)

    def update_high_watermark(self, offset: int) -> int:
        """Sets the high watermark, kept within the log; returns what it is now."""
        end = self.local.next_offset
        if offset != end:
            offset = min(max(offset, self.log_start_offset), end)
        self.high_watermark = offset
        self.producers.on_high_watermark_updated(offset)
        return offset

    # --- read

    def read(
        self, offset: int, max_bytes: int, isolation: FetchIsolation, *, min_one: bool = True
    ) -> FetchData:
        """Whole batches from the one that holds `offset` on, at most `max_bytes`.

        `min_one` gives the first batch even where it is larger, so that a reader gets on. Nothing
        is decoded; the first batch may start before `offset`.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRangeError(
                f"{self.partition} has offsets {self.log_start_offset} to {self.log_end_offset}, "
                f"not {offset}"
            )
        return self._guarded(lambda: self._read(offset, max_bytes, isolation, min_one))

    def _read(
        self, offset: int, max_bytes: int, isolation: FetchIsolation, min_one: bool
    ) -> FetchData:
        bound = self._bound(isolation)
        committed = isolation is FetchIsolation.TXN_COMMITTED
        found = None
        if offset < bound:
            found = self.local.read(offset, max_bytes, bound, min_one=min_one)
        if found is None:
            return FetchData(None, [] if committed else None)
        records, segment = found
        if not committed:
            return FetchData(records, None)
        end = segment.offset_index.fetch_upper_bound(records.position, records.size)
        following = self.local.segments.higher(segment.base_offset)
        if end is not None:
            end_offset = end.offset
        else:
            end_offset = self.log_end_offset if following is None else following.base_offset
        return FetchData(records, self.local.aborted_transactions(offset, end_offset))

    def _bound(self, isolation: FetchIsolation) -> int:
        if isolation is FetchIsolation.LOG_END:
            return self.log_end_offset
        if isolation is FetchIsolation.HIGH_WATERMARK:
            return self.high_watermark
        return self.last_stable_offset

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTxn]:
        """The aborted transactions that touch the offsets `start <= offset < end`."""
        return self._guarded(lambda: self.local.aborted_transactions(start, end))

    def offset_for_timestamp(self, timestamp: int) -> TimestampAndOffset | None:
        """The first record at or after `timestamp`; None where all are earlier (Q5)."""
        return self._guarded(lambda: self._find_timestamp(timestamp))

    def _find_timestamp(self, timestamp: int) -> TimestampAndOffset | None:
        for segment in self.local.segments:
            if segment.largest_timestamp >= timestamp:
                found = segment.find_timestamp(timestamp, self.log_start_offset)
                if found is not None:
                    return found
        return None

    def offset_of_max_timestamp(self) -> TimestampAndOffset | None:
        """The first record that has the largest timestamp of all."""
        return self._guarded(self._find_max_timestamp)

    def _find_max_timestamp(self) -> TimestampAndOffset | None:
        latest = max(self.local.segments, key=lambda segment: segment.max_timestamp)
        return latest.find_max_timestamp()

    def begin_search(self, timestamp: int | None) -> TimestampSearch | None:
        """`offset_for_timestamp`, or with None `offset_of_max_timestamp`, for another thread.

        `run` it there and give it to `finish_search`. None: there is no such record.
        """
        return self._guarded(lambda: self._begin_search(timestamp))

    def _begin_search(self, timestamp: int | None) -> TimestampSearch | None:
        latest = timestamp is None
        if timestamp is None:
            timestamp = max(segment.max_timestamp for segment in self.local.segments)
            if timestamp < 0:
                return None
        # The first has the record, unless that lies before the log start offset.
        segments = [each for each in self.local.segments if each.max_timestamp >= timestamp][:2]
        files = [each.open_for_search(timestamp, self.log_start_offset) for each in segments]
        return TimestampSearch(files, timestamp, self.log_start_offset, latest=latest)

    def finish_search(self, search: TimestampSearch) -> TimestampAndOffset | None:
        """What a search has found; asks again, here and now, if the log has changed too much."""
        search.close()
        found = search.found
        if found is not None and self.log_start_offset <= found.offset < self.log_end_offset:
            return found
        if search.latest:
            return self.offset_of_max_timestamp()
        return self.offset_for_timestamp(search.timestamp)

    def end_offset_for_epoch(self, leader_epoch: int) -> OffsetAndEpoch | None:
        """Where the last epoch at or before `leader_epoch` ends in this log (R4)."""
        epoch, offset = self.epochs.end_offset_for(leader_epoch, self.log_end_offset)
        return OffsetAndEpoch(offset, epoch) if offset >= 0 else None

    # --- failure

    def _require_writable(self) -> None:
        if self.failure is not None:
            raise self.failure

    def _guarded(self, action: Callable[[], _T]) -> _T:
        try:
            return action()
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> NoReturn:
        """Stops the partition: what is on disk after a failed write or sync is not known."""
        if self.failure is None:
            self.failure = KafkaStorageError(
                f"{self.partition} is offline: {error.strerror or error} in {self.directory}. "
                f"What was acknowledged stays readable. Mend the disk or free space on it, "
                f"then restart the broker"
            )
            _log.error("%s", self.failure.message)
            self.on_failure(error)
        raise self.failure from error
