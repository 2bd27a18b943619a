"""`penstock serve`: runs a broker."""

import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from penstock.cli.logging_setup import LogFormat, set_up_logging
from penstock.cli.options import argument, option

if TYPE_CHECKING:
    from penstock.controller.metadata import Endpoint


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def serve(
    properties: Path | None = argument(
        "[SERVER.PROPERTIES]",
        default=None,
        help="Kafka's settings file. Without one: 127.0.0.1:9092, ./penstock-data.",
    ),
    settings: list[str] | None = option(
        "--set",
        metavar="KEY=VALUE",
        help="A setting, overriding the file. May be repeated. Passwords are hidden from the "
        "process list.",
    ),
    log_format: LogFormat = option(
        "--log-format", default=LogFormat.HUMAN, help="The format of log lines on standard error."
    ),
    log_level: LogLevel = option(
        "--log-level", default=LogLevel.INFO, help="The lowest level that is logged."
    ),
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
