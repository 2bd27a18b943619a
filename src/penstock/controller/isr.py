"""AlterPartition: a leader proposes a new ISR for its partitions (R2, R3)."""

from penstock.controller.image import ClusterImage
from penstock.controller.partition_state_machine import (
    RECOVERED,
    RECOVERING,
    ElectionRules,
    PartitionChanges,
    PartitionState,
    next_partition_state,
)
from penstock.controller.result import ControllerResult
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.fields import ZERO_UUID
from penstock.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
    BrokerState,
)


def alter_partition(
    image: ClusterImage, request: AlterPartitionRequest, rules: ElectionRules, version: int = 3
) -> ControllerResult[AlterPartitionResponse]:
    """Accepts the proposed ISRs of a leader whose epochs are current.

    An ISR that contains all replicas that a reassignment waits for completes it. If that makes
    another broker the leader, the response is NEW_LEADER_ELECTED although the ISR was accepted. A
    repeated proposal that was accepted before succeeds again. Before `version` 2 of the request,
    INELIGIBLE_REPLICA is OPERATION_NOT_ATTEMPTED.
    """
    broker = image.brokers.get(request.broker_id)
    if broker is None or request.broker_epoch != broker.epoch:
        return ControllerResult([], AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    changes = PartitionChanges(image)
    topics = [
        _alter_topic(image, request.broker_id, topic, rules, changes) for topic in request.topics
    ]
    if version < 2:
        for topic in topics:
            for partition in topic.partitions:
                if partition.error_code == ErrorCode.INELIGIBLE_REPLICA:
                    partition.error_code = ErrorCode.OPERATION_NOT_ATTEMPTED
    return ControllerResult(changes.changes(), AlterPartitionResponse(topics=topics))


def _alter_topic(
    image: ClusterImage,
    broker_id: int,
    topic: AlterPartitionRequestTopicData,
    rules: ElectionRules,
    changes: PartitionChanges,
) -> AlterPartitionResponseTopicData:
    by_id = topic.topic_id != ZERO_UUID
    name = image.topic_names.get(topic.topic_id) if by_id else topic.topic_name
    results: list[AlterPartitionResponsePartitionData] = []
    for data in topic.partitions:
        result = AlterPartitionResponsePartitionData(partition_index=data.partition_index)
        if name is None:
            result.error_code = ErrorCode.UNKNOWN_TOPIC_ID
        else:
            key = TopicPartition(name, data.partition_index)
            _alter_partition(image, broker_id, key, data, rules, changes, result)
        results.append(result)
    return AlterPartitionResponseTopicData(
        topic_name=topic.topic_name, topic_id=topic.topic_id, partitions=results
    )


def _alter_partition(
    image: ClusterImage,
    broker_id: int,
    key: TopicPartition,
    data: AlterPartitionRequestPartitionData,
    rules: ElectionRules,
    changes: PartitionChanges,
    result: AlterPartitionResponsePartitionData,
) -> None:
    before = changes.current(key)
    if before is None:
        result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return
    proposed = data.new_isr_with_epochs or [BrokerState(broker_id=r) for r in data.new_isr]
    result.error_code = _check_epochs(broker_id, before, data)
    if result.error_code == ErrorCode.NONE and _is_current(before, data, proposed):
        _fill_result(result, before)
        return
    if result.error_code == ErrorCode.NONE:
        result.error_code = _check_proposal(image, broker_id, before, data, proposed, rules)
    if result.error_code != ErrorCode.NONE:
        return
    after = next_partition_state(
        before,
        image.brokers,
        image.controller_epoch,
        rules,
        changes.leaderships,
        isr=tuple(member.broker_id for member in proposed),
        recovery_state=data.leader_recovery_state,
        by_leader=True,
    )
    if after is not None:
        changes.add(after)
    if (after or before).record.leader != broker_id:
        result.error_code = ErrorCode.NEW_LEADER_ELECTED
        return
    _fill_result(result, after or before)


def _fill_result(result: AlterPartitionResponsePartitionData, partition: PartitionState) -> None:
    state = partition.record
    result.leader_id = state.leader
    result.leader_epoch = state.leader_epoch
    result.isr = list(state.isr)
    result.leader_recovery_state = state.leader_recovery_state
    result.partition_epoch = state.partition_epoch


def _check_epochs(
    broker_id: int, before: PartitionState, data: AlterPartitionRequestPartitionData
) -> ErrorCode:
    state = before.record
    if data.leader_epoch > state.leader_epoch or data.partition_epoch > state.partition_epoch:
        # The leader has received a newer state, from a controller that succeeded this one.
        return ErrorCode.NOT_CONTROLLER
    if data.leader_epoch < state.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if broker_id != state.leader:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _is_current(
    before: PartitionState, data: AlterPartitionRequestPartitionData, proposed: list[BrokerState]
) -> bool:
    """Returns whether the partition is in the proposed state, perhaps since an earlier request."""
    state = before.record
    return (
        len(proposed) == len(state.isr)
        and {member.broker_id for member in proposed} == set(state.isr)
        and data.leader_recovery_state == state.leader_recovery_state
    )


def _check_proposal(
    image: ClusterImage,
    broker_id: int,
    before: PartitionState,
    data: AlterPartitionRequestPartitionData,
    proposed: list[BrokerState],
    rules: ElectionRules,
) -> ErrorCode:
    if data.partition_epoch < before.record.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    members = {member.broker_id for member in proposed}
    are_replicas = members <= set(before.assignment.replicas)
    if not are_replicas or len(members) < len(proposed) or broker_id not in members:
        return ErrorCode.INVALID_REQUEST
    if data.leader_recovery_state not in (RECOVERED, RECOVERING):
        return ErrorCode.INVALID_REQUEST
    if data.leader_recovery_state == RECOVERING and (
        len(members) > 1 or before.record.leader_recovery_state == RECOVERED
    ):
        return ErrorCode.INVALID_REQUEST
    offline = rules.offline_replicas.get(before.record.key, ())
    for member in proposed:
        broker = image.brokers.get(member.broker_id)
        is_leaving = member.broker_id in rules.shutting_down and member.broker_id != broker_id
        is_down = broker is None or member.broker_id in offline or is_leaving
        if is_down or (broker is not None and member.broker_epoch not in (-1, broker.epoch)):
            return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE
