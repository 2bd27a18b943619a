"""IncrementalAlterConfigs (44): versions 0 and 1: single settings are set, deleted, extended.

Topics, brokers, groups, metrics subscriptions, and the levels of this broker's loggers. What is
changed holds at once. Each resource of the request has its answer, in the request's order. Unlike
Kafka, which stores any name for a broker in case a plugin knows it, a setting that does not exist
is refused.
"""

from collections import Counter
from typing import TYPE_CHECKING

from msgspec.structs import replace

from penstock.broker.loggers import plan_levels
from penstock.broker.metadata.config_resources import (
    check_access,
    check_name,
    check_once,
    config_rules,
)
from penstock.broker.request import Request, Response
from penstock.controller.configs import ConfigResourceType, incremental_alter_configs
from penstock.core.errors import KafkaError
from penstock.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from penstock.security.acl import AclOperation

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


async def handle(
    broker: "Broker", request: Request, body: IncrementalAlterConfigsRequest
) -> Response:
    results = []
    wanted = []
    times = Counter((each.resource_type, each.resource_name) for each in body.resources)
    for resource in body.resources:
        who = resource.resource_type, resource.resource_name
        result = IncrementalAlterConfigsResourceResponse(0, None, *who)
        try:
            check_once(times, who)
            kind = check_access(broker, request.session, AclOperation.ALTER_CONFIGS, *who)
            check_name(broker, kind, who[1])
            if kind is ConfigResourceType.BROKER_LOGGER:
                _set_levels(resource, body.validate_only)
            else:
                wanted.append(resource)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    rules = config_rules(broker)
    reply = await broker.controller.run(
        lambda image: incremental_alter_configs(image, replace(body, resources=wanted), rules)
    )
    decided = {(each.resource_type, each.resource_name): each for each in reply.responses}
    return IncrementalAlterConfigsResponse(
        responses=[decided.get((each.resource_type, each.resource_name), each) for each in results]
    )


def _set_levels(resource: IncrementalAlterConfigsResource, validate_only: bool) -> None:
    changes = plan_levels(resource.configs)
    if not validate_only:
        for change in changes:
            change()
