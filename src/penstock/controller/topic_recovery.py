"""Recovery of topics whose logs are on disk but which a new metadata store does not contain.

The settings of these topics are not known, unless somebody has stored them beforehand with
`penstock cluster adopt`. Until somebody sets `cleanup.policy`, nothing is deleted or compacted in
them.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    Assignment,
    Change,
    ConfigRecord,
    ProducerIdsRecord,
    Put,
    TopicRecord,
)
from penstock.controller.partition_state_machine import new_partition
from penstock.controller.topic_names import CLUSTER_METADATA_TOPIC
from penstock.controller.topics import MAX_PARTITIONS_PER_REQUEST, generate_topic_id
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicId, TopicPartition

KEEP_EVERYTHING: Final[Mapping[str, str]] = {"cleanup.policy": ""}
"""The settings of a topic whose own settings are not known."""


class RecoveredLog(NamedTuple):
    """A partition that has a log on this broker."""

    topic_id: TopicId | None = None
    """The id in the log's directory, if there is one."""
    leader_epoch: int = 0
    """The latest epoch in the log."""


def recover_topics(
    image: ClusterImage,
    logs: Mapping[TopicPartition, RecoveredLog],
    broker_id: int,
    new_topic_id: Callable[[], TopicId],
    internal_configs: Mapping[str, Mapping[str, str]],
) -> list[Change]:
    """Returns the changes that register the topics of these logs, with this broker as only replica.

    Topics keep their ids. Those that the store contains and the log of a KRaft controller are
    ignored. Missing partitions below the highest are created. Partitions start in the epoch after
    the latest one in their logs, never in epoch 0, because they are not new. Topics in
    `internal_configs` get these settings; others have those that are stored, and keep everything
    unless `cleanup.policy` is among them.

    Raises INCONSISTENT_TOPIC_ID or INVALID_PARTITIONS for directories that cannot be right.
    """
    ids = set(image.topic_names)
    topics: dict[str, dict[int, TopicId | None]] = {}
    for key, log in sorted(logs.items(), key=lambda entry: entry[0]):
        topics.setdefault(key.topic, {})[key.partition] = log.topic_id
    changes: list[Change] = []
    for topic, partitions in topics.items():
        if topic in image.topics or topic == CLUSTER_METADATA_TOPIC:
            continue
        topic_id = _topic_id(topic, partitions.values()) or generate_topic_id(new_topic_id, ids)
        if topic_id in ids:
            raise KafkaError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"the directories of topic '{topic}' have the id {topic_id} of another topic",
                remedy="move the directories of one of them out of log.dirs",
            )
        ids.add(topic_id)
        count = max(partitions) + 1
        if count - len(partitions) > MAX_PARTITIONS_PER_REQUEST:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"the directory {topic}-{count - 1} would give topic '{topic}' {count} "
                f"partitions, but only {len(partitions)} have directories",
                remedy="move it out of log.dirs",
            )
        replicas = (broker_id,)
        assignments = dict.fromkeys(range(count), Assignment(replicas))
        changes.append(Put(TopicRecord(topic, topic_id, assignments)))
        configs = internal_configs.get(topic) or {
            **KEEP_EVERYTHING,
            **image.config("topics", topic),
        }
        changes.append(Put(ConfigRecord((("topics", topic),), configs)))
        for number in range(count):
            state = new_partition(topic, number, replicas, replicas, image.controller_epoch)
            if state.key in logs:
                state = replace(state, leader_epoch=max(logs[state.key].leader_epoch, 0) + 1)
            changes.append(Put(state))
    return changes


def recover_producer_ids(
    image: ClusterImage, broker_id: int, last_producer_id: int
) -> list[Change]:
    """Returns the change that keeps the ids up to the last one in the logs from being reused.

    A partition would take the first batches of another producer with the same id for duplicates.
    """
    if image.producer_ids is not None or last_producer_id < 0:
        return []
    return [Put(ProducerIdsRecord(broker_id, 0, last_producer_id))]


def _topic_id(topic: str, logged_ids: Iterable[TopicId | None]) -> TopicId | None:
    ids = {topic_id for topic_id in logged_ids if topic_id is not None}
    if len(ids) > 1:
        raise KafkaError(
            ErrorCode.INCONSISTENT_TOPIC_ID,
            f"the directories of topic '{topic}' have several topic ids, {sorted(map(str, ids))}",
            remedy="move those that do not belong to it out of log.dirs",
        )
    return ids.pop() if ids else None
