"""Updates that a broker receives: LeaderAndIsr, UpdateMetadata and StopReplica as values.

Every version of the requests is understood, those of the oldest brokers too.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from penstock.controller.broker_updates import (
    BrokerUpdate,
    OfflineReplicas,
    PartitionUpdate,
    ReplicaStop,
)
from penstock.controller.control_requests import FULL, LEADER_DURING_DELETE, PROTOCOL_IDS
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    Assignment,
    BrokerKey,
    BrokerRecord,
    Change,
    Delete,
    Endpoint,
    PartitionRecord,
    Put,
    SecurityProtocol,
    TopicKey,
    TopicRecord,
)
from penstock.controller.topic_names import check_topic_name
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicId, TopicPartition
from penstock.protocol.fields import ZERO_UUID
from penstock.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
)
from penstock.protocol.messages.stop_replica import StopReplicaRequest
from penstock.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
)

_PROTOCOLS: Final = {number: protocol for protocol, number in PROTOCOL_IDS.items()}


def update_of_leader_and_isr(request: LeaderAndIsrRequest) -> BrokerUpdate:
    """Returns an update with the partitions of the request.

    Raises KafkaError for a partition that no log can have: creating it would fail like a disk.
    """
    partitions = [
        _partition_update(topic.topic_name, topic.topic_id, state)
        for topic in request.topic_states
        for state in topic.partition_states
    ]
    partitions += [
        _partition_update(state.topic_name, ZERO_UUID, state)
        for state in request.ungrouped_partition_states
    ]
    return BrokerUpdate(
        request.controller_id,
        request.controller_epoch,
        request.broker_epoch,
        partitions=partitions,
        is_full=request.type == FULL,
    )


def _partition_update(
    topic: str, topic_id: TopicId, state: LeaderAndIsrPartitionState
) -> PartitionUpdate:
    _check_partition(topic, state.partition_index)
    if state.leader_epoch < 0:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{topic}-{state.partition_index} has the leader epoch {state.leader_epoch}, which is "
            "negative",
        )
    record = PartitionRecord(
        topic=topic,
        partition=state.partition_index,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=tuple(state.isr),
        controller_epoch=state.controller_epoch,
        partition_epoch=state.partition_epoch,
        leader_recovery_state=state.leader_recovery_state,
    )
    assignment = Assignment(
        tuple(state.replicas), tuple(state.adding_replicas), tuple(state.removing_replicas)
    )
    return PartitionUpdate(record, assignment, topic_id, state.is_new)


def _check_partition(topic: str, number: int) -> None:
    """Raises KafkaError for a name or a number that no partition can have."""
    check_topic_name(topic)
    if number < 0:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"partition {number} of topic '{topic}' is negative"
        )


def update_of_stop_replica(request: StopReplicaRequest) -> BrokerUpdate:
    """Returns an update with the stops of the request."""
    stops = [
        ReplicaStop(
            TopicPartition(topic.topic_name, state.partition_index),
            state.leader_epoch,
            state.delete_partition,
        )
        for topic in request.topic_states
        for state in topic.partition_states
    ]
    delete = request.delete_partitions
    stops += [
        ReplicaStop(TopicPartition(topic.name, number), -1, delete)
        for topic in request.topics
        for number in topic.partition_indexes
    ]
    stops += [
        ReplicaStop(TopicPartition(state.topic_name, state.partition_index), -1, delete)
        for state in request.ungrouped_partitions
    ]
    return BrokerUpdate(
        request.controller_id, request.controller_epoch, request.broker_epoch, stops=stops
    )


def update_of_update_metadata(request: UpdateMetadataRequest, image: ClusterImage) -> BrokerUpdate:
    """Returns an update with the metadata that differs from the broker's `image`.

    Its changes can be applied as they are, also those of a full request. The request has no
    `adding` and `removing` replicas, and of brokers neither features nor epochs. Raises KafkaError
    for a partition that no log can have, and for an unknown security protocol.
    """
    return BrokerUpdate(
        request.controller_id,
        request.controller_epoch,
        request.broker_epoch,
        metadata=[*_broker_changes(request, image), *_topic_changes(request, image)],
        offline_replicas=_offline_replicas(request, image),
    )


def _offline_replicas(
    request: UpdateMetadataRequest, image: ClusterImage
) -> OfflineReplicas | None:
    """Returns the offline replicas of live brokers after the request."""
    live = {broker.id for broker in request.live_brokers}
    before = {} if request.type == FULL else image.offline_replicas
    after = dict(before)
    for topic in request.topic_states:
        for state in topic.partition_states:
            _set_offline(after, topic.topic_name, state, live)
    for state in request.ungrouped_partition_states:
        _set_offline(after, state.topic_name, state, live)
    return None if after == image.offline_replicas else after


def _set_offline(
    offline_replicas: dict[TopicPartition, frozenset[int]],
    topic: str,
    state: UpdateMetadataPartitionState,
    live: set[int],
) -> None:
    if state.offline_replicas or offline_replicas:
        key = TopicPartition(topic, state.partition_index)
        offline = live.intersection(state.offline_replicas)
        if offline:
            offline_replicas[key] = frozenset(offline)
        else:
            offline_replicas.pop(key, None)


def _broker_changes(request: UpdateMetadataRequest, image: ClusterImage) -> Iterator[Change]:
    live: set[int] = set()
    for state in request.live_brokers:
        live.add(state.id)
        endpoints = tuple(_endpoints(state))
        current = image.brokers.get(state.id)
        # An epoch that this broker knows from its time as the controller may be out of date.
        record = BrokerRecord(state.id, endpoints, state.rack, -1, {}, -1)
        if current != record:
            yield Put(record)
    for broker_id in image.brokers:
        if broker_id not in live:
            yield Delete(BrokerKey(broker_id))


def _endpoints(state: UpdateMetadataBroker) -> Iterator[Endpoint]:
    for endpoint in state.endpoints:
        protocol = _PROTOCOLS.get(endpoint.security_protocol)
        if protocol is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"broker {state.id} has an endpoint with the unknown security protocol "
                f"{endpoint.security_protocol}",
            )
        # Before version 3 the name of the listener is that of its security protocol.
        listener = endpoint.listener or protocol.value
        yield Endpoint(listener, endpoint.host, endpoint.port, protocol)
    if not state.endpoints and state.v0_host:
        protocol = SecurityProtocol.PLAINTEXT
        yield Endpoint(protocol.value, state.v0_host, state.v0_port, protocol)


def _topic_changes(request: UpdateMetadataRequest, image: ClusterImage) -> Iterator[Change]:
    topics: dict[str, list[UpdateMetadataPartitionState]] = {}
    topic_ids: dict[str, TopicId] = {}
    for topic in request.topic_states:
        topics.setdefault(topic.topic_name, []).extend(topic.partition_states)
        if topic.topic_id != ZERO_UUID:
            topic_ids[topic.topic_name] = topic.topic_id
    for state in request.ungrouped_partition_states:
        topics.setdefault(state.topic_name, []).append(state)
    is_full = request.type == FULL
    if is_full:
        for name, record in image.topics.items():
            if name not in topics:
                yield from _delete_topic(record, image)
    for name, states in topics.items():
        yield from _changes_of_topic(name, topic_ids.get(name, ZERO_UUID), states, image, is_full)


def _changes_of_topic(
    name: str,
    topic_id: TopicId,
    states: Iterable[UpdateMetadataPartitionState],
    image: ClusterImage,
    is_full: bool,
) -> Iterator[Change]:
    current = image.topics.get(name)
    if current is not None and topic_id not in (ZERO_UUID, current.topic_id):
        yield from _delete_topic(current, image)
        current = None
    # The last state of a partition counts: a topic may be deleted and created in one request.
    records: dict[int, PartitionRecord | None] = {}
    assignments: dict[int, Assignment] = {}
    if current is not None and is_full:
        records = dict.fromkeys(current.assignments)
    elif current is not None:
        assignments = dict(current.assignments)
    for state in states:
        _check_partition(name, state.partition_index)
        if state.leader == LEADER_DURING_DELETE:
            assignments.pop(state.partition_index, None)
            records[state.partition_index] = None
        elif current is not None and _is_late(state, topic_id, image, name):
            records.pop(state.partition_index, None)
            assignments[state.partition_index] = current.assignments[state.partition_index]
        else:
            assignments[state.partition_index] = Assignment(tuple(state.replicas))
            records[state.partition_index] = PartitionRecord(
                topic=name,
                partition=state.partition_index,
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                isr=tuple(state.isr),
                controller_epoch=state.controller_epoch,
                partition_epoch=state.zk_version,
            )
    if current is not None:
        for number, record in records.items():
            key = TopicPartition(name, number)
            if record is None and key in image.partitions:
                yield Delete(key)
        if not assignments:
            yield Delete(TopicKey(name))
    if assignments and (current is None or assignments != current.assignments):
        known_id = topic_id if current is None else current.topic_id
        yield Put(TopicRecord(name, known_id, assignments))
    for record in records.values():
        if record is not None and (current is None or image.partitions.get(record.key) != record):
            yield Put(record)


def _is_late(
    state: UpdateMetadataPartitionState, topic_id: TopicId, image: ClusterImage, name: str
) -> bool:
    """Returns whether a request comes after a newer one, on a connection that was replaced."""
    current = image.partitions.get(TopicPartition(name, state.partition_index))
    return (
        current is not None
        and topic_id != ZERO_UUID
        and (state.leader_epoch, state.zk_version) < (current.leader_epoch, current.partition_epoch)
    )


def _delete_topic(topic: TopicRecord, image: ClusterImage) -> Iterator[Change]:
    for number in topic.assignments:
        key = TopicPartition(topic.topic, number)
        if key in image.partitions:
            yield Delete(key)
    yield Delete(TopicKey(topic.topic))
