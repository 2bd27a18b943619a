"""CreateTopics (19), versions 0 to 7: creates topics with their settings and replicas (R1, E1)."""

from dataclasses import dataclass

from msgspec.structs import replace

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.topic_config import describe_topic
from penstock.broker.metadata.controller_host import ControllerHost
from penstock.broker.metadata.controller_queue import throttle_ms
from penstock.broker.metadata.topic_creator import create_if_room
from penstock.broker.metadata.topic_rules import new_topic_rules
from penstock.broker.pacer import Pacer
from penstock.broker.request import Request, Response
from penstock.broker.security.client_quota_manager import ClientQuotaManager
from penstock.broker.security.request_authorizer import CLUSTER_NAME, RequestAuthorizer
from penstock.controller.topics import create_topics
from penstock.core.clock import Clock
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.security.acl import AclOperation, ResourceType
from penstock.security.quotas import MutationQuota

_FIRST_WITH_CONFIGS = 5
_FIRST_WITH_STRICT_QUOTA = 6


@dataclass(frozen=True, slots=True)
class Context:
    pacer: Pacer
    config: BrokerConfig
    clock: Clock
    controller: ControllerHost
    authorizer: RequestAuthorizer
    quotas: ClientQuotaManager


async def handle(context: Context, request: Request, body: CreateTopicsRequest) -> Response:
    quota = context.quotas.mutation_quota(request, _FIRST_WITH_STRICT_QUOTA)
    may_create_all = context.authorizer.would_allow(
        request.session, AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME
    )
    errors: dict[str, CreatableTopicResult] = {}
    allowed = []
    async for topic in context.pacer.each(body.topics):
        try:
            if not may_create_all:
                context.authorizer.require(
                    request.session, AclOperation.CREATE, ResourceType.TOPIC, topic.name
                )
            if not body.validate_only:
                _count(context, quota, topic)
            allowed.append(topic)
        except KafkaError as error:
            errors[topic.name] = CreatableTopicResult(
                topic.name, error_code=error.code, error_message=error.message
            )
    rules = new_topic_rules(context.config)
    try:
        response, storage_errors = await create_if_room(
            context.controller,
            request,
            allowed,
            lambda image, topics: create_topics(image, replace(body, topics=topics), rules),
        )
    except KafkaError as error:
        return CreateTopicsResponse(
            throttle_ms(error),
            topics=[
                CreatableTopicResult(topic.name, error_code=error.code, error_message=error.message)
                for topic in body.topics
            ],
        )
    for name, storage_error in storage_errors.items():
        errors[name] = CreatableTopicResult(
            name, error_code=storage_error.code, error_message=storage_error.message
        )
    if request.version >= _FIRST_WITH_CONFIGS:
        configs = {topic.name: topic for topic in allowed}
        async for result in context.pacer.each(response.topics):
            if not result.error_code:
                _add_configs(context, request, result, configs[result.name])
    now_ms = context.clock.monotonic_ms()
    return CreateTopicsResponse(
        quota.throttle_ms(now_ms),
        [result for result in response.topics if result.name not in errors] + [*errors.values()],
    )


def _count(context: Context, quota: MutationQuota, topic: CreatableTopic) -> None:
    partitions = len(topic.assignments) or topic.num_partitions
    if partitions < 0:
        partitions = context.config.int("num.partitions")
    quota.record(partitions, context.clock.monotonic_ms())


def _add_configs(
    context: Context, request: Request, result: CreatableTopicResult, topic: CreatableTopic
) -> None:
    """Adds the settings of the new topic, if the client may describe them."""
    if not context.authorizer.would_allow(
        request.session, AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name
    ):
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        result.num_partitions = result.replication_factor = -1
        result.configs = None
        return
    values = {config.name: config.value for config in topic.configs if config.value is not None}
    result.configs = [
        CreatableTopicConfigs(
            entry.name, entry.value, entry.read_only, entry.source, entry.sensitive
        )
        for entry in describe_topic(context.config, values)
    ]
