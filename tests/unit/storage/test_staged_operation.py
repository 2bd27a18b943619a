"""Operations in turns, on the logs' own thread and on another one."""

import errno
from collections.abc import Callable

import pytest

from penstock.storage.staged_operation import Stages, Turns


def failing() -> None:
    raise OSError(errno.EIO, "broken")


def two_waits(notes: list[str], second: Callable[[], None]) -> Turns[int]:
    notes.append("first turn")
    yield lambda: notes.append("first wait")
    notes.append("second turn")
    try:
        yield second
    except OSError as error:
        notes.append(f"failed: {error.strerror}")
    notes.append("last turn")
    return 7


def test_turns_and_waits_alternate() -> None:
    notes: list[str] = []
    stages = Stages(two_waits(notes, lambda: notes.append("second wait")))
    assert notes == []
    while not stages.advance():
        notes.append("-")
        stages.run()
    assert stages.result == 7
    assert notes == [
        "first turn",
        "-",
        "first wait",
        "second turn",
        "-",
        "second wait",
        "last turn",
    ]


def test_an_error_is_raised_where_the_work_was_handed_out() -> None:
    notes: list[str] = []
    assert Stages(two_waits(notes, failing)).complete() == 7
    assert notes[-2:] == ["failed: broken", "last turn"]


def test_what_is_not_caught_comes_out_of_advance() -> None:
    def turns() -> Turns[None]:
        yield failing

    stages = Stages(turns())
    assert not stages.advance()
    stages.run()
    with pytest.raises(OSError, match="broken"):
        stages.advance()


def test_work_is_run_once() -> None:
    notes: list[str] = []
    stages = Stages(two_waits(notes, lambda: None))
    stages.advance()
    stages.run()
    stages.run()
    assert notes == ["first turn", "first wait"]
