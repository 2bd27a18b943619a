"""Work in steps: some of it on the logs' own thread, some on any other (ADR 5).

An operation that needs several syncs, with changes to a log between them, is a generator. It
changes the log itself and yields each thing that waits for the disk::

    operation = log.begin_truncation(5)
    while not operation.advance():                       # on the logs' own thread
        await loop.run_in_executor(pool, operation.run)  # on any thread

An `OSError` of what was yielded is raised in the generator, where it was yielded.
"""

from collections.abc import Callable, Generator
from typing import Generic, TypeAlias, TypeVar

T = TypeVar("T")

Work: TypeAlias = Callable[[], None]
"""Something that waits for the disk; it touches nothing that the logs' own thread changes."""
Steps: TypeAlias = Generator[Work, None, T]


class StagedOperation(Generic[T]):
    """An operation under way. `result` is there once `advance` has said that it has ended."""

    result: T

    def __init__(self, steps: Steps[T]) -> None:
        self.steps = steps
        """For an operation that has this one as a part."""
        self._work: Work | None = None
        self._error: OSError | None = None

    def advance(self) -> bool:
        """Goes on, on the logs' own thread. False: `run` it, then come again. True: it has ended.

        Raises what the operation raises; it has ended then, too.
        """
        error, self._error = self._error, None
        try:
            self._work = next(self.steps) if error is None else self.steps.throw(error)
        except StopIteration as end:
            self.result = end.value
            return True
        return False

    def run(self) -> None:
        """Does what waits for the disk, on any thread."""
        work, self._work = self._work, None
        if work is not None:
            try:
                work()
            except OSError as error:
                self._error = error

    def complete(self) -> T:
        """Does all of it here and now."""
        while not self.advance():
            self.run()
        return self.result
