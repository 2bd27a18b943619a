"""Environments on each kind of database, for tests that share servers and a broker."""

from pathlib import Path
from typing import Literal

import pytest

from penstock.testing import Broker
from tests.support.spark.databases import DatabaseServer, sqlite_url
from tests.support.spark.pipeline_environment import Environment, Kind

DATABASES = ("sqlite", "postgresql", "mariadb")
SERVERS = ("postgresql", "mariadb")


class KilledError(Exception):
    """Simulates a kill: the query ends here, without its next actions."""


def die() -> None:
    raise KilledError("at its point")


def address_of(request: pytest.FixtureRequest, database: str, directory: Path) -> str:
    """Returns the address of a new, empty database of this kind."""
    if database == "sqlite":
        url = sqlite_url(directory)
    else:
        server: DatabaseServer = request.getfixturevalue(database)
        url = server.fresh()
    return url.render_as_string(hide_password=False)


def new_environment(
    request: pytest.FixtureRequest,
    broker: Broker,
    directory: Path,
    kind: Kind,
    database: str,
    *,
    letters: Literal["table", "topic"] = "table",
    batch: int = 12,
) -> Environment:
    """Returns an environment with new, empty topics."""
    work_dir = directory / f"{kind}-{database}"
    work_dir.mkdir(parents=True)
    address = "" if kind == "topic" else address_of(request, database, work_dir)
    environment = Environment(
        kind=kind,
        servers=broker.bootstrap_servers,
        directory=str(work_dir),
        database=address,
        letters="topic" if kind == "topic" else letters,
        batch=batch,
    )
    return environment.create(broker)
