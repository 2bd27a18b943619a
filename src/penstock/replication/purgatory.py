"""The fetch purgatory: fetch requests that wait until enough bytes have been appended (C1).

A `DelayedFetch` is in the `Watchers` of each partition that it reads. An append reports its bytes
to the watchers of that partition. A timer, or anything else that ends the wait (such as the removal
of the partition), calls `complete`. A waiting fetch costs nothing until then.
"""

from collections.abc import Callable, Iterable


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
        """Counts anew how many bytes are missing; completes if there are enough."""
        if self._on_complete is not None:
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


class Watchers(set[DelayedFetch]):
    """The delayed fetches of one partition."""

    __slots__ = ()

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
