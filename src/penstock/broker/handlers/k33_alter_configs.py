"""AlterConfigs (33): versions 0 to 2: all settings of a resource are replaced.

Topics, brokers, groups and metrics subscriptions; loggers are for IncrementalAlterConfigs. Kafka
never answers a request that names a resource twice, though it means to refuse it as we do.
"""

from collections import Counter
from typing import TYPE_CHECKING

from msgspec.structs import replace

from penstock.broker.metadata.config_resources import (
    check_access,
    check_name,
    check_once,
    config_rules,
)
from penstock.broker.request import Request, Response
from penstock.controller.configs import alter_configs
from penstock.core.errors import KafkaError
from penstock.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from penstock.security.acl import AclOperation

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


async def handle(broker: "Broker", request: Request, body: AlterConfigsRequest) -> Response:
    results = []
    wanted = []
    times = Counter((each.resource_type, each.resource_name) for each in body.resources)
    for resource in body.resources:
        who = resource.resource_type, resource.resource_name
        result = AlterConfigsResourceResponse(0, None, *who)
        try:
            check_once(times, who)
            kind = check_access(broker, request.session, AclOperation.ALTER_CONFIGS, *who)
            check_name(broker, kind, who[1])
            wanted.append(resource)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    rules = config_rules(broker)
    reply = await broker.controller.run(
        lambda image: alter_configs(image, replace(body, resources=wanted), rules)
    )
    decided = {(each.resource_type, each.resource_name): each for each in reply.responses}
    return AlterConfigsResponse(
        responses=[decided.get((each.resource_type, each.resource_name), each) for each in results]
    )
