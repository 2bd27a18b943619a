"""Opens the metadata store that the configuration selects.

The embedded store is the only kind so far. A store in ZooKeeper will be a second branch of
`open_store`, selected by `zookeeper.connect`.
"""

from pathlib import Path
from typing import Final, NamedTuple

from penstock.cluster.embedded import EmbeddedStore
from penstock.cluster.store import MetadataStore
from penstock.core.errors import KafkaStorageError

STORE_FILE: Final = "penstock-metadata.db"
"""The embedded store's file in its directory."""


class StoreConfig(NamedTuple):
    """The settings that select and locate the store."""

    directory: Path
    """`metadata.log.dir`, or the first directory of `log.dirs`; created if it does not exist."""


def open_store(config: StoreConfig) -> MetadataStore:
    """Starts a session with the store. Raises `KafkaStorageError` if it cannot be opened."""
    try:
        config.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise KafkaStorageError(
            f"{config.directory} cannot be created: {error.strerror}",
            remedy="set log.dirs to a directory on a writable disk",
        ) from error
    return EmbeddedStore(config.directory / STORE_FILE)
