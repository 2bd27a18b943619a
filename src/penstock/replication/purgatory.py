"""Fetches that wait until enough bytes have come. While they wait they cost nothing.

A waiter stands in the `WatchList` of each partition that it asked for. Whoever appends tells the
list of that partition; the host's timer or anything unexpected (a partition that goes away) calls
`finish`.
"""

from collections.abc import Callable, Iterable


class Waiter:
    """One waiting request. `answer` is called once, when the wait ends for whatever reason."""

    __slots__ = ("_answer", "_lists", "_missing")

    def __init__(self, missing_bytes: int, answer: Callable[[], None]) -> None:
        self._missing = missing_bytes
        self._answer: Callable[[], None] | None = answer
        self._lists: list[WatchList] = []

    def watch(self, lists: Iterable["WatchList"]) -> None:
        for each in lists:
            each.add(self)
            self._lists.append(each)

    def arrived(self, size: int) -> None:
        """`size` bytes more can be read."""
        self._missing -= size
        if self._missing <= 0:
            self.finish()

    def finish(self) -> None:
        """Ends the wait; nothing happens where it has ended already."""
        answer = self._answer
        if answer is not None:
            self.abandon()
            answer()

    def abandon(self) -> None:
        """Ends the wait without an answer: there is nobody left to hear it."""
        self._answer = None
        for each in self._lists:
            each.discard(self)
        self._lists.clear()


class WatchList(set[Waiter]):
    """Who waits for one partition."""

    __slots__ = ()

    def arrived(self, size: int) -> None:
        """`size` bytes more can be read from this partition."""
        for waiter in tuple(self):
            waiter.arrived(size)

    def finish_all(self) -> None:
        """The partition is not what it was: every waiter looks again now."""
        for waiter in tuple(self):
            waiter.finish()
