"""What was done to a log, and so what it must hold, or may hold after a crash.

A history is right at every moment, also in the middle of a call: it then allows the state before
the call and the state after it. A crash test can ask it at any operation of the disk.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from tests.support.storage.log_model import StoredBatch

T = TypeVar("T")


class Outcome(NamedTuple):
    """What a log may hold after a crash: these batches in a row, from somewhere up to somewhere."""

    batches: Sequence[StoredBatch]
    appended: Sequence[StoredBatch]
    """Those, and what came before or between them and was deleted or compacted."""
    least_end: int
    """The log ends here or later."""
    least_start: int
    most_start: int
    """The log start offset lies between the two."""


@dataclass
class History:
    """What was done to a log."""

    batches: list[StoredBatch] = field(default_factory=list)
    """All that was appended and neither truncated nor compacted, whether it was deleted or not."""
    appended: list[StoredBatch] = field(default_factory=list)
    """All that was appended and not truncated."""
    flushed: int = 0
    """Everything below was flushed, and acknowledged as flushed."""
    least_start: int = 0
    most_start: int = 0
    present: bool = True
    sure: bool = True
    """Whether `present` is sure, or about to change."""
    changes: int = 0
    """Counts the times that what is allowed has changed."""
    _under_way: list[Outcome] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.appended[-1].next_offset if self.appended else self.most_start

    def outcomes(self) -> list[Outcome]:
        """What the log may be if the machine stops now."""
        return self._under_way or [self._outcome(self.batches)]

    def _outcome(
        self, batches: Sequence[StoredBatch], appended: Sequence[StoredBatch] | None = None
    ) -> Outcome:
        appended = self.appended if appended is None else appended
        return Outcome(batches, appended, self.flushed, self.least_start, self.most_start)

    def _do(self, call: Callable[[], T], *allowed: Outcome) -> T:
        self._under_way = list(allowed)
        self.changes += 1
        result = call()
        self._under_way = []
        self.changes += 1
        return result

    def append(self, new: Sequence[StoredBatch], call: Callable[[], T]) -> T:
        batches, appended = [*self.batches, *new], [*self.appended, *new]
        result = self._do(call, self._outcome(batches, appended))
        self.batches, self.appended = batches, appended
        return result

    def flush(self, end: int) -> None:
        self.flushed = max(self.flushed, end)
        self.changes += 1

    def truncate(self, offset: int, call: Callable[[], object]) -> None:
        left = [batch for batch in self.batches if batch.next_offset <= offset]
        # Compaction may have taken all that came before; then nothing tells the end any more.
        end = left[-1].next_offset if left else min(self.least_start, offset)
        self.flushed = min(self.flushed, end)
        self.least_start = min(self.least_start, offset)
        self._do(call, self._outcome(self.batches))
        self.most_start = min(self.most_start, offset)
        self.batches = left
        self.appended = [batch for batch in self.appended if batch.next_offset <= offset]

    def truncate_fully(self, offset: int, call: Callable[[], object]) -> None:
        low, high = min(self.least_start, offset), max(self.end, offset)
        gone = Outcome(self.batches, self.appended, 0, low, high)
        self._do(call, gone, Outcome([], [], offset, offset, offset))
        self.batches, self.appended = [], []
        self.flushed = self.least_start = self.most_start = offset

    def raise_start(self, most: int, call: Callable[[], T]) -> T:
        self.most_start = max(self.most_start, most)
        return self._do(call, self._outcome(self.batches))

    def replace(
        self, batches: list[StoredBatch], unknown: Sequence[int], call: Callable[[], T]
    ) -> T:
        """Compaction: either what was there, or what is to be there.

        Recovery completes a swap that it finds. It cannot know of old segments at the end, which
        start at the offsets `unknown`, that they are replaced, because nothing of them was to
        stay. They wait for the next compaction.
        """
        outcomes = [self._outcome(self.batches), self._outcome(batches)]
        for offset in unknown:
            new = [batch for batch in batches if batch.base_offset < offset]
            kept = [batch for batch in self.batches if batch.base_offset >= offset]
            outcomes.append(self._outcome([*new, *kept]))
        result = self._do(call, *outcomes)
        self.batches = batches
        return result

    def appear(self, call: Callable[[], object]) -> None:
        self.present, self.sure = True, False
        self._do(call, self._outcome([]))
        self.sure = True

    def vanish(self, call: Callable[[], object]) -> None:
        self.sure = False
        self._do(call, self._outcome(self.batches))
        self.present, self.sure = False, True
