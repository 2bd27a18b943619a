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
    """The log of a replica."""

    topic_id: TopicId | None = None
    """The id in the log's directory, if there is one."""
    leader_epoch: int = 0
    """The latest epoch in the log."""
    end_offset: int = 0


RecoveredReplicas = Mapping[int, RecoveredLog]
"""The logs of a partition, by broker."""


def recover_topics(
    image: ClusterImage,
    logs: Mapping[TopicPartition, RecoveredReplicas],
    new_topic_id: Callable[[], TopicId],
    internal_configs: Mapping[str, Mapping[str, str]],
) -> list[Change]:
    """Returns the changes that register the topics of these logs, with their brokers as replicas.

    Topics keep their ids. Those that the store contains and the log of a KRaft controller are
    ignored. Missing partitions below the highest are created. Partitions start in the epoch after
    the latest one in their logs, never in epoch 0, because they are not new. Topics in
    `internal_configs` get these settings; others have those that are stored, and keep everything
    unless `cleanup.policy` is among them.

    The ISR of a partition is not known, so that only one replica is in sync at first: the one that
    has everything that was committed. The others follow it, and truncate what it does not have.

    Raises INCONSISTENT_TOPIC_ID or INVALID_PARTITIONS for directories that cannot be right.
    """
    ids = set(image.topic_names)
    topics: dict[str, dict[int, RecoveredReplicas]] = {}
    for key, replicas in sorted(logs.items(), key=lambda entry: entry[0]):
        topics.setdefault(key.topic, {})[key.partition] = replicas
    changes: list[Change] = []
    for topic, partitions in topics.items():
        if topic in image.topics or topic == CLUSTER_METADATA_TOPIC:
            continue
        logged_ids = [log.topic_id for logs in partitions.values() for log in logs.values()]
        topic_id = _topic_id(topic, logged_ids) or generate_topic_id(new_topic_id, ids)
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
        first = next(iter(partitions.values()))
        assignments = {
            number: Assignment(_replicas(number, partitions.get(number, first)))
            for number in range(count)
        }
        changes.append(Put(TopicRecord(topic, topic_id, assignments)))
        configs = internal_configs.get(topic) or {
            **KEEP_EVERYTHING,
            **image.config("topics", topic),
        }
        changes.append(Put(ConfigRecord((("topics", topic),), configs)))
        for number, assignment in assignments.items():
            broker_ids, controller_epoch = assignment.replicas, image.controller_epoch
            existing_logs = partitions.get(number)
            if existing_logs is None:
                state = new_partition(topic, number, broker_ids, broker_ids, controller_epoch)
            else:
                epoch = max(log.leader_epoch for log in existing_logs.values())
                state = replace(
                    new_partition(topic, number, broker_ids, broker_ids[:1], controller_epoch),
                    leader_epoch=max(epoch, 0) + 1,
                )
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


def _replicas(number: int, logs: RecoveredReplicas) -> tuple[int, ...]:
    """Returns the brokers of a partition, first the one that has everything that was committed.

    That is the one with the latest epoch in its log, and of those the one with the most records: a
    leader has all records that were committed in earlier epochs, and a record is committed only if
    the leader of its epoch has it. Of equal logs, each partition of a topic chooses another broker,
    so that the leaders are spread.
    """
    latest = max((log.leader_epoch, log.end_offset) for log in logs.values())
    complete = sorted(
        broker_id for broker_id, log in logs.items() if (log.leader_epoch, log.end_offset) == latest
    )
    leader = complete[number % len(complete)]
    others = sorted(logs.keys() - {leader})
    shift = number % len(others) if others else 0
    return (leader, *others[shift:], *others[:shift])


def _topic_id(topic: str, logged_ids: Iterable[TopicId | None]) -> TopicId | None:
    ids = {topic_id for topic_id in logged_ids if topic_id is not None}
    if len(ids) > 1:
        raise KafkaError(
            ErrorCode.INCONSISTENT_TOPIC_ID,
            f"the directories of topic '{topic}' have several topic ids, {sorted(map(str, ids))}",
            remedy="move those that do not belong to it out of log.dirs",
        )
    return ids.pop() if ids else None
