"""CreatePartitions (37), versions 0 to 3: adds partitions to topics (M1)."""

from dataclasses import dataclass

from msgspec.structs import replace

from penstock.broker.metadata.controller_host import ControllerHost
from penstock.broker.metadata.controller_queue import throttle_ms
from penstock.broker.metadata.topic_creator import create_if_room
from penstock.broker.metadata.topic_rules import random_start
from penstock.broker.pacer import Pacer
from penstock.broker.request import Request, Response
from penstock.broker.security.client_quota_manager import ClientQuotaManager
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.controller.image import ClusterImage
from penstock.controller.topics import create_partitions
from penstock.core.clock import Clock
from penstock.core.errors import KafkaError
from penstock.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from penstock.security.acl import AclOperation, ResourceType
from penstock.security.quotas import MutationQuota

_FIRST_WITH_STRICT_QUOTA = 3


@dataclass(frozen=True, slots=True)
class Context:
    pacer: Pacer
    clock: Clock
    image: ClusterImage
    controller: ControllerHost
    authorizer: RequestAuthorizer
    quotas: ClientQuotaManager


async def handle(context: Context, request: Request, body: CreatePartitionsRequest) -> Response:
    quota = context.quotas.mutation_quota(request, _FIRST_WITH_STRICT_QUOTA)
    allowed = []
    errors = []
    async for topic in context.pacer.each(body.topics):
        try:
            context.authorizer.require(
                request.session, AclOperation.ALTER, ResourceType.TOPIC, topic.name
            )
            if not body.validate_only:
                _count(context, quota, topic)
            allowed.append(topic)
        except KafkaError as error:
            errors.append(CreatePartitionsTopicResult(topic.name, error.code, error.message))
    start = random_start()
    try:
        response, storage_errors = await create_if_room(
            context.controller,
            request,
            allowed,
            lambda image, topics: create_partitions(image, replace(body, topics=topics), start),
        )
    except KafkaError as error:
        return CreatePartitionsResponse(
            throttle_ms(error),
            results=[
                CreatePartitionsTopicResult(topic.name, error.code, error.message)
                for topic in body.topics
            ],
        )
    errors += [
        CreatePartitionsTopicResult(name, error.code, error.message)
        for name, error in storage_errors.items()
    ]
    return CreatePartitionsResponse(
        quota.throttle_ms(context.clock.monotonic_ms()), [*response.results, *errors]
    )


def _count(context: Context, quota: MutationQuota, topic: CreatePartitionsTopic) -> None:
    record = context.image.topics.get(topic.name)
    more = 0 if record is None else topic.count - len(record.assignments)
    if more > 0:
        quota.record(more, context.clock.monotonic_ms())
