"""Every test of this directory runs once per store."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from penstock.cluster.store import MetadataStore
from tests.contract.homes import HOMES, SHARED_HOMES, StoreHome


@pytest.fixture(params=sorted(HOMES))
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreHome]:
    with closing(HOMES[request.param](tmp_path / "store")) as home:
        yield home


@pytest.fixture
def open_store(home: StoreHome) -> Iterator[Callable[[], MetadataStore]]:
    """Opens a session that is closed when the test is over."""
    with ExitStack() as stack:
        yield _opener(home, stack)


@pytest.fixture
def store(open_store: Callable[[], MetadataStore]) -> MetadataStore:
    return open_store()


@pytest.fixture(params=sorted(SHARED_HOMES))
def open_session(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Callable[[], MetadataStore]]:
    """Opens one of several sessions that share the nodes of a store."""
    with closing(SHARED_HOMES[request.param](tmp_path / "store")) as home, ExitStack() as stack:
        yield _opener(home, stack)


def _opener(home: StoreHome, stack: ExitStack) -> Callable[[], MetadataStore]:
    def open_session() -> MetadataStore:
        store = home.open()
        stack.callback(store.close)
        return store

    return open_session
