"""The JSON files of Kafka's scripts."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.cli.admin.json_files import (
    Move,
    moves_document,
    moves_in,
    offsets_in,
    partitions_in,
    topics_in,
)
from penstock.cli.output import UsageError
from penstock.core.ids import TopicPartition

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def entries(*values: object, name: str = "partitions") -> str:
    return json.dumps({"version": 1, name: values})


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "x.json"
        path.write_text(text)
        return path

    return write


def test_what_files_say(written: Callable[[str], Path]) -> None:
    a0 = {"topic": "a", "partition": 0}
    assert partitions_in(written(entries(a0))) == [A0]
    assert offsets_in(written(entries(a0 | {"offset": -1}))) == {A0: -1}
    assert topics_in(written(entries({"topic": "a"}, name="topics"))) == ["a"]
    moves = entries(
        a0 | {"replicas": [1, 2]}, a0 | {"partition": 1, "replicas": [3], "log_dirs": ["/d"]}
    )
    assert moves_in(written(moves)) == {
        A0: Move((1, 2), ("any", "any")),
        A1: Move((3,), ("/d",)),
    }


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(entries({"topic": "a", "partition": 0})))
    assert partitions_in(Path("-")) == [A0]


def test_a_plan_can_be_read_again(written: Callable[[str], Path]) -> None:
    document = moves_document({A1: (2, 1), A0: (1,)})
    assert moves_in(written(json.dumps(document))) == {
        A0: Move((1,), ("any",)),
        A1: Move((2, 1), ("any", "any")),
    }


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "it is not JSON"),
        ("[]", 'must be an object with a list "partitions"'),
        (entries(1), "1 is not an object"),
        (entries({"topic": "a"}), '"partition", a whole number'),
        (entries({"topic": 1, "partition": 0}), '"topic", text'),
        (entries({"topic": "a", "partition": True}), '"partition", a whole number'),
        (entries({"topic": "a", "partition": 0}), '"replicas", a list of whole numbers'),
        (entries({"topic": "a", "partition": 0, "replicas": [1, 1]}), "a broker of its own"),
        (
            entries({"topic": "a", "partition": 0, "replicas": [1], "log_dirs": ["x", "y"]}),
            "log_dirs needs one for each",
        ),
        (entries(*[{"topic": "a", "partition": 0, "replicas": [1]}] * 2), "names a-0 twice"),
    ],
)
def test_files_that_make_no_sense(written: Callable[[str], Path], text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as error:
        moves_in(written(text))
    assert "x.json" in str(error.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        partitions_in(tmp_path / "missing")
    (tmp_path / "binary").write_bytes(b"\xff")
    with pytest.raises(UsageError, match="not UTF-8"):
        partitions_in(tmp_path / "binary")
