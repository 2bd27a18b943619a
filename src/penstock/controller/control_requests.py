"""LeaderAndIsr, UpdateMetadata and StopReplica: broker updates as requests, and the way back.

The controller sends the versions of Apache Kafka 3.9 (`LEADER_AND_ISR_VERSION` and so on); brokers
read every version.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from penstock.controller.broker_updates import BrokerUpdate, PartitionUpdate, ReplicaStop
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
from penstock.core.ids import TopicId, TopicPartition
from penstock.protocol.fields import ZERO_UUID
from penstock.protocol.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from penstock.protocol.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from penstock.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

LEADER_AND_ISR_VERSION: Final = 7
UPDATE_METADATA_VERSION: Final = 8
STOP_REPLICA_VERSION: Final = 4

LEADER_DURING_DELETE: Final = -2
"""The leader of a partition of a deleted topic in UpdateMetadata."""
FULL: Final = 2
"""The `type` of a request that has all partitions. Apache Kafka's brokers ignore it."""

_PROTOCOL_IDS: Final = {
    SecurityProtocol.PLAINTEXT: 0,
    SecurityProtocol.SSL: 1,
    SecurityProtocol.SASL_PLAINTEXT: 2,
    SecurityProtocol.SASL_SSL: 3,
}
_PROTOCOLS: Final = {number: protocol for protocol, number in _PROTOCOL_IDS.items()}

ControlRequest = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest


class ControlRequests:
    """The requests for the updates of one event; what they have in common is built once.

    `image` must contain the changes of the event. The requests do not refer to it.
    `offline_replicas` are replicas in failed log directories of live brokers.
    """

    def __init__(
        self,
        image: ClusterImage,
        listener: str,
        offline_replicas: Mapping[TopicPartition, frozenset[int]] | None = None,
    ) -> None:
        self._image = image
        self._listener = listener
        self._offline_replicas = offline_replicas or {}
        self._live_brokers = [_broker_state(broker) for broker in image.brokers.values()]
        self._metadata: Sequence[Change] | None = None
        self._topic_states: list[UpdateMetadataTopicState] = []

    def of(self, update: BrokerUpdate) -> list[ControlRequest]:
        """Returns the requests in the order in which they must be sent.

        A full update begins with the metadata: a broker that has just started must know all topics
        before it becomes a coordinator, which would take unknown partitions for deleted ones.
        """
        requests: list[ControlRequest] = []
        if update.is_full:
            requests.append(self._update_metadata(update))
        if update.partitions or update.is_full:
            requests.append(self._leader_and_isr(update))
        if update.metadata and not update.is_full:
            requests.append(self._update_metadata(update))
        if update.stops:
            requests.append(_stop_replica(update))
        return requests

    def _leader_and_isr(self, update: BrokerUpdate) -> LeaderAndIsrRequest:
        topics: dict[str, LeaderAndIsrTopicState] = {}
        leaders: set[int] = set()
        for partition in update.partitions:
            record, assignment = partition.record, partition.assignment
            topic = topics.get(record.topic)
            if topic is None:
                topic = LeaderAndIsrTopicState(record.topic, partition.topic_id, [])
                topics[record.topic] = topic
            leaders.add(record.leader)
            topic.partition_states.append(
                LeaderAndIsrPartitionState(
                    partition_index=record.partition,
                    controller_epoch=record.controller_epoch,
                    leader=record.leader,
                    leader_epoch=record.leader_epoch,
                    isr=list(record.isr),
                    partition_epoch=record.partition_epoch,
                    replicas=list(assignment.replicas),
                    adding_replicas=list(assignment.adding),
                    removing_replicas=list(assignment.removing),
                    is_new=partition.is_new,
                    leader_recovery_state=record.leader_recovery_state,
                )
            )
        return LeaderAndIsrRequest(
            controller_id=update.controller_id,
            controller_epoch=update.controller_epoch,
            broker_epoch=update.broker_epoch,
            type=FULL if update.is_full else 0,
            topic_states=list(topics.values()),
            live_leaders=[
                LeaderAndIsrLiveLeader(broker.broker_id, endpoint.host, endpoint.port)
                for broker, endpoint in self._image.broker_endpoints(self._listener)
                if broker.broker_id in leaders
            ],
        )

    def _update_metadata(self, update: BrokerUpdate) -> UpdateMetadataRequest:
        if self._metadata is not update.metadata:
            self._metadata = update.metadata
            self._topic_states = self._topic_states_of(update.metadata)
        return UpdateMetadataRequest(
            controller_id=update.controller_id,
            type=FULL if update.is_full else 0,
            controller_epoch=update.controller_epoch,
            broker_epoch=update.broker_epoch,
            topic_states=self._topic_states,
            live_brokers=self._live_brokers,
        )

    def _topic_states_of(self, metadata: Sequence[Change]) -> list[UpdateMetadataTopicState]:
        deleted: dict[str, UpdateMetadataTopicState] = {}
        topics: dict[str, UpdateMetadataTopicState] = {}
        for change in metadata:
            match change:
                case Put(PartitionRecord() as record):
                    record_topic = self._image.topics[record.topic]
                    topic = topics.get(record.topic)
                    if topic is None:
                        topic = UpdateMetadataTopicState(record.topic, record_topic.topic_id, [])
                        topics[record.topic] = topic
                    assignment = record_topic.assignments[record.partition]
                    topic.partition_states.append(self._partition_state(record, assignment))
                case Delete(TopicPartition(name, number)):
                    topic = deleted.setdefault(name, UpdateMetadataTopicState(name, ZERO_UUID, []))
                    topic.partition_states.append(
                        UpdateMetadataPartitionState(
                            partition_index=number,
                            controller_epoch=self._image.controller_epoch,
                            leader=LEADER_DURING_DELETE,
                        )
                    )
        return [*deleted.values(), *topics.values()]

    def _partition_state(
        self, record: PartitionRecord, assignment: Assignment
    ) -> UpdateMetadataPartitionState:
        offline = self._offline_replicas.get(record.key, frozenset())
        return UpdateMetadataPartitionState(
            partition_index=record.partition,
            controller_epoch=record.controller_epoch,
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            isr=list(record.isr),
            zk_version=record.partition_epoch,
            replicas=list(assignment.replicas),
            offline_replicas=[
                r for r in assignment.replicas if r not in self._image.brokers or r in offline
            ],
        )


def _broker_state(broker: BrokerRecord) -> UpdateMetadataBroker:
    endpoints = [
        UpdateMetadataEndpoint(
            endpoint.port,
            endpoint.host,
            endpoint.listener,
            _PROTOCOL_IDS[endpoint.security_protocol],
        )
        for endpoint in broker.endpoints
    ]
    return UpdateMetadataBroker(id=broker.broker_id, endpoints=endpoints, rack=broker.rack)


def _stop_replica(update: BrokerUpdate) -> StopReplicaRequest:
    topics: dict[str, StopReplicaTopicState] = {}
    for stop in update.stops:
        topic = topics.get(stop.key.topic)
        if topic is None:
            topic = topics[stop.key.topic] = StopReplicaTopicState(stop.key.topic, [])
        topic.partition_states.append(
            StopReplicaPartitionState(stop.key.partition, stop.leader_epoch, stop.delete)
        )
    return StopReplicaRequest(
        controller_id=update.controller_id,
        controller_epoch=update.controller_epoch,
        broker_epoch=update.broker_epoch,
        topic_states=list(topics.values()),
    )


# --- the way back, in brokers


def update_of_leader_and_isr(request: LeaderAndIsrRequest) -> BrokerUpdate:
    """Returns an update with the partitions of the request."""
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
    `adding` and `removing` replicas, and of brokers neither features nor epochs.
    """
    return BrokerUpdate(
        request.controller_id,
        request.controller_epoch,
        request.broker_epoch,
        metadata=[*_broker_changes(request, image), *_topic_changes(request, image)],
    )


def _broker_changes(request: UpdateMetadataRequest, image: ClusterImage) -> Iterator[Change]:
    live: set[int] = set()
    for state in request.live_brokers:
        live.add(state.id)
        endpoints = tuple(_endpoints(state))
        current = image.brokers.get(state.id)
        if current is None or current.endpoints != endpoints or current.rack != state.rack:
            yield Put(BrokerRecord(state.id, endpoints, state.rack, -1, {}, -1))
    for broker_id in image.brokers:
        if broker_id not in live:
            yield Delete(BrokerKey(broker_id))


def _endpoints(state: UpdateMetadataBroker) -> Iterator[Endpoint]:
    for endpoint in state.endpoints:
        protocol = _PROTOCOLS[endpoint.security_protocol]
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
        if state.leader == LEADER_DURING_DELETE:
            assignments.pop(state.partition_index, None)
            records[state.partition_index] = None
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


def _delete_topic(topic: TopicRecord, image: ClusterImage) -> Iterator[Change]:
    for number in topic.assignments:
        key = TopicPartition(topic.topic, number)
        if key in image.partitions:
            yield Delete(key)
    yield Delete(TopicKey(topic.topic))
