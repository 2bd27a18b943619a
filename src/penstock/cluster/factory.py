"""Opens the metadata store that the configuration selects.

With `zookeeper.connect` it is ZooKeeper. Otherwise a broker process of a supervisor uses the store
that the supervisor serves; a single broker, and the supervisor itself, open the embedded store.
"""

from pathlib import Path
from typing import Final, NamedTuple

from penstock.cluster.embedded import EmbeddedStore
from penstock.cluster.store import MetadataStore
from penstock.cluster.supervised.client import SupervisedStore
from penstock.cluster.zookeeper.config import ZooKeeperConfig
from penstock.core.errors import KafkaStorageError

STORE_FILE: Final = "penstock-metadata.db"
"""The embedded store's file in its directory."""
MOVED_STORE_FILE: Final = "penstock-metadata.db.moved"
"""The name of that file after its content has been moved to ZooKeeper."""
SOCKET_FILE: Final = "penstock-metadata.sock"
"""The socket beside it at which a supervisor serves the store to its brokers."""


class SupervisorConfig(NamedTuple):
    """The supervisor that serves the store of this broker."""

    socket: Path
    broker_id: int
    session_timeout_ms: int


class StoreConfig(NamedTuple):
    """The settings that select and locate the store."""

    directory: Path
    """`metadata.log.dir`, or the first directory of `log.dirs`; created if it does not exist."""
    supervisor: SupervisorConfig | None = None
    """Set for a broker process of `penstock serve --brokers`."""
    zookeeper: ZooKeeperConfig | None = None
    """`zookeeper.connect` and the settings beside it."""

    @property
    def is_shared(self) -> bool:
        """Whether several brokers can use the store; if not, a broker is alone in its cluster."""
        return self.supervisor is not None or self.zookeeper is not None


def open_store(config: StoreConfig) -> MetadataStore:
    """Starts a session with the store. Raises a KafkaError if it cannot be opened."""
    if config.zookeeper is not None:
        return _open_zookeeper(config.zookeeper)
    if config.supervisor is not None:
        return SupervisedStore(
            config.supervisor.socket,
            name=f"broker {config.supervisor.broker_id}",
            session_timeout_ms=config.supervisor.session_timeout_ms,
        )
    path = config.directory / STORE_FILE
    if (config.directory / MOVED_STORE_FILE).exists() and not path.exists():
        # A new store would not have the settings of the topics in the log directories.
        raise KafkaStorageError(
            f"the metadata of {config.directory} has been moved to ZooKeeper",
            remedy=f"set zookeeper.connect; to return to its state before that, rename "
            f"{MOVED_STORE_FILE} to {STORE_FILE}",
        )
    try:
        config.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise KafkaStorageError(
            f"{config.directory} cannot be created: {error.strerror}",
            remedy="set log.dirs to a directory on a writable disk",
        ) from error
    return EmbeddedStore(path)


def _open_zookeeper(config: ZooKeeperConfig) -> MetadataStore:
    try:
        # Imported only here: kazoo is an optional dependency.
        from penstock.cluster.zookeeper.store import ZooKeeperStore
    except ModuleNotFoundError as error:
        raise KafkaStorageError(
            f"zookeeper.connect needs the package {error.name}",
            remedy="install it: pip install 'penstock[zookeeper]'",
        ) from error
    return ZooKeeperStore(config)
