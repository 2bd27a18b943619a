"""AlterConfigs (33), versions 0 to 2: replaces all settings of a resource.

Resources are topics, brokers, groups and metrics subscriptions; loggers need
IncrementalAlterConfigs. A request that names a resource twice is refused; Kafka intends that too,
but never responds to it.
"""

from dataclasses import dataclass

from msgspec.structs import replace

from penstock.broker.metadata.config_resources import (
    ConfigContext,
    check_alterations,
    config_rules,
)
from penstock.broker.metadata.controller_host import ControllerHost
from penstock.broker.request import Request, Response
from penstock.controller.configs import alter_configs
from penstock.core.errors import KafkaError, drop_traceback
from penstock.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


@dataclass(frozen=True, slots=True)
class Context(ConfigContext):
    controller: ControllerHost


async def handle(context: Context, request: Request, body: AlterConfigsRequest) -> Response:
    allowed, errors = await check_alterations(context, request.session, body.resources)
    altered = replace(body, resources=[resource for _, resource in allowed])
    rules = config_rules(context)
    try:
        response = await context.controller.write(
            lambda image: alter_configs(image, altered, rules), request
        )
    except KafkaError as failure:
        failed = [(item.resource_type, item.resource_name) for item in altered.resources]
        errors.update(dict.fromkeys(failed, drop_traceback(failure)))
        response = AlterConfigsResponse()
    results = {
        (result.resource_type, result.resource_name): result for result in response.responses
    }
    async for key, error in context.pacer.each(errors.items()):
        results[key] = AlterConfigsResourceResponse(error.code, error.message, *key)
    return AlterConfigsResponse(
        responses=[
            results[resource.resource_type, resource.resource_name]
            async for resource in context.pacer.each(body.resources)
        ]
    )
