"""TxnOffsetCommit (28): versions 0 to 6: commits offsets of a group in a transaction (P4).

As with Produce, the first request of a transaction waits until the coordinator has verified the
partition of `__consumer_offsets`; from version 5 on the broker adds it (KIP-890).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from penstock.broker.coordinator.group_coordinator import GroupCoordinator
from penstock.broker.coordinator.transaction_verification import (
    TransactionSupport,
    TransactionVerifier,
)
from penstock.broker.pacer import Pacer
from penstock.broker.request import Request, Response
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.controller.image import ClusterImage
from penstock.coordinator.group.request_chunks import merge_topics, topic_chunks
from penstock.coordinator.group.responses import error_response
from penstock.coordinator.write_errors import client_error
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.core.internal_topics import GROUP_METADATA_TOPIC
from penstock.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from penstock.security.acl import AclOperation, ResourceType

if TYPE_CHECKING:
    from penstock.broker.coordinator.transaction_verification import Verification

_TOPIC_ID_VERSION = 6
_FIRST_THAT_KNOWS_LOADING = 2
_NO_SEQUENCE = -1


@dataclass(frozen=True, slots=True)
class Context:
    pacer: Pacer
    image: ClusterImage
    authorizer: RequestAuthorizer
    groups: GroupCoordinator
    txn_verification: TransactionVerifier


async def handle(context: Context, request: Request, body: TxnOffsetCommitRequest) -> Response:
    authorizer, session = context.authorizer, request.session
    if not authorizer.allows(
        session, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, body.transactional_id
    ):
        return _error_response(request, body, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not authorizer.allows(session, AclOperation.READ, ResourceType.GROUP, body.group_id):
        return _error_response(request, body, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    # Topics that cannot be committed are refused first: they must not begin a transaction.
    accepted: list[TxnOffsetCommitRequestTopic] = []
    refused: list[TxnOffsetCommitResponseTopic] = []
    async for topic in context.pacer.each(body.topics):
        name = _name(context, request, topic)
        if name is None:
            refused.append(_topic(topic, topic.partitions, ErrorCode.UNKNOWN_TOPIC_ID))
            continue
        if not authorizer.allows(session, AclOperation.READ, ResourceType.TOPIC, name):
            refused.append(_topic(topic, topic.partitions, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            continue
        existing: list[TxnOffsetCommitRequestPartition] = []
        unknown: list[TxnOffsetCommitRequestPartition] = []
        async for partition in context.pacer.each(topic.partitions):
            exists = TopicPartition(name, partition.partition_index) in context.image.partitions
            (existing if exists else unknown).append(partition)
        if existing:
            accepted.append(replace(topic, partitions=existing))
        if unknown:
            refused.append(_topic(topic, unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    response = TxnOffsetCommitResponse()
    if accepted:
        response = await _commit(context, request, replace(body, topics=accepted))
    return _merge(response, refused)


async def _commit(
    context: Context, request: Request, body: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    if not body.group_id:
        return _error_response(request, body, ErrorCode.INVALID_GROUP_ID)
    partition = context.groups.partition_for(body.group_id)
    if partition is None:
        return _error_response(request, body, ErrorCode.NOT_COORDINATOR)
    verification = await _verify(
        context, request, body, TopicPartition(GROUP_METADATA_TOPIC, partition)
    )
    if isinstance(verification, KafkaError):
        if verification.code is ErrorCode.NETWORK_EXCEPTION:
            return _error_response(request, body, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return _error_response(request, body, client_error(verification.code))
    response = TxnOffsetCommitResponse()
    async for topics in context.pacer.each(topic_chunks(body.topics)):
        part = await context.groups.commit_in_transaction(
            request, replace(body, topics=topics), verification
        )
        assert isinstance(part, TxnOffsetCommitResponse)
        merge_topics(response.topics, part.topics)
    return _for_version(request, response)


async def _verify(
    context: Context, request: Request, body: TxnOffsetCommitRequest, key: TopicPartition
) -> "Verification":
    verifications = await context.txn_verification.verify(
        body.transactional_id,
        body.producer_id,
        body.producer_epoch,
        {key: _NO_SEQUENCE},
        TransactionSupport.of_txn_offset_commit(request.version),
    )
    return verifications.get(key)


def _name(context: Context, request: Request, topic: TxnOffsetCommitRequestTopic) -> str | None:
    """Returns the name of a topic; None if no topic has its id."""
    if request.version >= _TOPIC_ID_VERSION:
        return context.image.topic_names.get(topic.topic_id)
    return topic.name


def _error_response(
    request: Request, body: TxnOffsetCommitRequest, error: ErrorCode
) -> TxnOffsetCommitResponse:
    response = error_response(body, request.version, error)
    assert isinstance(response, TxnOffsetCommitResponse)
    return _for_version(request, response)


def _for_version(request: Request, response: TxnOffsetCommitResponse) -> TxnOffsetCommitResponse:
    """Replaces an error that producers before Kafka 2.3 do not know: the coordinator is loading."""
    if request.version < _FIRST_THAT_KNOWS_LOADING:
        for topic in response.topics:
            for partition in topic.partitions:
                if partition.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    partition.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return response


def _topic(
    topic: TxnOffsetCommitRequestTopic,
    partitions: Iterable[TxnOffsetCommitRequestPartition],
    error: ErrorCode,
) -> TxnOffsetCommitResponseTopic:
    results = [
        TxnOffsetCommitResponsePartition(partition.partition_index, error)
        for partition in partitions
    ]
    return TxnOffsetCommitResponseTopic(topic.name, topic.topic_id, results)


def _merge(
    response: TxnOffsetCommitResponse, refused: Iterable[TxnOffsetCommitResponseTopic]
) -> TxnOffsetCommitResponse:
    """Adds the refused topics to the response; each topic is named once."""
    topics = {(topic.name, topic.topic_id): topic for topic in response.topics}
    for topic in refused:
        committed = topics.get((topic.name, topic.topic_id))
        if committed is None:
            topics[topic.name, topic.topic_id] = topic
        else:
            committed.partitions.extend(topic.partitions)
    response.topics = list(topics.values())
    return response
