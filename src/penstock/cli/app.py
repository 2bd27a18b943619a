"""The `penstock` program: finds and runs the command, whose module is imported on demand."""

import os
import sys
from collections.abc import Mapping
from importlib import import_module

import typer

from penstock import __version__
from penstock.cli.hidden_arguments import hide_secrets
from penstock.cli.options import flag

COMMANDS = {
    "serve": "serve:serve",
    "topic": "admin.topic:app",
    "group": "admin.group:app",
    "config": "admin.config:app",
    "acl": "admin.acl:app",
    "quota": "admin.quota:app",
    "user": "admin.user:app",
    "token": "admin.token:app",
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
"""Environment variable that the shell sets when it asks for completions."""


def new_app(only: str | None = None) -> typer.Typer:
    """Returns the program with all commands, or with one, which is quicker to import."""
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
    """Returns a typer app for a command with subcommands."""
    return typer.Typer(
        help=about,
        no_args_is_help=True,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def _print_version(requested: bool) -> None:
    if requested:
        print(f"penstock {__version__}")
        raise typer.Exit


def _options(
    version: bool = flag(
        "--version", help="Show the version.", is_eager=True, callback=_print_version
    ),
) -> None:
    pass


def main() -> None:
    """The entry point of the installed program."""
    hide_secrets()
    words = completed_words(os.environ) if _COMPLETION in os.environ else sys.argv
    named = words[1] if len(words) > 1 else None
    new_app(named if named in COMMANDS else None)(prog_name="penstock")


def completed_words(environment: Mapping[str, str]) -> list[str]:
    """Returns the complete words of the command line for which a shell requests completions.

    bash passes the command line in COMP_WORDS, other shells in a variable of typer's.
    """
    typed = environment.get("_TYPER_COMPLETE_ARGS") or environment.get("COMP_WORDS", "")
    words = typed.split()
    at = environment.get("COMP_CWORD", "")
    complete_words = int(at) if at.isdigit() else len(words) - (not typed.endswith(" "))
    return words[:complete_words]
