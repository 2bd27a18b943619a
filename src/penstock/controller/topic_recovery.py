"""Recovery of topics whose logs are on disk but which a new metadata store does not contain."""

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
    topic_ids: Mapping[TopicPartition, TopicId | None],
    broker_id: int,
    new_topic_id: Callable[[], TopicId],
    leader_epochs: Mapping[TopicPartition, int] | None = None,
) -> list[Change]:
    """Returns the changes that register the topics of these logs, with this broker as only replica.

    `topic_ids` has the topic id in each log's directory, if there is one; the topic keeps it.
    Topics that the store contains and the log of a KRaft controller are ignored. Missing partitions
    below the highest are created. `leader_epochs` has the latest epoch in each log: the partition
    starts in the next one, never in epoch 0, because it is not new.

    Raises INCONSISTENT_TOPIC_ID or INVALID_PARTITIONS for directories that cannot be right.
    """
    epochs = {} if leader_epochs is None else leader_epochs
    ids = set(image.topic_names)
    topics: dict[str, dict[int, TopicId | None]] = {}
    for key, logged_id in sorted(topic_ids.items(), key=lambda entry: entry[0]):
        topics.setdefault(key.topic, {})[key.partition] = logged_id
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
        for number in range(count):
            state = new_partition(topic, number, replicas, replicas, image.controller_epoch)
            if state.key in topic_ids:
                epoch = max(epochs.get(state.key, 0), 0) + 1
                state = replace(state, leader_epoch=epoch)
            changes.append(Put(state))
    return changes


def _topic_id(topic: str, logged_ids: Iterable[TopicId | None]) -> TopicId | None:
    ids = {topic_id for topic_id in logged_ids if topic_id is not None}
    if len(ids) > 1:
        raise KafkaError(
            ErrorCode.INCONSISTENT_TOPIC_ID,
            f"the directories of topic '{topic}' have several topic ids, {sorted(map(str, ids))}",
            remedy="move those that do not belong to it out of log.dirs",
        )
    return ids.pop() if ids else None
