"""One Spark session for a test process, and a broker for a module."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from penstock.testing import Broker
from tests.support.spark.databases import mariadb, postgresql
from tests.support.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["mariadb", "postgresql"]


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    with spark_session() as session:
        yield session


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker
