"""AlterPartition: a leader proposes a new ISR for its partitions (R2, R3)."""

from penstock.controller.image import ClusterImage
from penstock.controller.partition_state_machine import (
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
    image: ClusterImage, request: AlterPartitionRequest, rules: ElectionRules
) -> ControllerResult[AlterPartitionResponse]:
    """Accepts the proposed ISRs of a leader whose epochs are current.

    An ISR that contains all replicas that a reassignment waits for completes it. If that makes
    another broker the leader, the response is NEW_LEADER_ELECTED although the ISR was accepted.
    """
    broker = image.brokers.get(request.broker_id)
    if broker is None or request.broker_epoch != broker.epoch:
        return ControllerResult([], AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    changes = PartitionChanges(image)
    topics = [
        _alter_topic(image, request.broker_id, topic, rules, changes) for topic in request.topics
    ]
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
    result.error_code = _check_proposal(image, broker_id, before, data, proposed, rules)
    if result.error_code != ErrorCode.NONE:
        return
    after = next_partition_state(
        before,
        image.brokers,
        image.controller_epoch,
        rules,
        isr=tuple(member.broker_id for member in proposed),
        by_leader=True,
    )
    if after is not None:
        changes.add(after)
    state = (after or before).record
    if state.leader != broker_id:
        result.error_code = ErrorCode.NEW_LEADER_ELECTED
        return
    result.leader_id = state.leader
    result.leader_epoch = state.leader_epoch
    result.isr = list(state.isr)
    result.partition_epoch = state.partition_epoch


def _check_proposal(
    image: ClusterImage,
    broker_id: int,
    before: PartitionState,
    data: AlterPartitionRequestPartitionData,
    proposed: list[BrokerState],
    rules: ElectionRules,
) -> ErrorCode:
    state = before.record
    if data.leader_epoch > state.leader_epoch or data.partition_epoch > state.partition_epoch:
        # The leader has received a newer state, from a controller that succeeded this one.
        return ErrorCode.NOT_CONTROLLER
    if data.leader_epoch < state.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if broker_id != state.leader:
        return ErrorCode.INVALID_REQUEST
    if data.partition_epoch < state.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    members = {member.broker_id for member in proposed}
    are_replicas = members <= set(before.assignment.replicas)
    if not are_replicas or len(members) < len(proposed) or broker_id not in members:
        return ErrorCode.INVALID_REQUEST
    if data.leader_recovery_state != 0:
        # Recovery after an unclean election is not tracked, so no partition is ever recovering.
        return ErrorCode.INVALID_REQUEST
    for member in proposed:
        broker = image.brokers.get(member.broker_id)
        is_leaving = member.broker_id in rules.shutting_down and member.broker_id != broker_id
        if broker is None or is_leaving or member.broker_epoch not in (-1, broker.epoch):
            return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE
