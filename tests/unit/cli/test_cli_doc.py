"""docs/cli.md has every command, and its examples are commands that exist."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from penstock.cli.app import new_app

DOC = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
HERE = (
    *("topic", "group", "offsets", "config", "quota", "user", "acl", "txn", "cluster", "log"),
    "pipeline",
)
EXAMPLES = list(dict.fromkeys(re.findall(r"^\$ penstock (.+)$", DOC, re.MULTILINE)))


def commands(group: Any, path: str) -> Iterator[str]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}"


@pytest.mark.parametrize("name", HERE)
def test_every_command_has_a_section(name: str) -> None:
    group = typer.main.get_command(new_app(name))
    sections = re.findall(r"^##+ (penstock .+)$", DOC, re.MULTILINE)
    for path in commands(group, "penstock"):
        assert path in sections


@pytest.mark.parametrize("line", EXAMPLES)
def test_an_example(line: str) -> None:
    """It is parsed, options and all; nothing is run."""
    words = shlex.split(line.split(" > ")[0].split(" < ")[0])
    command: Any = typer.main.get_command(new_app(words[0]))
    context = command.make_context("penstock", words, resilient_parsing=False)
    while hasattr(command, "commands"):
        name, command, rest = command.resolve_command(
            context, [*context._protected_args, *context.args]
        )
        context = command.make_context(name, rest, parent=context)
    assert command.callback is not None
