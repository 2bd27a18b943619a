"""What was fetched ahead, between the loop that fetches and the thread that polls."""

from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING

from penstock.client.consumer.fetched import CompletedFetch
from penstock.client.consumer.positions import FetchPosition
from penstock.client.consumer.record import ConsumerRecord
from penstock.client.consumer.subscriptions import SubscriptionState
from penstock.client.errors import error_of
from penstock.core.errors import CorruptRecordError, ErrorCode, OffsetOutOfRangeError
from penstock.core.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.records.arrow import ArrowDecoder


class FetchBuffer:
    """Fetches in the order in which they came. `add` is the loop's, `collect` the user's."""

    def __init__(self, subscriptions: SubscriptionState) -> None:
        self.on_room: Callable[[], None] = lambda: None
        """Called on the user's thread when fetches have been used up."""
        self.given_out: dict[TopicPartition, FetchPosition] = {}
        """Behind the last record that was collected of each partition, wherever it is now."""
        self._subscriptions = subscriptions
        self._lock = Lock()
        self._fetches: dict[int, CompletedFetch] = {}
        self._count = 0
        self._size = 0

    @property
    def size(self) -> int:
        """Bytes that wait."""
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

    def ahead(self) -> dict[TopicPartition, list[CompletedFetch]]:
        """What waits, by partition."""
        with self._lock:
            fetches = list(self._fetches.values())
        found: dict[TopicPartition, list[CompletedFetch]] = {}
        for fetch in fetches:
            found.setdefault(fetch.partition, []).append(fetch)
        return found

    def collect(self, limit: int) -> list[ConsumerRecord]:
        """Up to `limit` records, moving positions on. Errors come once nothing is before them."""
        taken: list[ConsumerRecord] = []

        def take(fetch: CompletedFetch) -> bool:
            taken.extend(fetch.take(limit - len(taken)))
            return len(taken) < limit

        self._collect(take, lambda: bool(taken))
        return taken

    def collect_arrow(
        self, decoder: "ArrowDecoder", limit: int
    ) -> list[tuple[TopicPartition, int]]:
        """Whole fetches into `decoder`, until there are `limit` records; whose and how many."""
        taken: list[tuple[TopicPartition, int]] = []

        def take(fetch: CompletedFetch) -> bool:
            rows = fetch.take_arrow(decoder)
            if rows:
                taken.append((fetch.partition, rows))
            return decoder.rows < limit

        self._collect(take, lambda: bool(taken))
        return taken

    def _collect(
        self, take: Callable[[CompletedFetch], bool], has_some: Callable[[], bool]
    ) -> None:
        with self._lock:
            waiting = list(self._fetches.items())
        used: list[int] = []
        try:
            for number, fetch in waiting:
                if self._subscriptions.is_paused(fetch.partition):
                    continue
                position = self._position_of(fetch)
                if position is None:
                    used.append(number)
                    continue
                if fetch.error_code:
                    if has_some():
                        return
                    used.append(number)
                    self._fail(fetch, position)
                    continue
                try:
                    more = take(fetch)
                except BaseException:
                    if has_some():
                        return
                    # Fetched anew, and found broken anew, if it was not the network's fault.
                    used.append(number)
                    raise
                self._advance(fetch, position)
                if fetch.is_consumed:
                    used.append(number)
                if not more:
                    return
        finally:
            self._remove(used)

    def _position_of(self, fetch: CompletedFetch) -> FetchPosition | None:
        """Where its partition is; None where the fetch does not go on from there."""
        if not self._subscriptions.is_fetchable(fetch.partition):
            return None
        position = self._subscriptions.fetch_position(fetch.partition)
        if position is None or position.offset != fetch.next_offset:
            return None
        return position

    def _advance(self, fetch: CompletedFetch, position: FetchPosition) -> None:
        if fetch.next_offset > position.offset:
            moved = FetchPosition(fetch.next_offset, fetch.last_epoch)
            self.given_out[fetch.partition] = moved
            self._subscriptions.advance(fetch.partition, position.offset, moved)

    def _remove(self, numbers: list[int]) -> None:
        if not numbers:
            return
        with self._lock:
            for number in numbers:
                fetch = self._fetches.pop(number, None)
                if fetch is not None:
                    self._size -= fetch.size
        self.on_room()

    def _fail(self, fetch: CompletedFetch, position: FetchPosition) -> None:
        """An error that is the user's business, or a reset."""
        partition, offset = fetch.partition, position.offset
        code = fetch.error_code
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if self._subscriptions.clear_preferred_replica(partition) >= 0:
                # A follower may lag behind: the leader knows.
                return
            if self._subscriptions.has_default_reset:
                self._subscriptions.request_offset_reset_if_assigned(partition)
                return
            raise OffsetOutOfRangeError(
                f"offset {offset} of {partition} does not exist (any more) and auto_offset_reset "
                "is none: seek() to where to go on, or set auto_offset_reset"
            )
        if code == ErrorCode.CORRUPT_MESSAGE:
            raise CorruptRecordError(
                f"the broker finds the batch at offset {offset} of {partition} broken: check its "
                "disk and logs, seek past the batch to go on without it"
            )
        if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise error_of(
                code,
                f"this client may not read topic {partition.topic}: its user needs the ACL READ "
                "on it",
            )
        raise error_of(code, f"offset {offset} of {partition} cannot be fetched")
