"""The `penstock` program: its commands, each in a file of its own."""

import os
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Annotated

import typer

from penstock import __version__

COMMANDS = {
    "serve": "serve:serve",
    "topic": "admin.topic:app",
    "group": "admin.group:app",
    "config": "admin.config:app",
    "acl": "admin.acl:app",
    "quota": "admin.quota:app",
    "user": "admin.user:app",
    "txn": "admin.transaction:app",
    "cluster": "admin.cluster:app",
    "log": "admin.log:app",
    "offsets": "admin.offsets:offsets",
    "produce": "records.produce:produce",
    "consume": "records.consume:consume",
    "perf": "records.perf:app",
    "pipeline": "pipeline:app",
    "doctor": "doctor.command:doctor",
    "dump-log": "dump.command:dump_log",
}
"""The module and attribute of each command: a function or a typer app."""

_COMPLETION = "_PENSTOCK_COMPLETE"
"""Set by the shell when it asks which words could come next."""


def new_app(only: str | None = None) -> typer.Typer:
    """The program with all its commands, or with one: others then cost no time to import."""
    app = typer.Typer(
        name="penstock",
        help="Kafka that you can pip install: Kafka's wire protocol and Kafka's files.",
        no_args_is_help=True,
        add_completion=only is None or _COMPLETION in os.environ,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for name, target in COMMANDS.items():
        if only in (None, name):
            module, _, attribute = target.partition(":")
            command = getattr(import_module(f"penstock.cli.{module}"), attribute)
            if isinstance(command, typer.Typer):
                app.add_typer(command, name=name)
            else:
                app.command(name)(command)
    app.callback()(_options)
    return app


def new_group(about: str) -> typer.Typer:
    """A command with commands of its own."""
    return typer.Typer(
        help=about,
        no_args_is_help=True,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"penstock {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Entry point of the installed program."""
    words = completed_words(os.environ) if _COMPLETION in os.environ else sys.argv
    named = words[1] if len(words) > 1 else None
    new_app(named if named in COMMANDS else None)(prog_name="penstock")


def completed_words(environment: Mapping[str, str]) -> list[str]:
    """The words that are typed already when a shell asks for the next; the last may be half done.

    bash tells them in COMP_WORDS, the others in a variable of typer's.
    """
    typed = environment.get("_TYPER_COMPLETE_ARGS") or environment.get("COMP_WORDS", "")
    words = typed.split()
    at = environment.get("COMP_CWORD", "")
    done = int(at) if at.isdigit() else len(words) - (not typed.endswith(" "))
    return words[:done]
