"""Fixtures: a broker for each module, and databases."""

from collections.abc import Iterator

import pytest

from penstock.testing import Broker
from tests.support.spark.databases import database_url, mariadb, postgresql

__all__ = ["database_url", "mariadb", "postgresql"]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker
