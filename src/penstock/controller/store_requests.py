"""Requests to the controller that other processes put into the store.

Tools write `/admin/reassign_partitions` and `/admin/preferred_replica_election`; brokers write
notifications of changed ISRs and failed log directories. The controller acts on them and removes
them. `TopicDeletionRecord` is handled in `topic_deletion.py`.
"""

from penstock.controller.election import elect_preferred
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import Change, Delete, Put, ReassignPartitionsRecord
from penstock.controller.partition_state_machine import ElectionRules, PartitionChanges
from penstock.controller.reassignment import assignment_towards, origin_replicas, reassign
from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition


def reassign_partitions(
    image: ClusterImage, changes: PartitionChanges, rules: ElectionRules
) -> list[Change]:
    """Starts the reassignments in `/admin/reassign_partitions`.

    The states of the partitions are added to `changes`; the changes of the node are returned. A
    reassignment stays in the node until it is complete, and is removed at once if it is impossible.
    Brokers that are named may be down.
    """
    request = image.reassign_partitions
    if request is None:
        return []
    remaining = {
        key: replicas
        for key, replicas in request.replicas.items()
        if _is_in_progress(image, changes, key, replicas, rules)
    }
    if not remaining:
        return [Delete(request.key)]
    if len(remaining) == len(request.replicas):
        return []
    return [Put(ReassignPartitionsRecord(remaining))]


def _is_in_progress(
    image: ClusterImage,
    changes: PartitionChanges,
    key: TopicPartition,
    replicas: tuple[int, ...],
    rules: ElectionRules,
) -> bool:
    """Starts the reassignment unless it is started; returns whether it is incomplete."""
    partition = changes.current(key)
    is_valid = replicas and len(set(replicas)) == len(replicas) and min(replicas) >= 0
    if partition is None or image.is_deleting(key.topic) or not is_valid:
        return False
    assignment = partition.assignment
    if tuple(r for r in assignment.replicas if r not in assignment.removing) != replicas:
        target = assignment_towards(origin_replicas(assignment), replicas)
        try:
            reassign(image, changes, key, target, rules)
        except KafkaError:
            return False
        partition = changes.current(key)
        assert partition is not None
    return partition.assignment.is_reassigning


def elect_preferred_leaders(
    image: ClusterImage, changes: PartitionChanges, rules: ElectionRules
) -> list[Change]:
    """Elects the preferred leaders of `/admin/preferred_replica_election` that are in sync.

    The states are added to `changes`; the deletion of the node is returned.
    """
    request = image.preferred_election
    if request is None:
        return []
    for key in request.partitions:
        partition = changes.current(key)
        if partition is not None and not image.is_deleting(key.topic):
            after = elect_preferred(image, changes, partition, rules)
            if after is not None:
                changes.add(after)
    return [Delete(request.key)]


def remove_notifications(image: ClusterImage) -> list[Change]:
    """Returns the deletions of the notifications in the image."""
    return [
        *(Delete(record.key) for record in image.isr_changes.values()),
        *(Delete(record.key) for record in image.log_dir_events.values()),
    ]
