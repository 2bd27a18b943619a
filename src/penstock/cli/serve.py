"""`penstock serve`: runs a broker."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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

    Settings have Kafka's names. One line on standard output shows when and
    where clients can connect.
    """
    set_up_logging(log_format, log_level.value)
    if brokers > 1:
        run_brokers(properties, settings or [], brokers, log_format, log_level, _print_ready)
        return
    # Imported here because the modules of the broker would slow down other commands.
    from penstock.broker.main import run

    with exit_on_error():
        run(
            properties,
            settings or [],
            lambda endpoints: _print_ready([endpoint.address for endpoint in endpoints]),
        )


def run_brokers(
    properties: Path | None,
    settings: list[str],
    count: int,
    log_format: LogFormat,
    log_level: LogLevel,
    ready: Callable[[Sequence[str]], None],
) -> None:
    """Runs several broker processes until SIGTERM or SIGINT; exits with 1 if one cannot start.

    `ready` is called once, with the addresses of all.
    """
    from penstock.broker.supervisor.supervisor import run

    module = "penstock.cli.child_main"
    command = [sys.executable, "-m", module, log_format.value, log_level.value]
    with exit_on_error():
        run(properties, settings, count, command, ready)


@contextmanager
def exit_on_error() -> Iterator[None]:
    """Prints a KafkaError as one line and exits with 1."""
    from penstock.core.errors import KafkaError

    try:
        yield
    except KafkaError as error:
        print(f"penstock: {error.message}", file=sys.stderr)
        raise typer.Exit(1) from None


def _print_ready(addresses: Sequence[str]) -> None:
    """Prints the line that users and scripts wait for, with the advertised addresses."""
    print(f"penstock is ready on {', '.join(addresses)}", flush=True)
