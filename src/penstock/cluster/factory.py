"""Opens the metadata store that the configuration selects.

The embedded store is the only kind so far. A store in ZooKeeper will be a second branch of
`open_store`, selected by `zookeeper.connect`.
"""

from pathlib import Path
from typing import Final, NamedTuple

from penstock.cluster.embedded import EmbeddedStore
from penstock.cluster.store import MetadataStore

STORE_FILE: Final = "penstock-metadata.db"
"""The embedded store's file in its directory."""


class StoreConfig(NamedTuple):
    """The settings that select and locate the store."""

    directory: Path
    """`metadata.log.dir`, or the first directory of `log.dirs`; created if it does not exist."""


def open_store(config: StoreConfig) -> MetadataStore:
    """Starts a session with the store. Raises `KafkaStorageError` if it cannot be opened."""
    config.directory.mkdir(parents=True, exist_ok=True)
    return EmbeddedStore(config.directory / STORE_FILE)
