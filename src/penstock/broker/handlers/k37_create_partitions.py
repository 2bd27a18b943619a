"""CreatePartitions (37): versions 0 to 3: topics get more partitions, never fewer (M1)."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from penstock.broker.request import Request, Response
from penstock.controller.topics import create_partitions
from penstock.core.errors import KafkaError
from penstock.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from penstock.security.acl import AclOperation, ResourceType
from penstock.security.quotas import MutationQuota

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

_FIRST_WITH_STRICT_QUOTA = 3


async def handle(broker: "Broker", request: Request, body: CreatePartitionsRequest) -> Response:
    quota = broker.quotas.mutations(request, _FIRST_WITH_STRICT_QUOTA)
    allowed = []
    refused = []
    for topic in body.topics:
        try:
            broker.authorizer.require(
                request.session, AclOperation.ALTER, ResourceType.TOPIC, topic.name
            )
            if not body.validate_only:
                _count(broker, quota, topic)
            allowed.append(topic)
        except KafkaError as error:
            refused.append(CreatePartitionsTopicResult(topic.name, error.code, error.message))
    start = broker.new_topic_rules().start
    reply = await broker.controller.run(
        lambda image: create_partitions(image, replace(body, topics=allowed), start)
    )
    return CreatePartitionsResponse(
        quota.throttle_ms(broker.clock.monotonic_ms()), [*reply.results, *refused]
    )


def _count(broker: "Broker", quota: MutationQuota, topic: CreatePartitionsTopic) -> None:
    record = broker.image.topics.get(topic.name)
    more = 0 if record is None else topic.count - len(record.assignments)
    if more > 0:
        quota.record(more, broker.clock.monotonic_ms())
