"""Metadata (3), versions 0 to 13: returns brokers and topics; creates unknown topics (E5)."""

from collections.abc import Container
from dataclasses import dataclass
from uuid import UUID

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.coordinator.group_coordinator import GroupCoordinator
from penstock.broker.metadata.reachability import leader_error, offline_replicas, reachable_brokers
from penstock.broker.metadata.topic_creator import TopicCreator
from penstock.broker.pacer import Pacer, Steps
from penstock.broker.request import HandlerResult, Request, Response
from penstock.broker.security.request_authorizer import CLUSTER_NAME, RequestAuthorizer
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import PartitionRecord
from penstock.controller.topic_names import check_topic_name
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.core.internal_topics import GROUP_METADATA_TOPIC, INTERNAL_TOPICS
from penstock.protocol.fields import ZERO_UUID
from penstock.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from penstock.security.acl import AclOperation, ResourceType

_FIRST_WITH_LISTENER_ERROR = 6
_FIRST_BY_TOPIC_ID = 12
_PARTITIONS_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class Context:
    pacer: Pacer
    config: BrokerConfig
    image: ClusterImage
    topic_creator: TopicCreator
    authorizer: RequestAuthorizer
    groups: GroupCoordinator


def handle(context: Context, request: Request, body: MetadataRequest) -> HandlerResult:
    return context.pacer.run(_steps(context, request, body))


def _steps(context: Context, request: Request, body: MetadataRequest) -> Steps[HandlerResult]:
    requested = body.topics
    topics: list[MetadataResponseTopic] = []
    if requested is None or (request.version == 0 and not requested):
        for name in list(context.image.topics):
            yield
            if context.authorizer.would_allow(
                request.session, AclOperation.DESCRIBE, ResourceType.TOPIC, name
            ):
                topics.append((yield from _topic(context, request, body, name)))
        return _response(context, request, body, topics)
    if request.version < _FIRST_BY_TOPIC_ID and any(map(_is_by_id, requested)):
        # Requests of versions 10 and 11 can have ids, but the responses need names.
        topics = [
            MetadataResponseTopic(ErrorCode.INVALID_REQUEST, topic.name or "", topic.topic_id)
            for topic in requested
        ]
        return _response(context, request, body, topics)
    missing: list[str] = []
    handled: set[tuple[int, str | None]] = set()
    for topic in requested:
        yield
        key = topic.topic_id.int, topic.name
        if key in handled:
            continue
        handled.add(key)
        if topic.name is None or _is_by_id(topic):
            topics.append((yield from _by_id(context, request, body, topic.topic_id)))
        elif not context.authorizer.allows(
            request.session, AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name
        ):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            topics.append(MetadataResponseTopic(code, topic.name))
        elif topic.name in context.image.topics:
            topics.append((yield from _topic(context, request, body, topic.name)))
        else:
            missing.append(topic.name)
    if not missing:
        return _response(context, request, body, topics)
    create = body.allow_auto_topic_creation and context.config.bool("auto.create.topics.enable")
    if not create:
        for name in missing:
            yield
            topics.append(_with_operations(context, request, body, _unknown(name)))
        return _response(context, request, body, topics)
    return _with_new_topics(context, request, body, topics, missing)


async def _with_new_topics(
    context: Context,
    request: Request,
    body: MetadataRequest,
    topics: list[MetadataResponseTopic],
    missing: list[str],
) -> Response:
    for name in dict.fromkeys(missing):
        if not _may_create(context, request, name):
            topics.append(MetadataResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name))
            continue
        try:
            if name == GROUP_METADATA_TOPIC:
                await context.groups.ensure_topic()
            elif name not in INTERNAL_TOPICS:
                await context.topic_creator.create(name)
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                failed = MetadataResponseTopic(error.code, name)
                topics.append(_with_operations(context, request, body, failed))
                continue
        topics.append(await context.pacer.complete(_topic(context, request, body, name)))
    return _response(context, request, body, topics)


def _may_create(context: Context, request: Request, name: str) -> bool:
    session = request.session
    return context.authorizer.would_allow(
        session, AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME
    ) or context.authorizer.allows(session, AclOperation.CREATE, ResourceType.TOPIC, name)


def _response(
    context: Context,
    request: Request,
    body: MetadataRequest,
    topics: list[MetadataResponseTopic],
) -> MetadataResponse:
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node.broker_id, endpoint.host, endpoint.port, node.rack)
            for node, endpoint in context.image.broker_endpoints(request.session.listener)
        ],
        cluster_id=context.image.cluster_id,
        controller_id=context.image.controller_id,
        topics=topics,
    )
    if body.include_cluster_authorized_operations:
        response.cluster_authorized_operations = context.authorizer.cluster_operations(
            request.session
        )
    return response


def _topic(
    context: Context, request: Request, body: MetadataRequest, name: str
) -> Steps[MetadataResponseTopic]:
    image = context.image
    record = image.topics.get(name)
    if record is None:
        return _with_operations(context, request, body, _unknown(name))
    reachable = reachable_brokers(image, request.session.listener)
    partitions = []
    for index, assignment in record.assignments.items():
        state = image.partitions.get(TopicPartition(name, index))
        if state is None:
            return _with_operations(
                context, request, body, _unknown(name)
            )  # it was deleted during a pause
        partitions.append(_partition(context, request, reachable, state, assignment.replicas))
        if not len(partitions) % _PARTITIONS_AT_ONCE:
            yield
    topic = MetadataResponseTopic(0, name, record.topic_id, name in INTERNAL_TOPICS, partitions)
    return _with_operations(context, request, body, topic)


def _with_operations(
    context: Context, request: Request, body: MetadataRequest, topic: MetadataResponseTopic
) -> MetadataResponseTopic:
    """Adds the authorized operations, if asked for, of a topic that the client may describe."""
    if body.include_topic_authorized_operations and topic.name is not None:
        topic.topic_authorized_operations = context.authorizer.authorized_operations(
            request.session, ResourceType.TOPIC, topic.name
        )
    return topic


def _partition(
    context: Context,
    request: Request,
    reachable: Container[int],
    record: PartitionRecord,
    replicas: tuple[int, ...],
) -> MetadataResponsePartition:
    code = ErrorCode.NONE
    if record.leader not in reachable:
        code = leader_error(context.image, record.leader)
        if request.version < _FIRST_WITH_LISTENER_ERROR:
            code = ErrorCode.LEADER_NOT_AVAILABLE
    return MetadataResponsePartition(
        code,
        record.partition,
        -1 if code else record.leader,
        record.leader_epoch,
        list(replicas),
        list(record.isr),
        offline_replicas(context.image, record.key, replicas, reachable),
    )


def _by_id(
    context: Context, request: Request, body: MetadataRequest, topic_id: UUID
) -> Steps[MetadataResponseTopic]:
    name = context.image.topic_names.get(topic_id)
    if name is None:
        return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
    if not context.authorizer.allows(
        request.session, AclOperation.DESCRIBE, ResourceType.TOPIC, name
    ):
        # The client must not learn the name.
        return MetadataResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, topic_id)
    return (yield from _topic(context, request, body, name))


def _is_by_id(topic: MetadataRequestTopic) -> bool:
    return topic.name is None or topic.topic_id != ZERO_UUID


def _unknown(name: str) -> MetadataResponseTopic:
    try:
        check_topic_name(name)
    except KafkaError as error:
        return MetadataResponseTopic(error.code, name)
    return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
