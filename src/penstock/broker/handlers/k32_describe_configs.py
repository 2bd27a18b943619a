"""DescribeConfigs (32), versions 0 to 4: returns settings, their values and their sources.

Resources are topics, groups, metrics subscriptions, this broker, its loggers, and the defaults of
all brokers (a broker without a name). Passwords are never returned. The settings of another broker
are refused: the request must be sent to that broker.
"""

from penstock.broker.config.entry import ConfigEntry
from penstock.broker.metadata.config_resources import ConfigContext as Context
from penstock.broker.metadata.config_resources import check_access, describe
from penstock.broker.pacer import Steps
from penstock.broker.request import HandlerResult, Request, Response
from penstock.core.errors import KafkaError
from penstock.protocol.enums import ConfigSource
from penstock.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from penstock.security.acl import AclOperation


def handle(context: Context, request: Request, body: DescribeConfigsRequest) -> HandlerResult:
    return context.pacer.run(_steps(context, request, body))


def _steps(context: Context, request: Request, body: DescribeConfigsRequest) -> Steps[Response]:
    results = []
    for resource in body.resources:
        yield
        results.append(_resource(context, request, body, resource))
    return DescribeConfigsResponse(results=results)


def _resource(
    context: Context,
    request: Request,
    body: DescribeConfigsRequest,
    resource: DescribeConfigsResource,
) -> DescribeConfigsResult:
    key = resource.resource_type, resource.resource_name
    try:
        kind = check_access(context, request.session, AclOperation.DESCRIBE_CONFIGS, *key)
        entries = describe(context, kind, key[1], resource.configuration_keys or None)
    except KafkaError as error:
        return DescribeConfigsResult(error.code, error.message, *key)
    return DescribeConfigsResult(
        0, "", *key, configs=[_entry(request.version, body, entry) for entry in entries]
    )


def _entry(
    version: int, body: DescribeConfigsRequest, entry: ConfigEntry
) -> DescribeConfigsResourceResult:
    result = DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        config_type=entry.type,
        documentation=entry.doc if body.include_documentation else None,
    )
    if version == 0:
        result.is_default = entry.source is ConfigSource.DEFAULT_CONFIG
    if body.include_synonyms:
        result.synonyms = [DescribeConfigsSynonym(*synonym) for synonym in entry.synonyms]
    return result
