"""DescribeProducers (61), version 0: returns the active producers of partitions (P3)."""

from dataclasses import dataclass

from penstock.broker.pacer import Pacer, Steps
from penstock.broker.replica.replica_manager import ReplicaManager
from penstock.broker.request import HandlerResult, Request, Response
from penstock.broker.security.request_authorizer import RequestAuthorizer
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


@dataclass(frozen=True, slots=True)
class Context:
    pacer: Pacer
    replicas: ReplicaManager
    authorizer: RequestAuthorizer


def handle(context: Context, request: Request, body: DescribeProducersRequest) -> HandlerResult:
    return context.pacer.run(_steps(context, request, body))


def _steps(context: Context, request: Request, body: DescribeProducersRequest) -> Steps[Response]:
    topics = []
    for topic in body.topics:
        yield
        partitions = []
        for index in topic.partition_indexes:
            yield
            try:
                check_topic_name(topic.name)
                context.authorizer.require(
                    request.session, AclOperation.READ, ResourceType.TOPIC, topic.name
                )
                producers = _producers(context, topic.name, index)
                partitions.append(PartitionResponse(index, active_producers=producers))
            except KafkaError as error:
                partitions.append(PartitionResponse(index, error.code, error.message))
        topics.append(TopicResponse(topic.name, partitions))
    return DescribeProducersResponse(topics=topics)


def _producers(context: Context, topic: str, index: int) -> list[ProducerState]:
    log = context.replicas.find(topic, index).leader_log()
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
