"""What commands print: tables in pipes and on terminals, JSON, errors."""

import json
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from uuid import UUID

import pytest

from penstock.cli.output import (
    Marked,
    Output,
    fail,
    fail_many,
    moment,
    plain,
    shown,
    text_table,
)
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition

Shown = Callable[[], tuple[str, str]]


class Colour(StrEnum):
    RED = "Red"


class Number(IntEnum):
    ONE = 1


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Shown:
    def read() -> tuple[str, str]:
        captured = capsys.readouterr()
        return captured.out, captured.err

    return read


ROWS = [("orders", 0, 12, None), ("a", 11, Marked(3, "red"), True)]
COLUMNS = ["Topic", "Partition", "Log end offset", "Is-ok"]


def test_a_table_in_a_pipe(printed: Shown) -> None:
    Output(False).table(COLUMNS, ROWS, title="Offsets")
    assert printed() == (
        "Offsets\n"
        "TOPIC   PARTITION  LOG END OFFSET  IS-OK\n"
        "orders          0              12  -\n"
        "a              11               3  yes\n",
        "",
    )


def test_a_table_as_json(printed: Shown) -> None:
    Output(True).table(COLUMNS, ROWS, title="Offsets")
    out, _ = printed()
    assert json.loads(out) == [
        {"topic": "orders", "partition": 0, "log_end_offset": 12, "is_ok": None},
        {"topic": "a", "partition": 11, "log_end_offset": 3, "is_ok": True},
    ]


def test_a_table_on_a_terminal_has_colours(monkeypatch: pytest.MonkeyPatch, printed: Shown) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "60")
    for variable in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(variable, raising=False)
    Output(False).table(COLUMNS, ROWS)
    out, _ = printed()
    assert re.search(r"\x1b\[31m *3\x1b", out)
    assert all(len(line) < 200 for line in out.splitlines())
    monkeypatch.setenv("NO_COLOR", "1")
    Output(False).table(COLUMNS, ROWS)
    assert "\x1b[31m" not in printed()[0]


def test_a_long_cell_is_never_cut(monkeypatch: pytest.MonkeyPatch, printed: Shown) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    Output(False).table(["Member"], [["é" * 100]])
    assert printed()[0].count("é") == 100
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)
    Output(False).table(["Member"], [["é" * 1000]])
    assert "é" * 1000 in printed()[0]


def test_an_empty_table(printed: Shown) -> None:
    Output(False).table(COLUMNS, [], empty="there are no topics")
    assert printed() == ("", "there are no topics\n")
    Output(True).table(COLUMNS, [], empty="there are no topics")
    assert printed() == ("[]\n", "")


def test_wide_letters_and_what_would_break_a_row() -> None:
    assert text_table(["N", "X"], [False, False], [("日本", "1"), ("a\x1b[2J\nb", "2")]) == [
        "N            X",
        "日本         1",
        "a\\x1b[2J\\nb  2",
    ]


@pytest.mark.parametrize(
    ("value", "text", "as_json"),
    [
        (None, "-", None),
        (True, "yes", True),
        ((1, 2), "1,2", [1, 2]),
        ((), "-", []),
        (Colour.RED, "Red", "Red"),
        (Number.ONE, "one", "ONE"),
        (b"\xff", "\\xff", "\\xff"),
        (TopicPartition("a", 1), "a-1", {"topic": "a", "partition": 1}),
        (UUID(bytes=bytes(range(16))), "AAECAwQFBgcICQoLDA0ODw", "AAECAwQFBgcICQoLDA0ODw"),
        (
            datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
            "2026-01-02 03:04:05.000+00:00",
            "2026-01-02T03:04:05+00:00",
        ),
        (
            {TopicPartition("a", 1): 2},
            "{TopicPartition(topic='a', partition=1): 2}",
            {"a-1": 2},
        ),
    ],
)
def test_values(value: object, text: str, as_json: object) -> None:
    assert shown(value) == text
    assert plain(value) == as_json


def test_errors_as_json() -> None:
    error = KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, "no such group")
    assert plain({"x": error}) == {"x": {"error": "GROUP_ID_NOT_FOUND", "message": "no such group"}}


def test_moments() -> None:
    assert moment(-1) is None
    assert moment(1_500) == datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)


def test_fields(printed: Shown) -> None:
    Output(False).fields({"Id": "x", "Controller": None})
    assert printed()[0] == "Id:         x\nController: -\n"
    Output(True).fields({"Id": "x"})
    assert json.loads(printed()[0]) == {"Id": "x"}


def test_failures(printed: Shown) -> None:
    with pytest.raises(SystemExit) as ended:
        fail("no such group", code="GROUP_ID_NOT_FOUND")
    assert (ended.value.code, printed()) == (
        1,
        ("", "penstock: no such group (GROUP_ID_NOT_FOUND)\n"),
    )
    with pytest.raises(SystemExit) as ended:
        fail("say which", code="USAGE", as_json=True, status=2)
    assert ended.value.code == 2
    assert json.loads(printed()[1]) == {"error": "USAGE", "message": "say which"}


def test_failures_of_some(printed: Shown) -> None:
    reasons = {"a": ("TOPIC_ALREADY_EXISTS", "a exists"), "b": ("INVALID_PARTITIONS", "b: 0")}
    with pytest.raises(SystemExit):
        fail_many(reasons, ["c"])
    assert printed() == (
        "",
        "penstock: a exists (TOPIC_ALREADY_EXISTS)\npenstock: b: 0 (INVALID_PARTITIONS)\n"
        "penstock: succeeded: c\n",
    )
    with pytest.raises(SystemExit):
        fail_many(reasons, ["c"], as_json=True)
    assert json.loads(printed()[1]) == {
        "error": "TOPIC_ALREADY_EXISTS",
        "message": "a exists",
        "errors": {
            "a": {"error": "TOPIC_ALREADY_EXISTS", "message": "a exists"},
            "b": {"error": "INVALID_PARTITIONS", "message": "b: 0"},
        },
        "done": ["c"],
    }


def test_progress_is_for_terminals(monkeypatch: pytest.MonkeyPatch, printed: Shown) -> None:
    with Output(False).progress("moving", 2) as step:
        step(1)
    assert printed() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    with Output(False).progress("moving", 2) as step:
        step(2)
    assert "moving" in printed()[1]
