"""`penstock serve`: runs a broker."""

import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

import typer

from penstock.cli.logging_setup import LogFormat, set_up_logging
from penstock.cli.options import argument, option


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
    brokers: int = option(
        "--brokers",
        default=1,
        min=1,
        metavar="N",
        help="The number of brokers, each in a process of its own. They have the ids, ports and "
        "directories that follow those of the first one.",
    ),
    log_format: LogFormat = option(
        "--log-format", default=LogFormat.HUMAN, help="The format of log lines on standard error."
    ),
    log_level: LogLevel = option(
        "--log-level", default=LogLevel.INFO, help="The lowest level that is logged."
    ),
) -> None:
    """Run a broker, or several, until SIGTERM or Ctrl-C.

    Settings have Kafka's names. One line on standard output tells when and
    where clients can connect.
    """
    # Imported here because the modules of the broker would slow down other commands.
    from penstock.core.errors import KafkaError

    set_up_logging(log_format, log_level.value)
    try:
        if brokers == 1:
            from penstock.broker.main import run

            run(
                properties,
                settings or [],
                lambda endpoints: _print_ready([endpoint.address for endpoint in endpoints]),
            )
        else:
            from penstock.broker.supervisor.supervisor import run as run_supervisor

            command = child_command(log_format, log_level)
            run_supervisor(properties, settings or [], brokers, command, _print_ready)
    except KafkaError as error:
        print(f"penstock: {error.message}", file=sys.stderr)
        raise typer.Exit(1) from None


def child_command(log_format: LogFormat, log_level: LogLevel) -> list[str]:
    """Returns the command of one broker process of a supervisor."""
    return [sys.executable, "-m", "penstock.cli.child_main", log_format.value, log_level.value]


def _print_ready(addresses: Sequence[str]) -> None:
    """Prints the line that users and scripts wait for, with the advertised addresses."""
    print(f"penstock is ready on {', '.join(addresses)}", flush=True)
