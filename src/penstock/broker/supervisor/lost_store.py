"""The logs of all brokers of a supervisor, registered in a store that has lost its topics.

The supervisor does it before it starts the first broker, because only together do the logs say
which replica of a partition has everything that was committed.
"""

import asyncio
import random
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.component_config import maintenance_intervals, producer_limits
from penstock.broker.config.internal_topic_configs import internal_topic_configs
from penstock.broker.config.topic_config import topic_config
from penstock.broker.metadata.log_recovery import (
    MetadataRecovery,
    check_kafka_metadata,
    confirmed_topics,
    find_last_producer_id,
    kafka_metadata_log,
    recovered_log,
)
from penstock.broker.offline.log_dirs import has_partitions, node_directories
from penstock.broker.workers import Workers
from penstock.cluster.store import MetadataStore
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import Change, ClusterIdRecord, Put
from penstock.controller.topic_recovery import RecoveredLog
from penstock.core.errors import KafkaStorageError
from penstock.core.ids import TopicPartition
from penstock.core.system_clock import SystemClock
from penstock.storage.checkpoint.checkpoint_files import load_meta_properties, uuid_text
from penstock.storage.disk import OsDisk
from penstock.storage.log.log import Log
from penstock.storage.manager.log_manager import LogManager


def recover_lost_store(config: BrokerConfig, store: MetadataStore) -> None:
    """Registers the topics in the logs of all brokers if the store has none.

    `config` has the settings of the first broker. If its directories have the metadata log of a
    Kafka node in KRaft mode, the broker takes that over instead. Raises KafkaStorageError if a log
    directory, or one of its logs, cannot be read: another replica may lack what was committed.
    """
    image = ClusterImage()
    image.apply(map(Put, store.load().records))
    nodes = dict(node_directories(config))
    if image.topics or not any(has_partitions(path) for paths in nodes.values() for path in paths):
        return
    if kafka_metadata_log(config) is not None:
        check_kafka_metadata(config, is_new_store=not image.cluster_id)
        return
    changes: list[Change] = []
    if not image.cluster_id:
        cluster_id = _cluster_id(nodes.values()) or uuid_text(uuid.uuid4())
        changes.append(Put(ClusterIdRecord(cluster_id)))
        image.apply(changes)
    logs: dict[TopicPartition, dict[int, RecoveredLog]] = {}
    last_producer_id = -1
    for node_id, paths in nodes.items():
        with _loaded_logs(config, image, node_id, paths) as node_logs:
            for log in node_logs:
                logs.setdefault(log.partition, {})[node_id] = recovered_log(log)
            last_producer_id = max(last_producer_id, asyncio.run(_last_producer_id(node_logs)))
    recovery = MetadataRecovery(
        logs, None, internal_topic_configs(config), last_producer_id, confirmed_topics(image)
    )
    store.commit([*changes, *recovery.changes(image, config.int("node.id"))])
    recovery.log_result()


@contextmanager
def _loaded_logs(
    config: BrokerConfig, image: ClusterImage, node_id: int, paths: Sequence[Path]
) -> Iterator[list[Log]]:
    """Loads the logs of a broker as the broker does, and closes them cleanly."""
    manager = LogManager(
        OsDisk(),
        [str(path) for path in paths],
        SystemClock(),
        limits=producer_limits(config),
        intervals=maintenance_intervals(config),
        roll_jitter=lambda limit_ms: random.randrange(limit_ms + 1),
    )
    with ExitStack() as closing:
        manager.startup(
            lambda topic: topic_config(config, image.config("topics", topic)).log,
            node_id=node_id,
            cluster_id=image.cluster_id,
        )
        closing.callback(manager.shutdown)
        for log_dir in manager.dirs:
            for error in (log_dir.error, *log_dir.load_errors.values()):
                if error is not None:
                    raise KafkaStorageError(
                        f"the metadata store is lost, and not all logs of broker {node_id} can be "
                        f"read: {error.cause}",
                        remedy="repair the disk, restore the store with penstock cluster restore, "
                        "or move what cannot be read out of log.dirs to continue without it",
                    )
        yield list(manager)


async def _last_producer_id(logs: Sequence[Log]) -> int:
    workers = Workers()
    try:
        return await find_last_producer_id(logs, workers)
    finally:
        workers.close()


def _cluster_id(nodes: Iterable[Sequence[Path]]) -> str | None:
    disk = OsDisk()
    for paths in nodes:
        for path in paths:
            properties = load_meta_properties(disk, str(path))
            if properties is not None and properties.cluster_id is not None:
                return properties.cluster_id
    return None
