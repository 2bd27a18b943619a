"""WriteTxnMarkers (27): versions 0 to 2: writes the ends of transactions to logs of this broker
(P4).

Coordinators send it, and Kafka's `kafka-transactions.sh abort` for a hanging transaction.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.broker.coordinator.transaction_markers import FLUSH_TIMEOUT_S, TransactionMarkers
from penstock.broker.pacer import Pacer, Steps
from penstock.broker.replica.replica_manager import ReplicaManager
from penstock.broker.request import Request, Response
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from penstock.security.acl import CLUSTER_NAME, AclOperation, ResourceType


@dataclass(frozen=True, slots=True)
class Context:
    pacer: Pacer
    replicas: ReplicaManager
    authorizer: RequestAuthorizer
    txn_markers: TransactionMarkers


async def handle(context: Context, request: Request, body: WriteTxnMarkersRequest) -> Response:
    authorizer, session = context.authorizer, request.session
    allowed = authorizer.would_allow(
        session, AclOperation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME
    ) or authorizer.allows_cluster(session, AclOperation.CLUSTER_ACTION)
    flush_deadline = asyncio.get_running_loop().time() + FLUSH_TIMEOUT_S
    by_producer: dict[int, dict[TopicPartition, ErrorCode]] = {}
    async for marker in context.pacer.each(body.markers):
        written = by_producer.setdefault(marker.producer_id, {})
        if allowed:
            written.update(await _write(context, marker, flush_deadline))
        else:
            code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            written.update(dict.fromkeys(_partitions(marker), code))
    return WriteTxnMarkersResponse(
        [
            await context.pacer.complete(_result(producer_id, errors))
            async for producer_id, errors in context.pacer.each(by_producer.items())
        ]
    )


async def _write(
    context: Context, marker: WritableTxnMarker, flush_deadline: float
) -> dict[TopicPartition, ErrorCode]:
    errors: dict[TopicPartition, ErrorCode] = {}
    hosted: dict[TopicPartition, None] = {}
    async for key in context.pacer.each(_partitions(marker)):
        if key in hosted or key in errors:
            continue
        if _is_online(context, key):
            hosted[key] = None
        else:
            errors[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    errors.update(await context.txn_markers.write_until(flush_deadline, marker, hosted))
    return errors


def _partitions(marker: WritableTxnMarker) -> Iterator[TopicPartition]:
    for topic in marker.topics:
        for index in topic.partition_indexes:
            yield TopicPartition(topic.name, index)


def _is_online(context: Context, key: TopicPartition) -> bool:
    try:
        return context.replicas.find(*key).log.failure is None
    except KafkaError:
        return False


def _result(
    producer_id: int, errors: dict[TopicPartition, ErrorCode]
) -> Steps[WritableTxnMarkerResult]:
    topics: dict[str, WritableTxnMarkerTopicResult] = {}
    for (topic, index), code in errors.items():
        yield
        result = topics.setdefault(topic, WritableTxnMarkerTopicResult(topic, []))
        result.partitions.append(WritableTxnMarkerPartitionResult(index, code))
    return WritableTxnMarkerResult(producer_id, list(topics.values()))
