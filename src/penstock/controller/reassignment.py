"""Reassignments of partitions to other brokers (R8): start, replace, cancel and list.

During a reassignment the replicas are the new ones followed by those to be removed. It completes
when all new replicas are in sync: `next_partition_state` then drops the others.
"""

from collections.abc import Collection, Iterable, Sequence

from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    Assignment,
    Change,
    Delete,
    Put,
    ReassignPartitionsRecord,
)
from penstock.controller.partition_state_machine import (
    NO_LEADER,
    ElectionRules,
    PartitionChanges,
    PartitionState,
    next_partition_state,
)
from penstock.controller.placement import check_assignment
from penstock.controller.result import ControllerResult
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from penstock.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def alter_partition_reassignments(
    image: ClusterImage, request: AlterPartitionReassignmentsRequest, rules: ElectionRules
) -> ControllerResult[AlterPartitionReassignmentsResponse]:
    """Starts and replaces reassignments, and cancels those whose replicas are null."""
    changes = PartitionChanges(image)
    handled: set[TopicPartition] = set()
    accepted: set[TopicPartition] = set()
    topics: list[ReassignableTopicResponse] = []
    for topic in request.topics:
        results: list[ReassignablePartitionResponse] = []
        for requested in topic.partitions:
            key = TopicPartition(topic.name, requested.partition_index)
            result = ReassignablePartitionResponse(
                partition_index=requested.partition_index, error_message=None
            )
            try:
                if key in handled:
                    raise KafkaError(
                        ErrorCode.INVALID_REQUEST,
                        f"{key} is in the request more than once",
                        remedy="name it once",
                    )
                target = _target(image, key, requested, request.allow_replication_factor_change)
                reassign(image, changes, key, target, rules)
                accepted.add(key)
            except KafkaError as error:
                result.error_code, result.error_message = error.code, error.message
            handled.add(key)
            results.append(result)
        topics.append(ReassignableTopicResponse(name=topic.name, partitions=results))
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=topics,
    )
    # The latest reassignment counts, whether it came by request or through the store.
    superseded = without_partitions(image, accepted)
    return ControllerResult([*changes.changes(), *superseded], response)


def without_partitions(image: ClusterImage, keys: Collection[TopicPartition]) -> list[Change]:
    """Returns the change that removes partitions from `/admin/reassign_partitions`, if any."""
    requested = image.reassign_partitions
    if requested is None or not any(key in requested.replicas for key in keys):
        return []
    remaining = {key: value for key, value in requested.replicas.items() if key not in keys}
    return [Put(ReassignPartitionsRecord(remaining)) if remaining else Delete(requested.key)]


def reassign(
    image: ClusterImage,
    changes: PartitionChanges,
    key: TopicPartition,
    target: Assignment,
    rules: ElectionRules,
) -> None:
    """Adds the state of an existing partition with another assignment to the changes.

    Replicas that an unfinished reassignment added are dropped at once, but only if enough others
    have all records; otherwise they are removed when the target's replicas are in sync. Raises
    INVALID_REPLICA_ASSIGNMENT if no replica that has all records would be left.
    """
    before = changes.current(key)
    assert before is not None
    _check_in_sync(image, before, target, rules)
    after = next_partition_state(
        before,
        image.brokers,
        image.controller_epoch,
        rules,
        changes.leaderships,
        assignment=_with_complete_replicas(before, target, rules),
    )
    if after is not None:
        changes.add(after)


def origin_replicas(assignment: Assignment) -> tuple[int, ...]:
    """Returns the replicas from before a reassignment."""
    return tuple(r for r in assignment.replicas if r not in assignment.adding)


def assignment_towards(origin: tuple[int, ...], replicas: Sequence[int]) -> Assignment:
    """Returns the assignment during the move from `origin` to `replicas`."""
    removing = tuple(replica for replica in origin if replica not in replicas)
    return Assignment(
        replicas=(*replicas, *removing),
        adding=tuple(replica for replica in replicas if replica not in origin),
        removing=removing,
    )


def _target(
    image: ClusterImage,
    key: TopicPartition,
    requested: ReassignablePartition,
    allow_replication_factor_change: bool,
) -> Assignment:
    if key not in image.partitions or image.is_deleting(key.topic):
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"partition {key} does not exist",
            remedy="check the topic and the partition number",
        )
    current = image.topics[key.topic].assignments[key.partition]
    origin = origin_replicas(current)
    if requested.replicas is None:
        if not current.is_reassigning:
            raise KafkaError(
                ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
                f"{key} is not being reassigned: there is nothing to cancel",
            )
        return Assignment(origin)
    replicas = requested.replicas
    # A replica that has the partition already may be down.
    check_assignment(image, replicas, staying=origin)
    if len(replicas) != len(origin) and not allow_replication_factor_change:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{key} has {len(origin)} replicas and would have {len(replicas)}, "
            "but the request does not allow a change of the replication factor",
            remedy="name as many brokers, or allow it",
        )
    return assignment_towards(origin, replicas)


def _check_in_sync(
    image: ClusterImage, before: PartitionState, target: Assignment, rules: ElectionRules
) -> None:
    """Raises INVALID_REPLICA_ASSIGNMENT if all replicas that have every record would be dropped.

    That can happen only if they were added by an unfinished reassignment: only those are dropped at
    once.
    """
    state = before.record
    offline = rules.offline_replicas.get(state.key, ())
    remaining_isr = [replica for replica in state.isr if replica in target.replicas]
    needs_live = state.leader != NO_LEADER

    def has_live(replicas: Iterable[int]) -> bool:
        return any(replica in image.brokers and replica not in offline for replica in replicas)

    if has_live(remaining_isr) if needs_live else remaining_isr:
        return
    if rules.allows_unclean(state.topic) and has_live(target.replicas):
        return
    raise KafkaError(
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        f"{state.key} cannot drop its in-sync replicas {list(state.isr)}, because none of "
        f"{list(target.replicas)} is up and has all records",
        remedy="wait until one has caught up, or set unclean.leader.election.enable for the topic, "
        "which may lose records",
    )


def _with_complete_replicas(
    before: PartitionState, target: Assignment, rules: ElectionRules
) -> Assignment:
    """Returns the target, which keeps replicas that have every record while it has too few of them.

    Fewer than `min.insync.replicas` would be left otherwise, and records be lost with a single
    broker although they were committed to several. Without any of them in the target, an unclean
    election was allowed.
    """
    record = before.record
    complete = (*record.isr, *record.eligible_leader_replicas)
    remaining = [replica for replica in complete if replica in target.replicas]
    if not remaining or len(remaining) >= rules.needed_in_sync(record.topic, target):
        return target
    kept = tuple(replica for replica in complete if replica not in target.replicas)
    return Assignment(
        (*target.replicas, *kept), adding=target.adding, removing=(*target.removing, *kept)
    )


def list_partition_reassignments(
    image: ClusterImage, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Lists the reassignments in progress: of the named partitions, or of all (null)."""
    if request.topics is None:
        requested = [(name, list(topic.assignments)) for name, topic in image.topics.items()]
    else:
        requested = [(topic.name, topic.partition_indexes) for topic in request.topics]
    topics: list[OngoingTopicReassignment] = []
    for name, partitions in requested:
        if name not in image.topics:
            continue
        assignments = image.topics[name].assignments
        ongoing = [
            OngoingPartitionReassignment(
                partition_index=number,
                replicas=list(assignments[number].replicas),
                adding_replicas=list(assignments[number].adding),
                removing_replicas=list(assignments[number].removing),
            )
            for number in sorted(set(partitions))
            if number in assignments and assignments[number].is_reassigning
        ]
        if ongoing:
            topics.append(OngoingTopicReassignment(name=name, partitions=ongoing))
    return ListPartitionReassignmentsResponse(error_message=None, topics=topics)
