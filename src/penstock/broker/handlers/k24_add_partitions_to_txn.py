"""AddPartitionsToTxn (24): versions 0 to 5: adds partitions to a transaction (P4).

Clients send versions 0 to 3, with one transaction. Brokers send versions from 4 on, with several. A
partition that does not exist, or that the client may not write, refuses the whole transaction.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.broker.coordinator.transaction_coordinator import TransactionCoordinator, errors_of
from penstock.broker.pacer import Pacer, Steps, chunks
from penstock.broker.request import Request, Response
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.controller.image import ClusterImage
from penstock.coordinator.txn.responses import error_response
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.core.internal_topics import INTERNAL_TOPICS
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from penstock.security.acl import AclOperation, ResourceType

_BROKER_VERSION = 4


@dataclass(frozen=True, slots=True)
class Context:
    pacer: Pacer
    image: ClusterImage
    authorizer: RequestAuthorizer
    transactions: TransactionCoordinator


async def handle(context: Context, request: Request, body: AddPartitionsToTxnRequest) -> Response:
    if request.version >= _BROKER_VERSION:
        if not context.authorizer.allows_cluster(request.session, AclOperation.CLUSTER_ACTION):
            return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        results: list[AddPartitionsToTxnResult] = []
        async for chunk in context.pacer.each(chunks(body.transactions)):
            results += await asyncio.gather(
                *(_add(context, request, transaction) for transaction in chunk)
            )
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    transaction = AddPartitionsToTxnTransaction(
        body.v3_and_below_transactional_id,
        body.v3_and_below_producer_id,
        body.v3_and_below_producer_epoch,
        False,
        body.v3_and_below_topics,
    )
    result = await _add(context, request, transaction)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=result.topic_results)


async def _add(
    context: Context, request: Request, transaction: AddPartitionsToTxnTransaction
) -> AddPartitionsToTxnResult:
    name = transaction.transactional_id
    body = AddPartitionsToTxnRequest([transaction])
    of_client = request.version < _BROKER_VERSION
    if of_client and not context.authorizer.allows(
        request.session, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name
    ):
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        response = error_response(body, _BROKER_VERSION, code)
    else:
        errors = await context.pacer.complete(_check_partitions(context, request, transaction))
        if errors:
            return await context.pacer.complete(_result(name, errors))
        response = await context.transactions.send(request, body, name)
    assert isinstance(response, AddPartitionsToTxnResponse)
    return await context.pacer.complete(_result(name, errors_of(response)))


def _check_partitions(
    context: Context, request: Request, transaction: AddPartitionsToTxnTransaction
) -> Steps[dict[TopicPartition, ErrorCode]]:
    """Returns an error for every partition if one of them cannot be added; else no errors."""
    errors: dict[TopicPartition, ErrorCode] = {}
    for topic in transaction.topics:
        yield
        allowed = request.version >= _BROKER_VERSION or (
            topic.name not in INTERNAL_TOPICS
            and context.authorizer.allows(
                request.session, AclOperation.WRITE, ResourceType.TOPIC, topic.name
            )
        )
        for index in topic.partitions:
            yield
            key = TopicPartition(topic.name, index)
            if not allowed:
                errors[key] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif key not in context.image.partitions:
                errors[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                errors[key] = ErrorCode.OPERATION_NOT_ATTEMPTED
    if all(code is ErrorCode.OPERATION_NOT_ATTEMPTED for code in errors.values()):
        return {}
    return errors


def _result(
    name: str, errors: Mapping[TopicPartition, ErrorCode]
) -> Steps[AddPartitionsToTxnResult]:
    topics: dict[str, AddPartitionsToTxnTopicResult] = {}
    for (topic, index), code in errors.items():
        yield
        result = topics.setdefault(topic, AddPartitionsToTxnTopicResult(topic, []))
        result.results_by_partition.append(AddPartitionsToTxnPartitionResult(index, code))
    return AddPartitionsToTxnResult(name, list(topics.values()))
