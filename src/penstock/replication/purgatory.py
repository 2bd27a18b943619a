"""The purgatories: requests that wait until more can be read, or until records are replicated.

A `DelayedFetch` (C1) is in the `Watchers` of each partition that it reads. An append reports its
bytes to the watchers of that partition. A timer, or anything else that ends the wait (such as the
removal of the partition), calls `complete`. A waiting fetch costs nothing until then.

A `DelayedOperation` waits until an offset of each of its partitions has been reached: a Produce
with acks=all (Kafka's DelayedProduce) for the high watermarks, a DeleteRecords
(DelayedDeleteRecords) for the low watermarks. `OffsetWatchers` are the waits for one offset of one
partition.
"""

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Protocol

from penstock.core.errors import ErrorCode

_MIN_BATCH_BYTES = 61


class DelayedFetch:
    """One waiting request. `on_complete` is called at most once, when the wait ends."""

    __slots__ = ("_count_missing", "_missing_bytes", "_on_complete", "_watchers")

    def __init__(
        self,
        missing_bytes: int,
        on_complete: Callable[[], None],
        count_missing: Callable[[], int],
    ) -> None:
        """`count_missing` returns how many bytes are missing now."""
        self._missing_bytes = missing_bytes
        self._count_missing = count_missing
        self._on_complete: Callable[[], None] | None = on_complete
        self._watchers: list[Watchers] = []

    def watch(self, watchers: Iterable["Watchers"]) -> None:
        """Waits for bytes in these partitions."""
        for partition_watchers in watchers:
            partition_watchers.add(self)
            self._watchers.append(partition_watchers)

    def add_bytes(self, size: int) -> None:
        """Counts `size` more readable bytes; completes if there are enough."""
        self._missing_bytes -= size
        if self._missing_bytes <= 0:
            self.complete()

    def recount(self) -> None:
        """Counts again how many bytes are missing; completes if there are enough.

        Call it when a batch or more has become readable: that is enough for most fetches.
        """
        if 0 < self._missing_bytes <= _MIN_BATCH_BYTES:
            self.complete()
        elif self._on_complete is not None:
            self._missing_bytes = self._count_missing()
            if self._missing_bytes <= 0:
                self.complete()

    def complete(self) -> None:
        """Ends the wait and calls `on_complete`, unless the wait has already ended."""
        on_complete = self._on_complete
        if on_complete is not None:
            self.cancel()
            on_complete()

    def cancel(self) -> None:
        """Ends the wait without calling `on_complete`: the client has disconnected."""
        self._on_complete = None
        for partition_watchers in self._watchers:
            partition_watchers.discard(self)
        self._watchers.clear()


class Watchers(dict[DelayedFetch, None]):
    """The delayed fetches of one partition, in the order in which they began to wait."""

    __slots__ = ()

    def add(self, fetch: DelayedFetch) -> None:
        self[fetch] = None

    def discard(self, fetch: DelayedFetch) -> None:
        self.pop(fetch, None)

    def add_bytes(self, size: int) -> None:
        """Reports `size` more readable bytes in this partition."""
        for fetch in tuple(self):
            fetch.add_bytes(size)

    def recount(self) -> None:
        """Reports that an unknown number of earlier bytes have become readable."""
        for fetch in tuple(self):
            fetch.recount()

    def complete_all(self) -> None:
        """Completes every fetch, because the state of the partition has changed."""
        for fetch in tuple(self):
            fetch.complete()


class FollowerWatch(Protocol):
    """A follower's session that is notified of the changes of one partition."""

    def on_append(self, size: int) -> None:
        """Records of `size` bytes were appended."""

    def on_offsets_changed(self) -> None:
        """The high watermark has advanced."""

    def on_state_changed(self) -> None:
        """The leader or its epoch has changed, or the log: the follower must learn of it now."""


class OffsetWait(Protocol):
    """A wait until an offset of a partition has been reached, or cannot be reached any more."""

    offset: int

    def complete(self, code: ErrorCode) -> None:
        """Ends the wait; it has been removed from its watchers."""


class CallbackWait:
    """An `OffsetWait` that calls a function."""

    __slots__ = ("_on_result", "offset")

    def __init__(self, offset: int, on_result: Callable[[ErrorCode], None]) -> None:
        self.offset = offset
        self._on_result = on_result

    def complete(self, code: ErrorCode) -> None:
        self._on_result(code)


_offset_of = attrgetter("offset")


class OffsetWatchers:
    """The waits for the high watermark, or for the low watermark, of one partition."""

    __slots__ = ("_waits",)

    def __init__(self) -> None:
        self._waits: list[OffsetWait] = []
        """In the order of their offsets."""

    def __len__(self) -> int:
        return len(self._waits)

    def add(self, offset: int, on_result: Callable[[ErrorCode], None]) -> OffsetWait:
        """Calls `on_result` once, when the offset has been reached or the wait has failed."""
        wait = CallbackWait(offset, on_result)
        self.add_wait(wait)
        return wait

    def add_wait(self, wait: OffsetWait) -> None:
        """Completes the wait once, when its offset has been reached or it has failed."""
        waits = self._waits
        if waits and wait.offset < waits[-1].offset:
            insort(waits, wait, key=_offset_of)
        else:
            waits.append(wait)

    def discard(self, wait: OffsetWait) -> None:
        """Ends a wait without a result."""
        position = bisect_right(self._waits, wait.offset, key=_offset_of) - 1
        while position >= 0 and self._waits[position].offset == wait.offset:
            if self._waits[position] is wait:
                del self._waits[position]
                return
            position -= 1

    def reach(self, offset: int, code: ErrorCode = ErrorCode.NONE) -> None:
        """Completes the waits for this offset and those below it."""
        waits = self._waits
        if not waits or waits[0].offset > offset:
            return
        count = bisect_right(waits, offset, key=_offset_of)
        reached, self._waits = waits[:count], waits[count:]
        for wait in reached:
            wait.complete(code)

    def fail(self, code: ErrorCode) -> None:
        """Completes all waits: this broker cannot tell any more when their offsets are reached."""
        waits, self._waits = self._waits, []
        for wait in waits:
            wait.complete(code)


class DelayedOperation:
    """A request that waits for offsets of several partitions.

    The caller adds its waits, then calls `start`. `on_complete` is called once, when every wait has
    its result.
    """

    __slots__ = ("_is_started", "_on_complete", "_waits")

    def __init__(self, on_complete: Callable[[], None]) -> None:
        self._on_complete: Callable[[], None] | None = on_complete
        self._waits: dict[OffsetWait, tuple[OffsetWatchers, Callable[[ErrorCode], None]]] = {}
        self._is_started = False

    def add(
        self, watchers: OffsetWatchers, offset: int, on_result: Callable[[ErrorCode], None]
    ) -> None:
        """Waits for an offset of one partition; `on_result` receives the partition's error."""

        def complete(code: ErrorCode) -> None:
            self._waits.pop(wait, None)
            on_result(code)
            self._complete_if_done()

        wait = watchers.add(offset, complete)
        self._waits[wait] = watchers, on_result

    def start(self) -> None:
        """Completes if nothing is waited for any more."""
        self._is_started = True
        self._complete_if_done()

    def expire(self) -> None:
        """Ends the remaining waits with REQUEST_TIMED_OUT."""
        waits, self._waits = self._waits, {}
        for wait, (watchers, on_result) in waits.items():
            watchers.discard(wait)
            on_result(ErrorCode.REQUEST_TIMED_OUT)
        self._complete_if_done()

    def cancel(self) -> None:
        """Ends the waits without results: the client has disconnected."""
        self._on_complete = None
        waits, self._waits = self._waits, {}
        for wait, (watchers, _) in waits.items():
            watchers.discard(wait)

    def _complete_if_done(self) -> None:
        on_complete = self._on_complete
        if self._is_started and not self._waits and on_complete is not None:
            self._on_complete = None
            on_complete()
