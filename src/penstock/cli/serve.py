"""`penstock serve`: run a broker."""

import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.logging_setup import LogFormat, set_up_logging

if TYPE_CHECKING:
    from penstock.controller.metadata import Endpoint


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def serve(
    properties: Annotated[
        Path | None,
        typer.Argument(
            metavar="[SERVER.PROPERTIES]",
            help="Kafka's own file of settings. Without one: 127.0.0.1:9092, ./penstock-data.",
            show_default=False,
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A setting, over what the file says. May be given several times.",
        ),
    ] = None,
    log_format: Annotated[
        LogFormat, typer.Option("--log-format", help="How log lines look, on standard error.")
    ] = LogFormat.HUMAN,
    log_level: Annotated[
        LogLevel, typer.Option("--log-level", help="The least that is logged.")
    ] = LogLevel.INFO,
) -> None:
    """Run a broker until SIGTERM or Ctrl-C.

    Settings have Kafka's names. One line on standard output says when clients may come, and where.
    """
    # Imported here so that other commands do not wait for the broker's modules.
    from penstock.broker.main import run
    from penstock.core.errors import KafkaError

    set_up_logging(log_format, log_level.value)
    try:
        run(properties, settings or [], _say_ready)
    except KafkaError as error:
        print(f"penstock: {error.message}", file=sys.stderr)
        raise typer.Exit(1) from None


def _say_ready(endpoints: "Sequence[Endpoint]") -> None:
    """The line that a user, or a script, waits for: the addresses as clients are told them."""
    where = [
        f"[{each.host}]:{each.port}" if ":" in each.host else f"{each.host}:{each.port}"
        for each in endpoints
    ]
    print(f"penstock is ready on {', '.join(where)}", flush=True)
