"""Reassignments of partitions to other brokers (R8): start, replace, cancel and list.

During a reassignment the replicas are the new ones followed by those to be removed. It completes
when all new replicas are in sync: `next_partition_state` then drops the others.
"""

from penstock.controller.image import ClusterImage
from penstock.controller.metadata import Assignment
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
                after = _alter(
                    image, key, requested, request.allow_replication_factor_change, rules
                )
                if after is not None:
                    changes.add(after)
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
    return ControllerResult(changes.changes(), response)


def _alter(
    image: ClusterImage,
    key: TopicPartition,
    requested: ReassignablePartition,
    allow_replication_factor_change: bool,
    rules: ElectionRules,
) -> PartitionState | None:
    before = PartitionChanges(image).current(key)
    if before is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"partition {key} does not exist",
            remedy="check the topic and the partition number",
        )
    current = before.assignment
    origin = tuple(replica for replica in current.replicas if replica not in current.adding)
    if requested.replicas is None:
        if not (current.adding or current.removing):
            raise KafkaError(
                ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
                f"{key} is not being reassigned: there is nothing to cancel",
            )
        target = Assignment(origin)
    else:
        target = _assignment_towards(
            image, key, origin, requested.replicas, allow_replication_factor_change
        )
    _check_in_sync(image, before, target, rules)
    return next_partition_state(
        before, image.brokers, image.controller_epoch, rules, assignment=target
    )


def _assignment_towards(
    image: ClusterImage,
    key: TopicPartition,
    origin: tuple[int, ...],
    replicas: list[int],
    allow_replication_factor_change: bool,
) -> Assignment:
    """Returns the assignment during the move from `origin` to `replicas`.

    A replica that has the partition already may be down.
    """
    check_assignment(image, replicas, staying=origin)
    if len(replicas) != len(origin) and not allow_replication_factor_change:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{key} has {len(origin)} replicas and would have {len(replicas)}, "
            "but the request does not allow a change of the replication factor",
            remedy="name as many brokers, or allow it",
        )
    removing = tuple(replica for replica in origin if replica not in replicas)
    return Assignment(
        replicas=(*replicas, *removing),
        adding=tuple(replica for replica in replicas if replica not in origin),
        removing=removing,
    )


def _check_in_sync(
    image: ClusterImage, before: PartitionState, target: Assignment, rules: ElectionRules
) -> None:
    """Raises INVALID_REPLICA_ASSIGNMENT if all replicas that have every record would be dropped.

    That can happen only if they were added by an unfinished reassignment: only those are dropped at
    once.
    """
    state = before.record
    remaining_isr = [replica for replica in state.isr if replica in target.replicas]
    needs_live = state.leader != NO_LEADER
    if any(replica in image.brokers for replica in remaining_isr) if needs_live else remaining_isr:
        return
    if rules.allows_unclean(state.topic) and any(r in image.brokers for r in target.replicas):
        return
    raise KafkaError(
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        f"{state.key} cannot drop its in-sync replicas {list(state.isr)}, because none of "
        f"{list(target.replicas)} is up and has all records",
        remedy="wait until one has caught up, or set unclean.leader.election.enable for the topic, "
        "which may lose records",
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
            if number in assignments
            and (assignments[number].adding or assignments[number].removing)
        ]
        if ongoing:
            topics.append(OngoingTopicReassignment(name=name, partitions=ongoing))
    return ListPartitionReassignmentsResponse(error_message=None, topics=topics)
