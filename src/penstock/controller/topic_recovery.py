"""Partitions that are on disk while the store knows nothing of them: they are taken over."""

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from penstock.controller.image import ClusterImage
from penstock.controller.metadata import Assignment, Change, Put, TopicRecord
from penstock.controller.partition_state_machine import new_partition
from penstock.controller.topic_names import CLUSTER_METADATA_TOPIC
from penstock.controller.topics import MAX_PARTITIONS_PER_REQUEST, generate_topic_id
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicId, TopicPartition


def recover_topics(
    image: ClusterImage,
    found: Mapping[TopicPartition, TopicId | None],
    broker_id: int,
    new_topic_id: Callable[[], TopicId],
    leader_epochs: Mapping[TopicPartition, int] | None = None,
) -> list[Change]:
    """Registers the topics of these folders, with this broker, which is coming up, as only replica.

    Topics the store knows are left alone, and so is the log of a KRaft controller. A topic keeps
    the id its folders name. Partitions that are missing below the highest are made anew.
    `leader_epochs` has the latest epoch in each log: the new leader's is above it, and never the
    first, for these partitions are not new.
    """
    epochs = {} if leader_epochs is None else leader_epochs
    ids = set(image.topic_names)
    topics: dict[str, dict[int, TopicId | None]] = {}
    for key, found_id in sorted(found.items(), key=lambda item: item[0]):
        topics.setdefault(key.topic, {})[key.partition] = found_id
    changes: list[Change] = []
    for topic, partitions in topics.items():
        if topic in image.topics or topic == CLUSTER_METADATA_TOPIC:
            continue
        topic_id = _topic_id(topic, partitions.values()) or generate_topic_id(new_topic_id, ids)
        if topic_id in ids:
            raise KafkaError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"The folders of topic '{topic}' have the id {topic_id} of another topic. Move the "
                "folders of one of them out of log.dirs.",
            )
        ids.add(topic_id)
        count = max(partitions) + 1
        if count - len(partitions) > MAX_PARTITIONS_PER_REQUEST:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"The folder {topic}-{count - 1} would give topic '{topic}' {count} partitions, of "
                f"which {len(partitions)} have folders. Move it out of log.dirs.",
            )
        replicas = (broker_id,)
        assignments = dict.fromkeys(range(count), Assignment(replicas))
        changes.append(Put(TopicRecord(topic, topic_id, assignments)))
        for number in range(count):
            state = new_partition(topic, number, replicas, replicas, image.controller_epoch)
            if state.key in found:
                epoch = max(epochs.get(state.key, 0), 0) + 1
                state = replace(state, leader_epoch=epoch)
            changes.append(Put(state))
    return changes


def _topic_id(topic: str, found: Iterable[TopicId | None]) -> TopicId | None:
    ids = {topic_id for topic_id in found if topic_id is not None}
    if len(ids) > 1:
        raise KafkaError(
            ErrorCode.INCONSISTENT_TOPIC_ID,
            f"The folders of topic '{topic}' name several topic ids: {sorted(map(str, ids))}. "
            "Move those that do not belong to it out of log.dirs.",
        )
    return ids.pop() if ids else None
