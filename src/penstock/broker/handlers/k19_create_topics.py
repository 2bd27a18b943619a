"""CreateTopics (19): versions 0 to 7: topics with their settings and replicas (R1, E1)."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from penstock.broker.config.topic_config import describe_topic
from penstock.broker.request import Request, Response
from penstock.broker.security.request_authorizer import CLUSTER_NAME
from penstock.controller.topics import create_topics
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

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

_FIRST_WITH_CONFIGS = 5
_FIRST_WITH_STRICT_QUOTA = 6


async def handle(broker: "Broker", request: Request, body: CreateTopicsRequest) -> Response:
    quota = broker.quotas.mutations(request, _FIRST_WITH_STRICT_QUOTA)
    may_create_all = broker.authorizer.allows(
        request.session, AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME
    )
    refused: dict[str, CreatableTopicResult] = {}
    wanted = []
    for topic in body.topics:
        try:
            if not may_create_all:
                broker.authorizer.require(
                    request.session, AclOperation.CREATE, ResourceType.TOPIC, topic.name
                )
            if not body.validate_only:
                _count(broker, quota, topic)
            wanted.append(topic)
        except KafkaError as error:
            refused[topic.name] = CreatableTopicResult(
                topic.name, error_code=error.code, error_message=error.message
            )
    rules = broker.new_topic_rules()
    reply = await broker.controller.run(
        lambda image: create_topics(image, replace(body, topics=wanted), rules)
    )
    if request.version >= _FIRST_WITH_CONFIGS:
        configs = {topic.name: topic for topic in wanted}
        for result in reply.topics:
            if not result.error_code:
                _add_configs(broker, request, result, configs[result.name])
    now_ms = broker.clock.monotonic_ms()
    return CreateTopicsResponse(
        quota.throttle_ms(now_ms),
        [result for result in reply.topics if result.name not in refused] + [*refused.values()],
    )


def _count(broker: "Broker", quota: MutationQuota, topic: CreatableTopic) -> None:
    partitions = len(topic.assignments) or topic.num_partitions
    if partitions < 0:
        partitions = broker.config.int("num.partitions")
    quota.record(partitions, broker.clock.monotonic_ms())


def _add_configs(
    broker: "Broker", request: Request, result: CreatableTopicResult, topic: CreatableTopic
) -> None:
    """The settings of the new topic, for who may see them."""
    if not broker.authorizer.allows(
        request.session, AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name
    ):
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        result.num_partitions = result.replication_factor = -1
        result.configs = None
        return
    values = {each.name: each.value for each in topic.configs if each.value is not None}
    result.configs = [
        CreatableTopicConfigs(
            entry.name, entry.value, entry.read_only, entry.source, entry.sensitive
        )
        for entry in describe_topic(broker.config, values)
    ]
