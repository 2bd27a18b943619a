"""`penstock serve`: runs a broker."""

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
            help="Kafka's settings file. Without one: 127.0.0.1:9092, ./penstock-data.",
            show_default=False,
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A setting, overriding the file. May be repeated.",
        ),
    ] = None,
    log_format: Annotated[
        LogFormat, typer.Option("--log-format", help="The format of log lines on standard error.")
    ] = LogFormat.HUMAN,
    log_level: Annotated[
        LogLevel, typer.Option("--log-level", help="The lowest level that is logged.")
    ] = LogLevel.INFO,
) -> None:
    """Run a broker until SIGTERM or Ctrl-C.

    Settings have Kafka's names. One line on standard output tells when and
    where clients can connect.
    """
    # Imported here because the modules of the broker would slow down other commands.
    from penstock.broker.main import run
    from penstock.core.errors import KafkaError

    set_up_logging(log_format, log_level.value)
    try:
        run(properties, settings or [], _print_ready)
    except KafkaError as error:
        print(f"penstock: {error.message}", file=sys.stderr)
        raise typer.Exit(1) from None


def _print_ready(endpoints: "Sequence[Endpoint]") -> None:
    """Prints the line that users and scripts wait for, with the advertised addresses."""
    addresses = [
        f"[{endpoint.host}]:{endpoint.port}"
        if ":" in endpoint.host
        else f"{endpoint.host}:{endpoint.port}"
        for endpoint in endpoints
    ]
    print(f"penstock is ready on {', '.join(addresses)}", flush=True)
