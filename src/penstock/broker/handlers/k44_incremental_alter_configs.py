"""IncrementalAlterConfigs (44), versions 0 and 1: sets, deletes and extends single settings.

Resources are topics, brokers, groups, metrics subscriptions, and the levels of this broker's
loggers. Changes take effect at once. The response has a result for each resource, in the order of
the request. Kafka stores any name for a broker, in case a plugin knows it; here a setting that does
not exist is refused.
"""

from dataclasses import dataclass

from msgspec.structs import replace

from penstock.broker.loggers import plan_levels
from penstock.broker.metadata.config_resources import (
    ConfigContext,
    check_alterations,
    config_rules,
)
from penstock.broker.metadata.controller_host import ControllerHost
from penstock.broker.request import Request, Response
from penstock.controller.configs import incremental_alter_configs
from penstock.core.errors import KafkaError, drop_traceback
from penstock.protocol.enums import ConfigResourceType
from penstock.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)


@dataclass(frozen=True, slots=True)
class Context(ConfigContext):
    controller: ControllerHost


async def handle(
    context: Context, request: Request, body: IncrementalAlterConfigsRequest
) -> Response:
    allowed, errors = await check_alterations(context, request.session, body.resources)
    results = {}
    stored = []
    async for kind, resource in context.pacer.each(allowed):
        if kind is not ConfigResourceType.BROKER_LOGGER:
            stored.append(resource)
            continue
        key = resource.resource_type, resource.resource_name
        try:
            _set_levels(resource, body.validate_only)
            results[key] = IncrementalAlterConfigsResourceResponse(0, None, *key)
        except KafkaError as failure:
            errors[key] = drop_traceback(failure)
    altered = replace(body, resources=stored)
    rules = config_rules(context)
    try:
        response = await context.controller.write(
            lambda image: incremental_alter_configs(image, altered, rules), request
        )
    except KafkaError as failure:
        failed = [(resource.resource_type, resource.resource_name) for resource in stored]
        errors.update(dict.fromkeys(failed, drop_traceback(failure)))
        response = IncrementalAlterConfigsResponse()
    for result in response.responses:
        results[result.resource_type, result.resource_name] = result
    async for key, error in context.pacer.each(errors.items()):
        results[key] = IncrementalAlterConfigsResourceResponse(error.code, error.message, *key)
    return IncrementalAlterConfigsResponse(
        responses=[
            results[resource.resource_type, resource.resource_name]
            async for resource in context.pacer.each(body.resources)
        ]
    )


def _set_levels(resource: IncrementalAlterConfigsResource, validate_only: bool) -> None:
    changes = plan_levels(resource.configs)
    if not validate_only:
        for change in changes:
            change()
