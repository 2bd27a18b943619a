"""The stores that must keep the contract, each as a place where sessions can be opened."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from penstock.cluster.embedded import EmbeddedStore
from penstock.cluster.store import MetadataStore


class StoreHome(Protocol):
    """Where one store keeps its nodes, over sessions."""

    def open(self) -> MetadataStore:
        """Begin a session; the one before was closed or crashed."""

    def crash(self, store: MetadataStore) -> None:
        """End the session of `store` as if its process was killed."""


class EmbeddedHome:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._crashes = 0
        self._here.mkdir(parents=True)

    @property
    def _here(self) -> Path:
        return self._folder / str(self._crashes)

    def open(self) -> MetadataStore:
        return EmbeddedStore(self._here / "metadata.db")

    def crash(self, store: MetadataStore) -> None:
        """Go on with a copy of the files as they are now, before anything is tidied up."""
        before = self._here
        self._crashes += 1
        shutil.copytree(before, self._here)
        store.close()


HOMES: dict[str, Callable[[Path], StoreHome]] = {"embedded": EmbeddedHome}
