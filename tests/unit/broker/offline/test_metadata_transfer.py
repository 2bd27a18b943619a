"""Metadata is restored to an empty store of the same cluster, and to no other."""

from pathlib import Path

import pytest

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.properties import load_broker_config
from penstock.broker.offline.metadata_transfer import read_metadata, write_metadata
from penstock.cluster.embedded import EmbeddedStore
from penstock.controller.metadata import (
    ClusterIdRecord,
    ConfigRecord,
    ControllerRecord,
    ProducerIdsRecord,
    Put,
)
from penstock.core.errors import KafkaStorageError
from penstock.storage.checkpoint.checkpoint_files import MetaProperties, store_meta_properties
from penstock.storage.disk import OsDisk

CLUSTER = ClusterIdRecord("c")
SETTING = ConfigRecord((("topics", "t"),), {"segment.ms": "9"})


def config_of(directory: Path) -> BrokerConfig:
    return load_broker_config(None, [f"log.dirs={directory}"])


def store_in(directory: Path) -> EmbeddedStore:
    directory.mkdir(exist_ok=True)
    return EmbeddedStore(directory / "penstock-metadata.db")


def test_a_store_is_read_while_a_broker_uses_it(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    store.commit([Put(CLUSTER), Put(ControllerRecord(1, 0)), Put(SETTING)])
    assert read_metadata(config_of(tmp_path)) == [CLUSTER, SETTING]
    store.close()


def test_an_empty_store_is_filled(tmp_path: Path) -> None:
    config = config_of(tmp_path / "new")
    write_metadata(config, [CLUSTER, SETTING], is_current=False)
    assert read_metadata(config) == [CLUSTER, SETTING, ProducerIdsRecord(-1, 0, 999_999_999)]


def test_a_store_with_content_is_refused(tmp_path: Path) -> None:
    store_in(tmp_path).close()
    config = config_of(tmp_path)
    with pytest.raises(KafkaStorageError, match="the metadata store has no cluster"):
        read_metadata(config)
    store = store_in(tmp_path)
    store.commit([Put(SETTING)])
    store.close()
    with pytest.raises(KafkaStorageError, match="of a cluster without an id already"):
        write_metadata(config, [CLUSTER], is_current=True)
    store = store_in(tmp_path)
    store.commit([Put(ClusterIdRecord("d"))])
    store.close()
    with pytest.raises(KafkaStorageError, match="of cluster d already; nothing was changed"):
        write_metadata(config, [CLUSTER], is_current=True)


def test_the_metadata_of_another_cluster_is_refused(tmp_path: Path) -> None:
    store_meta_properties(OsDisk(), str(tmp_path), MetaProperties(1, "d", 1, None))
    config = config_of(tmp_path)
    with pytest.raises(KafkaStorageError, match="belongs to cluster d, the metadata to c"):
        write_metadata(config, [CLUSTER], is_current=True)
    with pytest.raises(KafkaStorageError, match="has no metadata store of Penstock"):
        read_metadata(config)
