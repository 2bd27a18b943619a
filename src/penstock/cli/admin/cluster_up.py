"""`penstock cluster up`: several brokers on this machine, for development."""

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from penstock.cli.logging_setup import LogFormat, set_up_logging
from penstock.cli.options import option
from penstock.cli.serve import LogLevel, run_brokers


def up(
    brokers: int = option("--brokers", default=3, min=1, help="The number of brokers."),
    port: int = option(
        "--port",
        default=9092,
        min=0,
        max=65535,
        help="The port of the first broker; the others have the next ones. 0 for free ports.",
    ),
    directory: Path | None = option(
        "--directory",
        metavar="DIR",
        help="The data directory. Without it: a temporary one, which is removed at the end.",
    ),
    zookeeper: str | None = option(
        "--zookeeper",
        metavar="HOST:PORT[/CHROOT]",
        help="Keep the metadata in ZooKeeper instead of the data directory.",
    ),
    settings: list[str] | None = option(
        "--set", metavar="KEY=VALUE", help="A setting of all brokers. May be repeated."
    ),
    log_level: LogLevel = option(
        "--log-level", default=LogLevel.WARNING, help="The lowest level that is logged."
    ),
) -> None:
    """Run a cluster for development until Ctrl-C; prints its bootstrap servers.

    Topics have up to three replicas by default. It is `penstock serve
    --brokers` with a temporary directory.
    """
    set_up_logging(LogFormat.HUMAN, log_level.value)
    with ExitStack() as closing:
        if directory is None:
            directory = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="penstock-")))
        options = up_settings(brokers, port, directory, zookeeper, settings or [])
        ready = partial(_print_ready, directory)
        run_brokers(None, options, brokers, LogFormat.HUMAN, log_level, ready)


def up_settings(
    brokers: int, port: int, directory: Path, zookeeper: str | None, settings: Sequence[str]
) -> list[str]:
    """Returns the settings of the cluster; the last one of a name counts."""
    from penstock.broker.supervisor.launch import replication_settings

    internal = replication_settings(brokers)
    replicas = internal["offsets.topic.replication.factor"]
    defaults = [
        f"listeners=PLAINTEXT://127.0.0.1:{port}",
        f"log.dirs={directory}",
        f"default.replication.factor={replicas}",
        *(f"{name}={value}" for name, value in internal.items()),
    ]
    if zookeeper is not None:
        defaults.append(f"zookeeper.connect={zookeeper}")
    return [*defaults, *settings]


def _print_ready(directory: Path, addresses: Sequence[str]) -> None:
    print(f"bootstrap servers: {','.join(addresses)}")
    print(f"data: {directory}; Ctrl-C stops all brokers", flush=True)
