"""DescribeProducers (61): version 0: the producers whose state a partition keeps (P3)."""

from typing import TYPE_CHECKING

from penstock.broker.request import HandlerResult, Request
from penstock.controller.topic_names import check_topic_name
from penstock.core.errors import KafkaError
from penstock.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from penstock.security.acl import AclOperation, ResourceType

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


def handle(broker: "Broker", request: Request, body: DescribeProducersRequest) -> HandlerResult:
    topics = []
    for topic in body.topics:
        partitions = []
        for index in topic.partition_indexes:
            try:
                check_topic_name(topic.name)
                broker.authorizer.require(
                    request.session, AclOperation.READ, ResourceType.TOPIC, topic.name
                )
                producers = _producers(broker, topic.name, index)
                partitions.append(PartitionResponse(index, active_producers=producers))
            except KafkaError as error:
                partitions.append(PartitionResponse(index, error.code, error.message))
        topics.append(TopicResponse(topic.name, partitions))
    return DescribeProducersResponse(topics=topics)


def _producers(broker: "Broker", topic: str, index: int) -> list[ProducerState]:
    log = broker.replicas.find(topic, index).leading()
    return [
        ProducerState(
            producer_id,
            entry.producer_epoch,
            entry.batches[-1].last_sequence if entry.batches else -1,
            entry.last_timestamp,
            entry.coordinator_epoch,
            -1 if entry.current_txn_first_offset is None else entry.current_txn_first_offset,
        )
        for producer_id, entry in log.producers.active_producers().items()
    ]
