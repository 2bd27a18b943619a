"""DescribeConfigs (32): versions 0 to 4: settings, their values and where these come from.

Topics, groups, metrics subscriptions, this broker, its loggers, and (a broker without a name) what
is set for all brokers. Passwords are never told. The settings of another broker are refused: it
must be asked itself.
"""

from penstock.broker.config.entry import ConfigEntry
from penstock.broker.metadata.config_resources import ConfigContext as Context
from penstock.broker.metadata.config_resources import check_access, describe
from penstock.broker.request import HandlerResult, Request
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
    return DescribeConfigsResponse(
        results=[_resource(context, request, body, each) for each in body.resources]
    )


def _resource(
    context: Context,
    request: Request,
    body: DescribeConfigsRequest,
    resource: DescribeConfigsResource,
) -> DescribeConfigsResult:
    who = resource.resource_type, resource.resource_name
    try:
        kind = check_access(context, request.session, AclOperation.DESCRIBE_CONFIGS, *who)
        entries = describe(context, kind, who[1], resource.configuration_keys or None)
    except KafkaError as error:
        return DescribeConfigsResult(error.code, error.message, *who)
    return DescribeConfigsResult(
        0, "", *who, configs=[_entry(request.version, body, entry) for entry in entries]
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
