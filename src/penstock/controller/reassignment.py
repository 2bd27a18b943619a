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
    """Starts, replaces and (where replicas are null) cancels reassignments."""
    changes = PartitionChanges(image)
    seen: set[TopicPartition] = set()
    topics: list[ReassignableTopicResponse] = []
    for topic in request.topics:
        results: list[ReassignablePartitionResponse] = []
        for wanted in topic.partitions:
            key = TopicPartition(topic.name, wanted.partition_index)
            result = ReassignablePartitionResponse(
                partition_index=wanted.partition_index, error_message=None
            )
            try:
                if key in seen:
                    raise KafkaError(
                        ErrorCode.INVALID_REQUEST, f"{key} is in the request twice. Name it once."
                    )
                after = _alter(image, key, wanted, request.allow_replication_factor_change, rules)
                if after is not None:
                    changes.add(after)
            except KafkaError as error:
                result.error_code, result.error_message = error.code, error.message
            seen.add(key)
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
    wanted: ReassignablePartition,
    allow_replication_factor_change: bool,
    rules: ElectionRules,
) -> PartitionState | None:
    before = PartitionChanges(image).current(key)
    if before is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"There is no partition {key}. Look at the topic's partitions and ask again.",
        )
    now = before.assignment
    origin = tuple(replica for replica in now.replicas if replica not in now.adding)
    if wanted.replicas is None:
        if not (now.adding or now.removing):
            raise KafkaError(
                ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
                f"{key} is not being reassigned, so there is nothing to cancel.",
            )
        target = Assignment(origin)
    else:
        target = _towards(image, key, origin, wanted.replicas, allow_replication_factor_change)
    _check_in_sync(image, before, target, rules)
    return next_partition_state(
        before, image.brokers, image.controller_epoch, rules, assignment=target
    )


def _towards(
    image: ClusterImage,
    key: TopicPartition,
    origin: tuple[int, ...],
    wanted: list[int],
    allow_replication_factor_change: bool,
) -> Assignment:
    """The assignment under way from `origin`; a replica that is there already may be down."""
    check_assignment(image, wanted, staying=origin)
    if len(wanted) != len(origin) and not allow_replication_factor_change:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{key} has {len(origin)} replicas and would have {len(wanted)}, but the request does "
            "not allow another replication factor. Name as many brokers, or allow it.",
        )
    removing = tuple(replica for replica in origin if replica not in wanted)
    return Assignment(
        replicas=(*wanted, *removing),
        adding=tuple(replica for replica in wanted if replica not in origin),
        removing=removing,
    )


def _check_in_sync(
    image: ClusterImage, before: PartitionState, target: Assignment, rules: ElectionRules
) -> None:
    """Refuses to drop the replicas that alone have everything.

    Only what an unfinished reassignment has brought can be dropped at once, so it must be theirs.
    """
    state = before.record
    kept = [replica for replica in state.isr if replica in target.replicas]
    needs_live = state.leader != NO_LEADER
    if any(replica in image.brokers for replica in kept) if needs_live else kept:
        return
    if rules.unclean(state.topic) and any(r in image.brokers for r in target.replicas):
        return
    raise KafkaError(
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        f"{state.key} cannot give up its in-sync replicas {list(state.isr)}: none of "
        f"{list(target.replicas)} is up and has all records. Wait until one has caught up, or set "
        "unclean.leader.election.enable for the topic, which may lose records.",
    )


def list_partition_reassignments(
    image: ClusterImage, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """The reassignments under way: of the named partitions, or (null) of all."""
    if request.topics is None:
        wanted = [(name, list(topic.assignments)) for name, topic in image.topics.items()]
    else:
        wanted = [(topic.name, topic.partition_indexes) for topic in request.topics]
    topics: list[OngoingTopicReassignment] = []
    for name, partitions in wanted:
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
