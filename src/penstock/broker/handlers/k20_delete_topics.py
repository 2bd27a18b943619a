"""DeleteTopics (20), versions 0 to 6: deletes topics by name or id (`delete.topic.enable`)."""

from dataclasses import dataclass

from msgspec.structs import replace

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.metadata.controller_host import ControllerHost
from penstock.broker.metadata.controller_queue import throttle_ms
from penstock.broker.pacer import Pacer
from penstock.broker.replica.replica_manager import ReplicaManager
from penstock.broker.request import Request, Response
from penstock.broker.security.client_quota_manager import ClientQuotaManager
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.controller.image import ClusterImage
from penstock.controller.topic_deletion import delete_topics, unknown_topic_id_error
from penstock.controller.topic_names import unknown_topic_error
from penstock.core.clock import Clock
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.fields import ZERO_UUID
from penstock.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from penstock.security.acl import AclOperation, ResourceType
from penstock.security.quotas import MutationQuota

_FIRST_WITH_DELETION_DISABLED = 3
_FIRST_WITH_STRICT_QUOTA = 5


@dataclass(frozen=True, slots=True)
class Context:
    pacer: Pacer
    config: BrokerConfig
    clock: Clock
    image: ClusterImage
    controller: ControllerHost
    replicas: ReplicaManager
    authorizer: RequestAuthorizer
    quotas: ClientQuotaManager


async def handle(context: Context, request: Request, body: DeleteTopicsRequest) -> Response:
    topics = body.topics or [DeleteTopicState(name) for name in body.topic_names]
    quota = context.quotas.mutation_quota(request, _FIRST_WITH_STRICT_QUOTA)
    allowed: list[DeleteTopicState] = []
    errors: list[DeletableTopicResult] = []
    async for topic in context.pacer.each(topics):
        try:
            _check(context, request, topic, quota)
            allowed.append(topic)
        except KafkaError as error:
            name = _visible_name(context, request, topic)
            errors.append(DeletableTopicResult(name, topic.topic_id, error.code, error.message))
    try:
        response = await context.controller.run(
            lambda image: delete_topics(image, replace(body, topics=allowed, topic_names=[])),
            request,
        )
    except KafkaError as error:
        return DeleteTopicsResponse(
            throttle_ms(error),
            responses=[
                DeletableTopicResult(topic.name, topic.topic_id, error.code, error.message)
                for topic in topics
            ],
        )
    await context.replicas.wait_for_deletions(
        {result.name for result in response.responses if result.name is not None}
    )
    return DeleteTopicsResponse(
        quota.throttle_ms(context.clock.monotonic_ms()), [*response.responses, *errors]
    )


def _check(
    context: Context, request: Request, topic: DeleteTopicState, quota: MutationQuota
) -> None:
    """Raises KafkaError if the client may not delete the topic, or deletion is disabled."""
    if not context.config.bool("delete.topic.enable"):
        knows_the_error = request.version >= _FIRST_WITH_DELETION_DISABLED
        raise KafkaError(
            ErrorCode.TOPIC_DELETION_DISABLED if knows_the_error else ErrorCode.INVALID_REQUEST,
            "topics cannot be deleted here",
            remedy="set delete.topic.enable=true in the broker's settings",
        )
    name = topic.name
    if name is None:
        name = context.image.topic_names.get(topic.topic_id)
        if name is None:
            if topic.topic_id == ZERO_UUID:
                return  # the controller refuses it
            # Not left to the controller: it may know a topic whose rights were not checked here.
            raise unknown_topic_id_error(topic.topic_id)
        if not context.authorizer.allows(
            request.session, AclOperation.DESCRIBE, ResourceType.TOPIC, name
        ):
            # The client must not learn whether the id exists.
            raise KafkaError(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED, "the client may not see this topic"
            )
    elif topic.topic_id != ZERO_UUID:
        return
    elif name not in context.image.topics and _may_only_describe(context, request, name):
        raise unknown_topic_error(name)
    context.authorizer.require(request.session, AclOperation.DELETE, ResourceType.TOPIC, name)
    record = context.image.topics.get(name)
    if record is not None:
        quota.record(len(record.assignments), context.clock.monotonic_ms())


def _visible_name(context: Context, request: Request, topic: DeleteTopicState) -> str | None:
    """Returns the name that the client has sent, or that of the id if it may describe the topic."""
    name = topic.name
    if name is None and (known := context.image.topic_names.get(topic.topic_id)) is not None:
        operation, resource = AclOperation.DESCRIBE, ResourceType.TOPIC
        if context.authorizer.would_allow(request.session, operation, resource, known):
            name = known
    return name


def _may_only_describe(context: Context, request: Request, name: str) -> bool:
    may_describe, may_delete = (
        context.authorizer.would_allow(request.session, operation, ResourceType.TOPIC, name)
        for operation in (AclOperation.DESCRIBE, AclOperation.DELETE)
    )
    return may_describe and not may_delete
