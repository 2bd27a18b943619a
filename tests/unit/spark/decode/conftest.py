"""A broker for a module."""

from collections.abc import Iterator

import pytest

from penstock.testing import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker
