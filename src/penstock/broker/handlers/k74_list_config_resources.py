"""ListConfigResources (74), versions 0 and 1: returns the resources that have settings.

Version 0 lists metrics subscriptions. Version 1 lists the requested types, or all: topics, brokers,
their loggers, metrics subscriptions, and the groups with settings of their own (KIP-1142).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.broker.request import HandlerResult, Request
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.controller.image import ClusterImage
from penstock.core.errors import ErrorCode
from penstock.protocol.enums import ConfigResourceType
from penstock.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from penstock.security.acl import AclOperation

_FIRST_WITH_TYPES = 1


@dataclass(frozen=True, slots=True)
class Context:
    image: ClusterImage
    authorizer: RequestAuthorizer


def handle(context: Context, request: Request, body: ListConfigResourcesRequest) -> HandlerResult:
    context.authorizer.require(request.session, AclOperation.DESCRIBE_CONFIGS)
    if request.version < _FIRST_WITH_TYPES:
        types = [ConfigResourceType.CLIENT_METRICS]
    else:
        types = list(map(ConfigResourceType.from_code, dict.fromkeys(body.resource_types)))
        if ConfigResourceType.UNKNOWN in types:
            return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(name, kind)
            for kind in types or filter(None, ConfigResourceType)
            for name in _names(context, kind)
        ]
    )


def _names(context: Context, kind: ConfigResourceType) -> Iterable[str]:
    image = context.image
    match kind:
        case ConfigResourceType.TOPIC:
            return list(image.topics)
        case ConfigResourceType.BROKER | ConfigResourceType.BROKER_LOGGER:
            return [str(broker_id) for broker_id in image.brokers]
        case ConfigResourceType.CLIENT_METRICS:
            entity_kind = "client-metrics"
        case ConfigResourceType.GROUP:
            entity_kind = "groups"
    return [key.entity[0][1] for key in image.configs if key.entity[0][0] == entity_kind]
