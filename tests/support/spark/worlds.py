"""Worlds on each kind of database, for tests that share servers and a broker."""

from pathlib import Path
from typing import Literal

import pytest

from penstock.testing import Broker
from tests.support.spark.databases import DatabaseServer, sqlite_url
from tests.support.spark.pipeline_world import Kind, World

DATABASES = ("sqlite", "postgresql", "mariadb")
SERVERS = ("postgresql", "mariadb")


class KilledError(Exception):
    """In place of a kill: the query ends here, and what it was about to do is not done."""


def die() -> None:
    raise KilledError("at its point")


def address_of(request: pytest.FixtureRequest, database: str, folder: Path) -> str:
    """A new, empty database of this kind."""
    if database == "sqlite":
        url = sqlite_url(folder)
    else:
        server: DatabaseServer = request.getfixturevalue(database)
        url = server.fresh()
    return url.render_as_string(hide_password=False)


def new_world(
    request: pytest.FixtureRequest,
    broker: Broker,
    folder: Path,
    kind: Kind,
    database: str,
    *,
    letters: Literal["table", "topic"] = "table",
    batch: int = 12,
) -> World:
    """Its topics are there, and empty."""
    place = folder / f"{kind}-{database}"
    place.mkdir(parents=True)
    address = "" if kind == "topic" else address_of(request, database, place)
    world = World(
        kind=kind,
        servers=broker.bootstrap_servers,
        folder=str(place),
        database=address,
        letters="topic" if kind == "topic" else letters,
        batch=batch,
    )
    return world.create(broker)
