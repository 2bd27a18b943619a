"""The stores that must keep the contract, each as a place where sessions can be opened."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from penstock.cluster.embedded import EmbeddedStore
from penstock.cluster.store import MetadataStore
from penstock.cluster.supervised.client import SupervisedStore
from penstock.cluster.supervised.server import StoreServer
from penstock.cluster.zookeeper.config import ZooKeeperConfig
from penstock.cluster.zookeeper.store import ZooKeeperStore
from tests.support.cluster.memory_store import MemoryStoreServer
from tests.support.cluster.zookeeper_server import end_session, new_chroot, shared_server


class StoreHome(Protocol):
    """The nodes of one store, which outlive sessions."""

    def open(self) -> MetadataStore:
        """Starts a session. Only a shared home allows one while another session is open."""

    def crash(self, store: MetadataStore) -> None:
        """Ends the session of `store` as if its process was killed."""

    def close(self) -> None:
        """Ends what the home itself runs, after its sessions."""


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

    def close(self) -> None:
        pass


class MemoryHome:
    def __init__(self, directory: Path) -> None:
        self._server = MemoryStoreServer()

    def open(self) -> MetadataStore:
        return self._server.open()

    def crash(self, store: MetadataStore) -> None:
        """The server notices that the session has expired."""
        store.close()

    def close(self) -> None:
        pass


class SupervisedHome:
    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self._socket = directory / "store.sock"
        self._server = StoreServer(EmbeddedStore(directory / "metadata.db"), self._socket)

    def open(self) -> MetadataStore:
        return SupervisedStore(self._socket, name="a test", session_timeout_ms=18_000)

    def crash(self, store: MetadataStore) -> None:
        """Closes the connection without a goodbye, as the kernel does for a killed process."""
        assert isinstance(store, SupervisedStore)
        store._closing.set()
        if store._connection is not None:
            store._connection.end("killed")

    def close(self) -> None:
        self._server.close()


class ZooKeeperHome:
    """A chroot of the server that the tests of this process share."""

    def __init__(self, directory: Path) -> None:
        self._address = shared_server().address
        self._chroot = new_chroot()

    def open(self) -> ZooKeeperStore:
        return ZooKeeperStore(ZooKeeperConfig(self._address, self._chroot, 4000, 10_000))

    def crash(self, store: MetadataStore) -> None:
        """The server notices that the session has expired."""
        assert isinstance(store, ZooKeeperStore)
        session = store.session.client.session
        assert session is not None
        end_session(self._address, session)
        store.close()

    def close(self) -> None:
        """Leaves the server to other tests."""


HOMES: dict[str, Callable[[Path], StoreHome]] = {
    "embedded": EmbeddedHome,
    "memory": MemoryHome,
    "supervised": SupervisedHome,
    "zookeeper": ZooKeeperHome,
}
SHARED_HOMES: dict[str, Callable[[Path], StoreHome]] = {
    "memory": MemoryHome,
    "supervised": SupervisedHome,
    "zookeeper": ZooKeeperHome,
}
"""Those in which several sessions can be open at a time."""
