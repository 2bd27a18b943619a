"""The `penstock` program: its commands, each in a file of its own."""

from typing import Annotated

import typer

from penstock import __version__
from penstock.cli.dump_log import dump_log
from penstock.cli.serve import serve

app = typer.Typer(
    name="penstock",
    help="Kafka that you can pip install: Kafka's wire protocol and Kafka's files.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("serve")(serve)
app.command("dump-log")(dump_log)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Entry point of the installed program."""
    app(prog_name="penstock")
