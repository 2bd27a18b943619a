"""Every test of this folder runs once per store."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from penstock.cluster.store import MetadataStore
from tests.contract.homes import HOMES, StoreHome


@pytest.fixture(params=sorted(HOMES))
def home(request: pytest.FixtureRequest, tmp_path: Path) -> StoreHome:
    return HOMES[request.param](tmp_path / "store")


@pytest.fixture
def open_store(home: StoreHome) -> Iterator[Callable[[], MetadataStore]]:
    """Opens a session that is closed when the test is over."""
    with ExitStack() as stack:

        def opened() -> MetadataStore:
            store = home.open()
            stack.callback(store.close)
            return store

        yield opened


@pytest.fixture
def store(open_store: Callable[[], MetadataStore]) -> MetadataStore:
    return open_store()
