"""The buffer of completed fetches between the loop that fetches and the thread that polls."""

import logging
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING

from penstock.client.consumer.completed_fetch import CompletedFetch
from penstock.client.consumer.positions import FetchPosition
from penstock.client.consumer.record import ConsumerRecord
from penstock.client.consumer.subscription_state import SubscriptionState
from penstock.client.errors import error_of
from penstock.core.errors import CorruptRecordError, ErrorCode, OffsetOutOfRangeError
from penstock.core.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.records.arrow import ArrowDecoder

logger = logging.getLogger(__name__)


class FetchBuffer:
    """Completed fetches in order of arrival. The loop calls `add`, the caller of poll `collect`."""

    def __init__(self, subscriptions: SubscriptionState) -> None:
        self.on_space: Callable[[], None] = lambda: None
        """Is called on the poll's thread when fetches have been consumed."""
        self.consumed_positions: dict[TopicPartition, FetchPosition] = {}
        """The position after the last collected record of each partition, assigned or not."""
        self._subscriptions = subscriptions
        self._lock = Lock()
        self._fetches: dict[int, CompletedFetch] = {}
        self._count = 0
        self._size = 0

    @property
    def size(self) -> int:
        """Returns the number of buffered bytes."""
        return self._size

    def add(self, fetch: CompletedFetch) -> None:
        with self._lock:
            self._fetches[self._count] = fetch
            self._count += 1
            self._size += fetch.size

    def clear(self) -> None:
        with self._lock:
            self._fetches.clear()
            self._size = 0

    def by_partition(self) -> dict[TopicPartition, list[CompletedFetch]]:
        with self._lock:
            fetches = list(self._fetches.values())
        by_partition: dict[TopicPartition, list[CompletedFetch]] = {}
        for fetch in fetches:
            by_partition.setdefault(fetch.partition, []).append(fetch)
        return by_partition

    def collect(self, limit: int) -> list[ConsumerRecord]:
        """Returns up to `limit` records and advances the positions.

        Raises the error of a fetch once no records precede it.
        """
        records: list[ConsumerRecord] = []

        def take(fetch: CompletedFetch) -> bool:
            records.extend(fetch.take(limit - len(records)))
            return len(records) < limit

        self._collect(take, lambda: bool(records))
        return records

    def collect_arrow(
        self, decoder: "ArrowDecoder", limit: int
    ) -> list[tuple[TopicPartition, int]]:
        """Decodes whole fetches into `decoder` until it has `limit` records.

        Returns the partitions of the rows, each with the number of its rows.
        """
        row_counts: list[tuple[TopicPartition, int]] = []

        def take(fetch: CompletedFetch) -> bool:
            rows = fetch.take_arrow(decoder)
            if rows:
                row_counts.append((fetch.partition, rows))
            return decoder.rows < limit

        self._collect(take, lambda: bool(row_counts))
        return row_counts

    def _collect(
        self, take: Callable[[CompletedFetch], bool], has_result: Callable[[], bool]
    ) -> None:
        with self._lock:
            fetches = list(self._fetches.items())
        consumed: list[int] = []
        try:
            for number, fetch in fetches:
                if self._subscriptions.is_paused(fetch.partition):
                    continue
                position = self._position_of(fetch)
                if position is None:
                    consumed.append(number)
                    continue
                if fetch.error_code:
                    if has_result():
                        return
                    consumed.append(number)
                    self._fail(fetch, position)
                    continue
                try:
                    has_room = take(fetch)
                except BaseException:
                    if has_result():
                        return
                    # It is fetched again: the network may have been at fault.
                    consumed.append(number)
                    raise
                self._advance(fetch, position)
                if fetch.is_consumed:
                    consumed.append(number)
                if not has_room:
                    return
        finally:
            self._remove(consumed)

    def _position_of(self, fetch: CompletedFetch) -> FetchPosition | None:
        """Returns the position of its partition, or None if the fetch does not continue from it."""
        if not self._subscriptions.is_fetchable(fetch.partition):
            return None
        position = self._subscriptions.fetch_position(fetch.partition)
        if position is None or position.offset != fetch.next_offset:
            return None
        return position

    def _advance(self, fetch: CompletedFetch, position: FetchPosition) -> None:
        if fetch.next_offset > position.offset:
            new_position = FetchPosition(fetch.next_offset, fetch.last_epoch)
            self.consumed_positions[fetch.partition] = new_position
            self._subscriptions.advance(fetch.partition, position.offset, new_position)

    def _remove(self, numbers: list[int]) -> None:
        if not numbers:
            return
        with self._lock:
            for number in numbers:
                fetch = self._fetches.pop(number, None)
                if fetch is not None:
                    self._size -= fetch.size
        self.on_space()

    def _fail(self, fetch: CompletedFetch, position: FetchPosition) -> None:
        """Raises the error of a fetch, or resets the offset."""
        partition, offset = fetch.partition, position.offset
        code = fetch.error_code
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if self._subscriptions.clear_preferred_replica(partition) >= 0:
                # A follower may be behind: the leader decides.
                return
            if self._subscriptions.has_default_reset:
                logger.info("%s: offset %d is out of range", partition, offset)
                self._subscriptions.request_offset_reset_if_assigned(partition)
                return
            raise OffsetOutOfRangeError(
                f"offset {offset} of {partition} does not exist (any more) and auto_offset_reset "
                "is none",
                remedy="seek() to another offset, or set `auto_offset_reset`",
            )
        if code == ErrorCode.CORRUPT_MESSAGE:
            raise CorruptRecordError(
                f"the batch at offset {offset} of {partition} is corrupt on the broker",
                remedy="check its disk and logs, or seek past the batch to skip it",
            )
        if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise error_of(
                code,
                f"this client may not read topic {partition.topic}; its user needs the ACL READ "
                "on it",
            )
        raise error_of(code, f"offset {offset} of {partition} cannot be fetched")
