"""docs/cli-records.md has every one of its commands, and its examples can be given."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from penstock.cli.app import new_app

DOC = (Path(__file__).parents[3] / "docs" / "cli-records.md").read_text()
SECTIONS = re.findall(r"^## (penstock .+)$", DOC, re.MULTILINE)
EXAMPLES = re.findall(r"^\$ penstock (.+)$", DOC, re.MULTILINE)


def test_the_sections() -> None:
    perf = typer.main.get_command(new_app("perf"))
    names = [f"perf {command}" for command in perf.commands["perf"].commands]  # type: ignore[attr-defined]
    assert [f"penstock {name}" for name in ("produce", "consume", *names, "doctor")] == SECTIONS


@pytest.mark.parametrize("line", EXAMPLES)
def test_an_example(line: str) -> None:
    """It is parsed, options and all; nothing is run."""
    words = shlex.split(re.split(" [<>] ", line)[0])
    command: Any = typer.main.get_command(new_app(words[0]))
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    assert command.make_context("it", words, resilient_parsing=False).params
