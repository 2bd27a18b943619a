"""Completion in shells: the words that may come next."""

import os
import subprocess
import sys

import pytest

from penstock.cli.app import completed_words


def completions(words: str, position: int) -> list[str]:
    """What bash would offer."""
    environment = {
        **os.environ,
        "_PENSTOCK_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(position),
        "_TYPER_COMPLETE_TESTING": "yes",
    }
    done = subprocess.run(
        [sys.executable, "-m", "penstock"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_commands_are_completed() -> None:
    assert completions("penstock to", 1) == ["topic", "token"]


def test_commands_of_a_command_are_completed() -> None:
    assert {"create", "delete", "describe", "list"} <= set(completions("penstock topic ", 2))


def test_options_are_completed() -> None:
    assert "--bootstrap-server" in completions("penstock topic list --boot", 3)


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"COMP_WORDS": "penstock topic li", "COMP_CWORD": "2"}, ["penstock", "topic"]),
        ({"COMP_WORDS": "penstock topic", "COMP_CWORD": "1"}, ["penstock"]),
        ({"_TYPER_COMPLETE_ARGS": "penstock topic "}, ["penstock", "topic"]),
        ({"_TYPER_COMPLETE_ARGS": "penstock topic"}, ["penstock"]),
        ({}, []),
    ],
)
def test_the_word_that_is_being_typed_does_not_count(
    environment: dict[str, str], words: list[str]
) -> None:
    assert completed_words(environment) == words
