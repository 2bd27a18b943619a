"""The stores that must keep the contract, each as a place where sessions can be opened."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from penstock.cluster.embedded import EmbeddedStore
from penstock.cluster.store import MetadataStore
from tests.support.cluster.memory_store import MemoryStoreServer


class StoreHome(Protocol):
    """The nodes of one store, which outlive sessions."""

    def open(self) -> MetadataStore:
        """Starts a session. Only a shared home allows one while another session is open."""

    def crash(self, store: MetadataStore) -> None:
        """Ends the session of `store` as if its process was killed."""


class EmbeddedHome:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._crashes = 0
        self._current.mkdir(parents=True)

    @property
    def _current(self) -> Path:
        return self._directory / str(self._crashes)

    def open(self) -> MetadataStore:
        return EmbeddedStore(self._current / "metadata.db")

    def crash(self, store: MetadataStore) -> None:
        """Continues with a copy of the files as they are now, before the session cleans up."""
        before = self._current
        self._crashes += 1
        shutil.copytree(before, self._current)
        store.close()


class MemoryHome:
    def __init__(self, directory: Path) -> None:
        self._server = MemoryStoreServer()

    def open(self) -> MetadataStore:
        return self._server.open()

    def crash(self, store: MetadataStore) -> None:
        """The server notices that the session has expired."""
        store.close()


HOMES: dict[str, Callable[[Path], StoreHome]] = {"embedded": EmbeddedHome, "memory": MemoryHome}
SHARED_HOMES: dict[str, Callable[[Path], StoreHome]] = {"memory": MemoryHome}
"""Those in which several sessions can be open at a time."""
