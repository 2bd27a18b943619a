"""Operations that alternate between the event loop and a worker thread (ADR 5).

The event loop owns the logs, a worker thread does the blocking I/O. An operation that needs several
syncs, with changes to a log between them, is a generator. It changes the log itself and yields each
piece of blocking work::

    operation = manager.begin_truncation(partition, 5)
    while not operation.advance():                       # on the event loop
        await loop.run_in_executor(pool, operation.run)  # on any thread

An exception of the work is raised in the generator, at the `yield`.
"""

from collections.abc import Callable, Generator
from typing import Generic, TypeAlias, TypeVar

T = TypeVar("T")

Work: TypeAlias = Callable[[], None]
"""Blocking I/O; it must not touch anything that the event loop changes."""
Steps: TypeAlias = Generator[Work, None, T]


class StagedOperation(Generic[T]):
    """An operation in progress. `result` is set once `advance` has returned True."""

    result: T

    def __init__(self, steps: Steps[T]) -> None:
        self.steps = steps
        """For an operation that includes this one."""
        self._work: Work | None = None
        self._error: Exception | None = None

    def advance(self) -> bool:
        """Continues the operation, on the event loop.

        Returns False when there is work: call `run`, then `advance` again. Returns True when the
        operation has ended. Raises the operation's exception, which also ends it.
        """
        error, self._error = self._error, None
        try:
            self._work = next(self.steps) if error is None else self.steps.throw(error)
        except StopIteration as end:
            self.result = end.value
            return True
        return False

    def run(self) -> None:
        """Does the blocking work, on any thread."""
        work, self._work = self._work, None
        if work is not None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - raised in the generator
                self._error = error

    def complete(self) -> T:
        """Runs the whole operation on this thread."""
        while not self.advance():
            self.run()
        return self.result
