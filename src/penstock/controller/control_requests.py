"""LeaderAndIsr, UpdateMetadata and StopReplica: the controller's updates as requests to brokers.

They have the form of the versions that Apache Kafka 3.9 sends. `received_updates.py` converts them
back.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from penstock.controller.broker_updates import BrokerUpdate
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    Assignment,
    BrokerRecord,
    Change,
    Delete,
    PartitionRecord,
    Put,
    SecurityProtocol,
)
from penstock.core.ids import TopicPartition
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

LEADER_DURING_DELETE: Final = -2
"""The leader of a partition of a deleted topic in UpdateMetadata."""
FULL: Final = 2
"""The `type` of a request that has all partitions. Apache Kafka's brokers ignore it."""

PROTOCOL_IDS: Final = {
    SecurityProtocol.PLAINTEXT: 0,
    SecurityProtocol.SSL: 1,
    SecurityProtocol.SASL_PLAINTEXT: 2,
    SecurityProtocol.SASL_SSL: 3,
}

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
            PROTOCOL_IDS[endpoint.security_protocol],
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
