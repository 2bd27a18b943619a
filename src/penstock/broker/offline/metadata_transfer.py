"""Metadata of a cluster read from its store, written to a new one, and moved to ZooKeeper."""

from collections.abc import Sequence
from pathlib import Path

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.component_config import store_config
from penstock.broker.offline.file_copies import sync_directory
from penstock.broker.offline.log_dirs import locked_nodes
from penstock.broker.offline.stopped_store import existing_store, no_cluster_error
from penstock.cluster.embedded_copy import load_copy
from penstock.cluster.factory import MOVED_STORE_FILE, STORE_FILE, open_store
from penstock.controller.metadata import ClusterIdRecord, ControllerEpochRecord, Record
from penstock.controller.metadata_restore import lasting_records, restore_metadata
from penstock.core.errors import KafkaStorageError
from penstock.storage.checkpoint.checkpoint_files import load_meta_properties
from penstock.storage.disk import OsDisk


def read_metadata(config: BrokerConfig) -> list[Record]:
    """Returns all metadata of a cluster, whether its brokers are running or not.

    That in ZooKeeper is read from there, that of the embedded store from its file. Raises a
    KafkaError if there is none.
    """
    settings = store_config(config)
    path = settings.directory / STORE_FILE
    if settings.zookeeper is None and path.is_file():
        records = load_copy(path)
    else:
        with existing_store(config) as store:
            records = store.load().records
    return _with_cluster_id(lasting_records(records))


def write_metadata(config: BrokerConfig, records: Sequence[Record], *, is_current: bool) -> None:
    """Fills the store that these settings select, which must be empty.

    With `is_current`, the records were read from the cluster's own store, which nobody has changed
    since. Raises KafkaStorageError if the store has content, or if a log directory belongs to
    another cluster.
    """
    _check_cluster(config, records)
    store = open_store(store_config(config))
    try:
        _check_empty(store.load().records)
        store.commit(restore_metadata(records, is_current=is_current))
    finally:
        store.close()


def move_metadata(source: BrokerConfig, target: BrokerConfig) -> list[Record]:
    """Moves the metadata of a stopped node from its embedded store to ZooKeeper; returns it.

    The file of the embedded store gets another name, so that the node does not start without
    ZooKeeper. Raises a KafkaError if a broker uses the store, or as `write_metadata` does.
    """
    with locked_nodes(source), existing_store(source) as store:
        records = _with_cluster_id(lasting_records(store.load().records))
        write_metadata(target, records, is_current=True)
    directory = store_config(source).directory
    (directory / STORE_FILE).rename(directory / MOVED_STORE_FILE)
    sync_directory(directory)
    return records


def _with_cluster_id(records: list[Record]) -> list[Record]:
    """Returns the records. Raises KafkaStorageError if they are those of an empty store."""
    if not any(isinstance(record, ClusterIdRecord) for record in records):
        raise no_cluster_error()
    return records


def _check_cluster(config: BrokerConfig, records: Sequence[Record]) -> None:
    [cluster_id] = [record.cluster_id for record in records if isinstance(record, ClusterIdRecord)]
    for path in config.list("log.dirs"):
        owner = load_meta_properties(OsDisk(), path) if Path(path).is_dir() else None
        if owner is not None and owner.cluster_id not in (None, cluster_id):
            raise KafkaStorageError(
                f"{path} belongs to cluster {owner.cluster_id}, the metadata to {cluster_id}",
                remedy="use the metadata of the same cluster, or other log.dirs",
            )


def _check_empty(records: Sequence[Record]) -> None:
    cluster_ids = [record.cluster_id for record in records if isinstance(record, ClusterIdRecord)]
    content = [record for record in records if not isinstance(record, ControllerEpochRecord)]
    if content:
        owner = f"of cluster {cluster_ids[0]}" if cluster_ids else "of a cluster without an id"
        raise KafkaStorageError(
            f"the metadata store has metadata {owner} already; nothing was changed",
            remedy="name an empty store: another chroot of ZooKeeper, or another directory",
        )
