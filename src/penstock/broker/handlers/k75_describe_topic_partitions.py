"""DescribeTopicPartitions (75), version 0: returns topics in pages of a number of partitions.

Eligible leader replicas (KIP-966) are those that the controller has stored; null if the store could
not be read. The last known ones are not kept: there are none.
"""

from collections.abc import Coroutine
from dataclasses import dataclass
from itertools import islice
from typing import Any

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.metadata.eligible_leader_replicas import EligibleLeaderReplicas
from penstock.broker.metadata.reachability import leader_error, offline_replicas, reachable_brokers
from penstock.broker.pacer import Pacer, Steps
from penstock.broker.request import HandlerResult, Request, Response
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.controller.image import ClusterImage
from penstock.controller.topic_names import check_topic_name
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.core.internal_topics import INTERNAL_TOPICS
from penstock.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from penstock.security.acl import AclOperation, ResourceType


@dataclass(frozen=True, slots=True)
class Context:
    pacer: Pacer
    config: BrokerConfig
    image: ClusterImage
    eligible_leader_replicas: EligibleLeaderReplicas
    authorizer: RequestAuthorizer


def handle(
    context: Context, request: Request, body: DescribeTopicPartitionsRequest
) -> HandlerResult:
    return context.pacer.run(_steps(context, request, body))


def _steps(
    context: Context, request: Request, body: DescribeTopicPartitionsRequest
) -> Steps[Response | Coroutine[Any, Any, Response]]:
    cursor = body.cursor
    named = {topic.name for topic in body.topics}
    if cursor is not None and (
        cursor.partition_index < 0 or (named and cursor.topic_name not in named)
    ):
        code = ErrorCode.INVALID_REQUEST
        return DescribeTopicPartitionsResponse(
            topics=[DescribeTopicPartitionsResponseTopic(code, topic.name) for topic in body.topics]
        )
    names = sorted(named or context.image.topics)
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
    limit = context.config.int("max.request.partition.size.limit")
    room = max(1, min(body.response_partition_limit, limit))
    response = DescribeTopicPartitionsResponse()
    allows = context.authorizer.allows if named else context.authorizer.would_allow
    for name in names:
        yield
        if not allows(request.session, AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            if named:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                response.topics.append(DescribeTopicPartitionsResponseTopic(code, name))
            continue
        if name not in context.image.topics:
            response.topics.append(_unknown(context, request, name))
            continue
        first = 0
        if cursor is not None and cursor.topic_name == name:
            first = cursor.partition_index
        if room == 0:
            response.next_cursor = DescribeTopicPartitionsResponseCursor(name, first)
            break
        topic = _topic(context, request, name, first, room)
        response.topics.append(topic)
        room -= len(topic.partitions)
        after = first + len(topic.partitions)
        if after < len(context.image.topics[name].assignments):
            response.next_cursor = DescribeTopicPartitionsResponseCursor(name, after)
            break
    reduced = _reduced_partitions(context, response)
    return _add_eligible_leader_replicas(context, response, reduced) if reduced else response


def _reduced_partitions(
    context: Context, response: DescribeTopicPartitionsResponse
) -> dict[TopicPartition, DescribeTopicPartitionsResponsePartition]:
    """Returns the partitions that may have eligible leader replicas."""
    may_have = context.eligible_leader_replicas.may_have
    return {
        TopicPartition(topic.name, partition.partition_index): partition
        for topic in response.topics
        if topic.name is not None
        for partition in topic.partitions
        if may_have(topic.name, len(partition.isr_nodes), len(partition.replica_nodes))
    }


async def _add_eligible_leader_replicas(
    context: Context,
    response: DescribeTopicPartitionsResponse,
    partitions: dict[TopicPartition, DescribeTopicPartitionsResponsePartition],
) -> Response:
    known = await context.eligible_leader_replicas.read(partitions)
    for key, partition in partitions.items():
        replicas = known.get(key)
        partition.eligible_leader_replicas = None if replicas is None else list(replicas)
    return response


def _unknown(context: Context, request: Request, name: str) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_topic_name(name)
    except KafkaError as error:
        code = error.code
    return DescribeTopicPartitionsResponseTopic(
        code,
        name,
        topic_authorized_operations=context.authorizer.authorized_operations(
            request.session, ResourceType.TOPIC, name
        ),
    )


def _topic(
    context: Context, request: Request, name: str, first: int, room: int
) -> DescribeTopicPartitionsResponseTopic:
    record = context.image.topics[name]
    reachable = reachable_brokers(context.image, request.session.listener)
    partitions = []
    for index, assignment in islice(record.assignments.items(), first, first + room):
        state = context.image.partitions[TopicPartition(name, index)]
        leads = state.leader in reachable
        partitions.append(
            DescribeTopicPartitionsResponsePartition(
                ErrorCode.NONE if leads else leader_error(context.image, state.leader),
                index,
                state.leader if leads else -1,
                state.leader_epoch,
                list(assignment.replicas),
                list(state.isr),
                [],
                [],
                offline_replicas(context.image, state.key, assignment.replicas, reachable),
            )
        )
    return DescribeTopicPartitionsResponseTopic(
        0,
        name,
        record.topic_id,
        name in INTERNAL_TOPICS,
        partitions,
        context.authorizer.authorized_operations(request.session, ResourceType.TOPIC, name),
    )
