"""The metadata store of a cluster, opened by a command instead of a broker."""

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.component_config import store_config
from penstock.cluster.factory import MOVED_STORE_FILE, STORE_FILE, open_store
from penstock.cluster.store import MetadataStore
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import Put
from penstock.core.errors import KafkaStorageError


@contextmanager
def existing_store(config: BrokerConfig) -> Iterator[MetadataStore]:
    """Opens the store that these settings select.

    Raises a KafkaError if it does not exist, cannot be reached, or if the embedded store is in use
    by a broker. ZooKeeper may be in use.
    """
    settings = store_config(config)
    names = (STORE_FILE, MOVED_STORE_FILE)
    if settings.zookeeper is None and not any(
        (settings.directory / name).is_file() for name in names
    ):
        raise KafkaStorageError(
            f"{settings.directory} has no metadata store of Penstock",
            remedy="name the log.dirs, or the metadata.log.dir, of the broker",
        )
    store = open_store(settings)
    try:
        yield store
    finally:
        store.close()


def load_image(store: MetadataStore) -> ClusterImage:
    """Returns everything that is stored. Raises KafkaStorageError if the store is empty."""
    image = ClusterImage()
    image.apply(map(Put, store.load().records))
    if not image.cluster_id:
        raise no_cluster_error()
    return image


def no_cluster_error() -> KafkaStorageError:
    return KafkaStorageError(
        "the metadata store has no cluster",
        remedy="start the broker once, or name another store",
    )


def require_stopped(image: ClusterImage) -> None:
    """Raises KafkaStorageError if a broker of the cluster is running."""
    if image.brokers:
        names = ", ".join(map(str, sorted(image.brokers)))
        raise KafkaStorageError(
            f"brokers {names} of the cluster are running", remedy="stop all of them first"
        )
