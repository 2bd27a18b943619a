"""Operations in steps, on the logs' own thread and on another one."""

import errno
from collections.abc import Callable

import pytest

from penstock.storage.staged_operation import StagedOperation, Steps


def failing() -> None:
    raise OSError(errno.EIO, "broken")


def two_waits(notes: list[str], second: Callable[[], None]) -> Steps[int]:
    notes.append("first turn")
    yield lambda: notes.append("first wait")
    notes.append("second turn")
    try:
        yield second
    except OSError as error:
        notes.append(f"failed: {error.strerror}")
    notes.append("last turn")
    return 7


def test_steps_and_work_alternate() -> None:
    notes: list[str] = []
    operation = StagedOperation(two_waits(notes, lambda: notes.append("second wait")))
    assert notes == []
    while not operation.advance():
        notes.append("-")
        operation.run()
    assert operation.result == 7
    assert notes == [
        "first turn",
        "-",
        "first wait",
        "second turn",
        "-",
        "second wait",
        "last turn",
    ]


def test_an_error_is_raised_at_the_yield() -> None:
    notes: list[str] = []
    assert StagedOperation(two_waits(notes, failing)).complete() == 7
    assert notes[-2:] == ["failed: broken", "last turn"]


def test_an_uncaught_error_is_raised_by_advance() -> None:
    def steps() -> Steps[None]:
        yield failing

    operation = StagedOperation(steps())
    assert not operation.advance()
    operation.run()
    with pytest.raises(OSError, match="broken"):
        operation.advance()


def test_work_is_run_once() -> None:
    notes: list[str] = []
    operation = StagedOperation(two_waits(notes, lambda: None))
    operation.advance()
    operation.run()
    operation.run()
    assert notes == ["first turn", "first wait"]
