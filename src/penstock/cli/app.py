"""The `penstock` program: its commands, each in a file of its own."""

import sys
from importlib import import_module
from typing import Annotated

import typer

from penstock import __version__

COMMANDS = {"serve": "serve", "dump-log": "dump_log"}
"""A module of this folder for each command, with a function of the same name."""


def new_app(only: str | None = None) -> typer.Typer:
    """The program with all its commands, or with one: others then cost no time to import."""
    app = typer.Typer(
        name="penstock",
        help="Kafka that you can pip install: Kafka's wire protocol and Kafka's files.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for command, name in COMMANDS.items():
        if only in (None, command):
            app.command(command)(getattr(import_module(f"penstock.cli.{name}"), name))
    app.callback()(_options)
    return app


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
    named = sys.argv[1] if len(sys.argv) > 1 else None
    new_app(named if named in COMMANDS else None)(prog_name="penstock")
