"""What a broker will make of log directories that its metadata store does not know.

The survey decides as the broker does at its first start (`broker/metadata/log_recovery.py`), and
changes nothing.
"""

import uuid
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.component_config import store_config
from penstock.broker.config.internal_topic_configs import internal_topic_configs
from penstock.broker.config.topic_config import validate_topic_configs
from penstock.broker.metadata.log_recovery import (
    MetadataRecovery,
    check_kafka_metadata,
    confirmed_topics,
    read_kraft_image,
)
from penstock.broker.offline.log_dirs import NodeContent
from penstock.broker.offline.stopped_store import existing_store
from penstock.cluster.embedded_copy import load_copy
from penstock.cluster.factory import MOVED_STORE_FILE, STORE_FILE, open_store
from penstock.controller.entity_configs import update_configs
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import Change, Put
from penstock.controller.topic_recovery import RecoveredLog
from penstock.core.errors import ErrorCode, KafkaError, KafkaStorageError
from penstock.core.ids import TopicPartition
from penstock.storage.checkpoint.checkpoint_files import load_partition_metadata
from penstock.storage.disk import OsDisk


class SettingsSource(Enum):
    """Where the settings of a topic come from."""

    STORE = "metadata store"
    """The store knows the topic: nothing is adopted."""
    KAFKA = "Kafka's metadata log"
    INTERNAL = "defaults of an internal topic"
    CONFIRMED = "confirmed"
    UNKNOWN = "unknown"
    """Nothing is deleted or compacted in the topic until its `cleanup.policy` is set."""
    STRAY = "none: not in the metadata store"
    """The broker renames the directories of its partitions."""


class SurveyedTopic(NamedTuple):
    topic: str
    partitions: int
    """In the cluster, including those without a log here."""
    logs: int
    """The logs that these directories have of its partitions."""
    size: int
    """The bytes of their records."""
    source: SettingsSource
    settings: Mapping[str, str]


class Survey(NamedTuple):
    """The topics of a node, and what else its metadata has."""

    topics: list[SurveyedTopic]
    is_known: bool
    """Whether the metadata store has topics, so that nothing is adopted."""
    acls: int
    users_and_quotas: int
    first_node: int
    """The id of the first broker."""
    other_nodes: dict[int, int]
    """Further brokers of the same supervisor that have logs, with their number of logs."""


TopicSettings = Mapping[str, Mapping[str, str]]


def survey(config: BrokerConfig, nodes: Sequence[NodeContent], settings: TopicSettings) -> Survey:
    """Returns what the broker will find and assume, if these settings are confirmed.

    Raises a KafkaError if the directories cannot be adopted, or if the settings are not valid or
    those of topics whose settings are known.
    """
    image = _stored_image(config)
    logs: dict[TopicPartition, dict[int, RecoveredLog]] = {}
    for node in nodes:
        for key, log_dir in node.partitions.items():
            log = RecoveredLog(_topic_id(log_dir.directory_of(key)))
            logs.setdefault(key, {})[node.node_id] = log
    check_kafka_metadata(config, is_new_store=not image.cluster_id)
    is_known = bool(image.topics)
    recovery: MetadataRecovery | None = None
    if not is_known:
        image.apply(_confirmation(config, image, settings))
        recovery = MetadataRecovery(
            logs,
            read_kraft_image(config),
            internal_topic_configs(config),
            -1,
            confirmed_topics(image),
        )
        image.apply(recovery.changes(image, nodes[0].node_id))
    sizes = _sizes(nodes)
    topics = [
        SurveyedTopic(
            topic,
            len(image.topics[topic].assignments) if topic in image.topics else 0,
            sum(len(replicas) for key, replicas in logs.items() if key.topic == topic),
            sizes.get(topic, 0),
            _source(topic, image, recovery),
            image.config("topics", topic),
        )
        for topic in sorted(image.topics.keys() | {key.topic for key in logs})
    ]
    _check_confirmable(settings, topics)
    return Survey(
        topics,
        is_known,
        sum(len(acl.entries) for acl in image.acls.values()),
        sum(key.entity[0][0] in ("users", "clients", "ips") for key in image.configs),
        nodes[0].node_id,
        {other.node_id: len(other.partitions) for other in nodes[1:] if other.partitions},
    )


def confirm(config: BrokerConfig, settings: TopicSettings) -> None:
    """Stores settings of topics that the broker will recover.

    A new store stays without a cluster id, so that the broker still takes it for a new one.
    """
    store = open_store(store_config(config))
    try:
        image = ClusterImage()
        image.apply(map(Put, store.load().records))
        if image.topics:
            raise _known_error()
        store.commit(_confirmation(config, image, settings))
    finally:
        store.close()


def _stored_image(config: BrokerConfig) -> ClusterImage:
    """Returns what the store has; nothing if there is none yet."""
    image = ClusterImage()
    selected = store_config(config)
    path = selected.directory / STORE_FILE
    if selected.zookeeper is None and path.is_file():
        image.apply(map(Put, load_copy(path)))
    elif selected.zookeeper is not None or (selected.directory / MOVED_STORE_FILE).exists():
        with existing_store(config) as store:
            image.apply(map(Put, store.load().records))
    return image


def _confirmation(
    config: BrokerConfig, image: ClusterImage, settings: TopicSettings
) -> list[Change]:
    for values in settings.values():
        validate_topic_configs(values, config)
    return update_configs(
        image, (((("topics", topic),), dict(values)) for topic, values in settings.items())
    )


def _source(topic: str, image: ClusterImage, recovery: MetadataRecovery | None) -> SettingsSource:
    if recovery is None:
        return SettingsSource.STORE if topic in image.topics else SettingsSource.STRAY
    if topic not in recovery.unknown_topics:
        return SettingsSource.KAFKA
    if topic in recovery.internal_configs:
        return SettingsSource.INTERNAL
    if topic in recovery.confirmed_topics:
        return SettingsSource.CONFIRMED
    return SettingsSource.UNKNOWN


def _check_confirmable(settings: TopicSettings, topics: Sequence[SurveyedTopic]) -> None:
    sources = {topic.topic: topic.source for topic in topics}
    for topic in settings:
        source = sources.get(topic)
        if source is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"the log directories have no topic {topic}",
                remedy="check the name",
            )
        if source is SettingsSource.STORE:
            raise _known_error()
        if source not in (SettingsSource.UNKNOWN, SettingsSource.CONFIRMED):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"the settings of topic {topic} are known: {source.value}",
                remedy="change them with penstock config alter when the broker has started",
            )


def _known_error() -> KafkaStorageError:
    return KafkaStorageError(
        "the metadata store has topics already, so that nothing is adopted",
        remedy="change settings with penstock config alter when the broker has started",
    )


def _topic_id(directory: Path) -> uuid.UUID | None:
    metadata = load_partition_metadata(OsDisk(), str(directory))
    return None if metadata is None else metadata.topic_id


def _sizes(nodes: Sequence[NodeContent]) -> dict[str, int]:
    """Returns the bytes of records of each topic, in all of its logs."""
    sizes: dict[str, int] = {}
    for node in nodes:
        for key, log_dir in node.partitions.items():
            files = log_dir.directory_of(key).glob("*.log")
            sizes[key.topic] = sizes.get(key.topic, 0) + sum(file.stat().st_size for file in files)
    return sizes
