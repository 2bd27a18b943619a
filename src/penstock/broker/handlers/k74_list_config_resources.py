"""ListConfigResources (74): versions 0 and 1: what has settings; version 0: metrics subscriptions.

Version 1 lists the types that are asked for, or all: topics, brokers, their loggers, metrics
subscriptions, and the groups that have settings of their own (KIP-1142).
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.broker.request import HandlerResult, Request
from penstock.controller.configs import ConfigResourceType
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from penstock.security.acl import AclOperation

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

_FIRST_WITH_TYPES = 1


def handle(broker: "Broker", request: Request, body: ListConfigResourcesRequest) -> HandlerResult:
    broker.authorizer.require(request.session, AclOperation.DESCRIBE_CONFIGS)
    if request.version < _FIRST_WITH_TYPES:
        types = [ConfigResourceType.CLIENT_METRICS]
    else:
        try:
            types = [ConfigResourceType(number) for number in dict.fromkeys(body.resource_types)]
        except ValueError:
            return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(name, kind)
            for kind in types or list(ConfigResourceType)
            for name in _names(broker, kind)
        ]
    )


def _names(broker: "Broker", kind: ConfigResourceType) -> Iterable[str]:
    image = broker.image
    match kind:
        case ConfigResourceType.TOPIC:
            return list(image.topics)
        case ConfigResourceType.BROKER | ConfigResourceType.BROKER_LOGGER:
            return [str(broker_id) for broker_id in image.brokers]
        case ConfigResourceType.CLIENT_METRICS:
            wanted = "client-metrics"
        case ConfigResourceType.GROUP:
            wanted = "groups"
    return [key.entity[0][1] for key in image.configs if key.entity[0][0] == wanted]
