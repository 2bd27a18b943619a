"""The history of a log: what it must contain, or may contain after a crash.

A history is valid at every moment, also in the middle of a call: it then allows the state before
the call and the state after it. A crash test can query it at any operation of the disk.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from tests.support.storage.log_model import StoredBatch

T = TypeVar("T")


class Outcome(NamedTuple):
    """What a log may contain after a crash: consecutive batches of this list."""

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
    """The operations on a log."""

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
        """Returns the possible contents of the log if the machine stops now."""
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
        remaining = [batch for batch in self.batches if batch.next_offset <= offset]
        # Compaction may have removed all earlier records; then the end is unknown.
        end = remaining[-1].next_offset if remaining else min(self.least_start, offset)
        self.flushed = min(self.flushed, end)
        self.least_start = min(self.least_start, offset)
        self._do(call, self._outcome(self.batches))
        self.most_start = min(self.most_start, offset)
        self.batches = remaining
        self.appended = [batch for batch in self.appended if batch.next_offset <= offset]

    def truncate_fully(self, offset: int, call: Callable[[], object]) -> None:
        low, high = min(self.least_start, offset), max(self.end, offset)
        removed = Outcome(self.batches, self.appended, 0, low, high)
        self._do(call, removed, Outcome([], [], offset, offset, offset))
        self.batches, self.appended = [], []
        self.flushed = self.least_start = self.most_start = offset

    def raise_start(self, most: int, call: Callable[[], T]) -> T:
        self.most_start = max(self.most_start, most)
        return self._do(call, self._outcome(self.batches))

    def replace(
        self, batches: list[StoredBatch], unknown: Sequence[int], call: Callable[[], T]
    ) -> T:
        """Records a compaction: the log has either the old or the new batches.

        Recovery completes an interrupted swap. It cannot recognise old segments at the end, which
        start at the offsets `unknown`, as replaced, because no record of them remains. The next
        compaction removes them.
        """
        outcomes = [self._outcome(self.batches), self._outcome(batches)]
        for offset in unknown:
            new = [batch for batch in batches if batch.base_offset < offset]
            remaining = [batch for batch in self.batches if batch.base_offset >= offset]
            outcomes.append(self._outcome([*new, *remaining]))
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
