"""Recovery of the metadata of logs that a new store does not know: it was lost, or was Kafka's.

A log directory of a Kafka node in KRaft mode has the metadata of its cluster, which is taken over.
Other topics are registered with what their logs say.
"""

import logging
import uuid
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.internal_topic_configs import internal_topic_configs
from penstock.broker.coordinator.log import read_log
from penstock.broker.kraft.metadata_image import KraftImage
from penstock.broker.kraft.metadata_log import find_metadata_log, read_metadata
from penstock.broker.kraft.takeover import check_takeover, mark_takeover
from penstock.broker.workers import Workers
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import Change
from penstock.controller.topic_recovery import (
    RecoveredLog,
    RecoveredReplicas,
    recover_producer_ids,
    recover_topics,
)
from penstock.coordinator.txn.records import TransactionRecord, decode_record
from penstock.core.ids import TopicPartition
from penstock.core.internal_topics import TRANSACTION_STATE_TOPIC
from penstock.core.name_lists import shorten_names
from penstock.records.batch import BatchHeader
from penstock.records.read import read_records
from penstock.storage.log.log import Log

logger = logging.getLogger(__name__)


class MetadataRecovery(NamedTuple):
    """What is known about the logs of this broker, or of several brokers that are not started."""

    logs: Mapping[TopicPartition, RecoveredReplicas]
    kraft: KraftImage | None
    """The metadata of the Kafka node in KRaft mode that had the log directories."""
    internal_configs: Mapping[str, Mapping[str, str]]
    last_producer_id: int
    confirmed_topics: Collection[str]
    """Topics whose `cleanup.policy` was stored before the first start."""

    @property
    def is_empty(self) -> bool:
        return not self.logs and self.kraft is None

    def changes(self, image: ClusterImage, broker_id: int) -> list[Change]:
        """Returns the changes that add all of it to the store.

        If another broker has registered topics in the meantime, it has taken over Kafka's.
        """
        changes: list[Change] = []
        if self.kraft is not None and not image.topics:
            changes = self.kraft.changes(image, broker_id, self.logs)
        topics = self.unknown_topics
        logs = {key: log for key, log in self.logs.items() if key.topic in topics}
        return [
            *changes,
            *recover_topics(image, logs, uuid.uuid4, self.internal_configs),
            *recover_producer_ids(image, broker_id, self.last_producer_id),
        ]

    def log_result(self) -> None:
        if self.kraft is not None:
            logger.warning(
                "log.dirs belonged to a Kafka node in KRaft mode: the metadata of its cluster was "
                "taken over, with %d topics",
                len(self.kraft.topics),
            )
        topics = self.unknown_topics - self.internal_configs.keys() - set(self.confirmed_topics)
        if topics:
            logger.warning(
                "the metadata store is new, but log.dirs has partitions of %s: these topics were "
                "registered. Their settings are not known: nothing is deleted or compacted in a "
                "topic until its cleanup.policy is set",
                shorten_names(sorted(topics)),
            )

    @property
    def unknown_topics(self) -> set[str]:
        """The topics that have logs, but no metadata."""
        known = frozenset() if self.kraft is None else self.kraft.topics
        return {key.topic for key in self.logs} - known


async def recover_metadata(
    logs: Sequence[Log], config: BrokerConfig, image: ClusterImage, workers: Workers
) -> MetadataRecovery:
    """Reads what the log directories say. Raises KafkaStorageError if Kafka's part is damaged."""
    kraft = await workers.run(workers.store, lambda: read_kraft_image(config))
    last_producer_id = await find_last_producer_id(logs, workers)
    broker_id = config.int("node.id")
    return MetadataRecovery(
        {log.partition: {broker_id: recovered_log(log)} for log in logs},
        kraft,
        internal_topic_configs(config),
        max(last_producer_id, -1 if kraft is None else kraft.last_producer_id),
        confirmed_topics(image),
    )


def recovered_log(log: Log) -> RecoveredLog:
    return RecoveredLog(log.topic_id, log.epochs.latest_epoch or 0, log.log_end_offset)


def confirmed_topics(image: ClusterImage) -> frozenset[str]:
    """Returns the topics of a new store whose `cleanup.policy` is stored."""
    return frozenset(
        name
        for record in image.configs.values()
        for kind, name in record.entity
        if kind == "topics" and "cleanup.policy" in record.values
    )


def check_kafka_metadata(config: BrokerConfig, *, is_new_store: bool) -> None:
    """Raises KafkaStorageError if Kafka's metadata and the store do not belong together.

    If the store is new, what will be taken over is read: if it is damaged, the store must not
    become one that has a cluster and no topics.
    """
    directory = kafka_metadata_log(config)
    if directory is not None:
        check_takeover(directory, is_new_store=is_new_store)
        if is_new_store:
            read_kraft_image(config)


def mark_kafka_metadata(config: BrokerConfig) -> None:
    """Notes that the store has what Kafka's metadata log has, if there is one."""
    directory = kafka_metadata_log(config)
    if directory is not None:
        mark_takeover(directory)


def kafka_metadata_log(config: BrokerConfig) -> Path | None:
    """Returns the directory of Kafka's metadata log in the log directories, if there is one."""
    metadata_dir = config.text("metadata.log.dir")
    return find_metadata_log([*([metadata_dir] if metadata_dir else ()), *config.list("log.dirs")])


def read_kraft_image(config: BrokerConfig) -> KraftImage | None:
    """Returns the metadata of the Kafka node in KRaft mode that had the log directories, if any.

    Raises KafkaStorageError if it is damaged.
    """
    directory = kafka_metadata_log(config)
    if directory is None:
        return None
    image = KraftImage()
    for record in read_metadata(directory):
        image.apply(record)
    return image


async def find_last_producer_id(logs: Sequence[Log], workers: Workers) -> int:
    """Returns the highest producer id that a partition or a transactional id has; -1 for none."""
    last = -1
    for log in logs:
        last = max(last, *log.producers.active_producers(), -1)
        if log.partition.topic == TRANSACTION_STATE_TOPIC:
            async for producer_ids in read_log(log, workers, _producer_ids):
                # A damaged batch is not a number.
                last = max([last, *(number for number in producer_ids if isinstance(number, int))])
    return last


def _producer_ids(data: bytes, position: int, header: BatchHeader) -> list[int]:
    """Returns the producer ids of the transactional ids in a batch."""
    if header.is_control:
        return []
    result = []
    for record in read_records(data, position, header):
        decoded = decode_record(record.key, record.value)
        if isinstance(decoded, TransactionRecord) and decoded.value is not None:
            result += [decoded.value.producer_id, decoded.value.next_producer_id]
    return result
