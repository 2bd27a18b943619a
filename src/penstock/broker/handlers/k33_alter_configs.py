"""AlterConfigs (33): versions 0 to 2: all settings of a resource are replaced.

Topics, brokers, groups and metrics subscriptions; loggers are for IncrementalAlterConfigs.
"""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from penstock.broker.config_resources import check_access, check_name, config_rules
from penstock.broker.request import Answer, Request
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


async def handle(broker: "Broker", request: Request, body: AlterConfigsRequest) -> Answer:
    refused = []
    wanted = []
    for resource in body.resources:
        who = resource.resource_type, resource.resource_name
        try:
            kind = check_access(broker, request.session, AclOperation.ALTER_CONFIGS, *who)
            check_name(broker, kind, who[1])
            wanted.append(resource)
        except KafkaError as error:
            refused.append(AlterConfigsResourceResponse(error.code, error.message, *who))
    rules = config_rules(broker)
    reply = await broker.controlling.run(
        lambda image: alter_configs(image, replace(body, resources=wanted), rules)
    )
    return AlterConfigsResponse(responses=[*reply.responses, *refused])
