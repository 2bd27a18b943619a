"""TxnOffsetCommit (28): versions 0 to 6: a group's offsets, stored inside a transaction (P4).

As a Produce, the first of a transaction waits until its coordinator knows of the partition of
`__consumer_offsets`; from version 5 on it is added (KIP-890).
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
from penstock.broker.request import Request, Response
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.controller.image import ClusterImage
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

_FIRST_WITH_TOPIC_IDS = 6
_FIRST_THAT_KNOWS_LOADING = 2
_NO_SEQUENCE = -1


@dataclass(frozen=True, slots=True)
class Context:
    image: ClusterImage
    authorizer: RequestAuthorizer
    groups: GroupCoordinator
    txn_verification: TransactionVerifier


async def handle(context: Context, request: Request, body: TxnOffsetCommitRequest) -> Response:
    authorizer, session = context.authorizer, request.session
    if not authorizer.allows(
        session, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, body.transactional_id
    ):
        return _refused(request, body, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not authorizer.allows(session, AclOperation.READ, ResourceType.GROUP, body.group_id):
        return _refused(request, body, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    # What nobody may commit is told apart first: it is no reason to begin a transaction.
    wanted: list[TxnOffsetCommitRequestTopic] = []
    refused: list[TxnOffsetCommitResponseTopic] = []
    for topic in body.topics:
        name = _name(context, request, topic)
        if name is None:
            refused.append(_topic(topic, topic.partitions, ErrorCode.UNKNOWN_TOPIC_ID))
            continue
        if not authorizer.allows(session, AclOperation.READ, ResourceType.TOPIC, name):
            refused.append(_topic(topic, topic.partitions, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            continue
        known: list[TxnOffsetCommitRequestPartition] = []
        unknown: list[TxnOffsetCommitRequestPartition] = []
        for each in topic.partitions:
            is_known = TopicPartition(name, each.partition_index) in context.image.partitions
            (known if is_known else unknown).append(each)
        if known:
            wanted.append(replace(topic, partitions=known))
        if unknown:
            refused.append(_topic(topic, unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    answer = TxnOffsetCommitResponse()
    if wanted:
        answer = await _commit(context, request, replace(body, topics=wanted))
    return _merged(answer, refused)


async def _commit(
    context: Context, request: Request, body: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    if not body.group_id:
        return _refused(request, body, ErrorCode.INVALID_GROUP_ID)
    partition = context.groups.partition_for(body.group_id)
    if partition is None:
        return _refused(request, body, ErrorCode.NOT_COORDINATOR)
    said = await _verified(context, request, body, TopicPartition(GROUP_METADATA_TOPIC, partition))
    if isinstance(said, KafkaError):
        if said.code is ErrorCode.NETWORK_EXCEPTION:
            return _refused(request, body, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return _refused(request, body, client_error(said.code))
    answer = await context.groups.commit_in_transaction(request, body, said)
    assert isinstance(answer, TxnOffsetCommitResponse)
    return _told(request, answer)


async def _verified(
    context: Context, request: Request, body: TxnOffsetCommitRequest, key: TopicPartition
) -> "Verification":
    found = await context.txn_verification.verify(
        body.transactional_id,
        body.producer_id,
        body.producer_epoch,
        {key: _NO_SEQUENCE},
        TransactionSupport.of_txn_offset_commit(request.version),
    )
    return found.get(key)


def _name(context: Context, request: Request, topic: TxnOffsetCommitRequestTopic) -> str | None:
    """The name of a topic; None where its id is nobody's."""
    if request.version >= _FIRST_WITH_TOPIC_IDS:
        return context.image.topic_names.get(topic.topic_id)
    return topic.name


def _refused(
    request: Request, body: TxnOffsetCommitRequest, error: ErrorCode
) -> TxnOffsetCommitResponse:
    answer = error_response(body, request.version, error)
    assert isinstance(answer, TxnOffsetCommitResponse)
    return _told(request, answer)


def _told(request: Request, answer: TxnOffsetCommitResponse) -> TxnOffsetCommitResponse:
    """Producers before Kafka 2.3 do not know that a coordinator may be loading."""
    if request.version < _FIRST_THAT_KNOWS_LOADING:
        for topic in answer.topics:
            for partition in topic.partitions:
                if partition.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    partition.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return answer


def _topic(
    topic: TxnOffsetCommitRequestTopic,
    partitions: Iterable[TxnOffsetCommitRequestPartition],
    error: ErrorCode,
) -> TxnOffsetCommitResponseTopic:
    told = [TxnOffsetCommitResponsePartition(each.partition_index, error) for each in partitions]
    return TxnOffsetCommitResponseTopic(topic.name, topic.topic_id, told)


def _merged(
    answer: TxnOffsetCommitResponse, refused: Iterable[TxnOffsetCommitResponseTopic]
) -> TxnOffsetCommitResponse:
    """An answer with what was refused before; a topic is named once."""
    topics = {(topic.name, topic.topic_id): topic for topic in answer.topics}
    for topic in refused:
        found = topics.get((topic.name, topic.topic_id))
        if found is None:
            topics[topic.name, topic.topic_id] = topic
        else:
            found.partitions.extend(topic.partitions)
    answer.topics = list(topics.values())
    return answer
