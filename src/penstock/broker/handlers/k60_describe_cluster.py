"""DescribeCluster (60), versions 0 to 2: returns the brokers with endpoints of the listener."""

from dataclasses import dataclass

from penstock.broker.request import HandlerResult, Request
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.controller.image import ClusterImage
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

_BROKERS = 1
_CONTROLLERS = 2


@dataclass(frozen=True, slots=True)
class Context:
    image: ClusterImage
    authorizer: RequestAuthorizer


def handle(context: Context, request: Request, body: DescribeClusterRequest) -> HandlerResult:
    if body.endpoint_type == _CONTROLLERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="this is a broker, not a controller: send endpoint type 1",
        )
    if body.endpoint_type != _BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"endpoint type {body.endpoint_type} is unknown: send 1 for the brokers",
        )
    response = DescribeClusterResponse(
        cluster_id=context.image.cluster_id,
        controller_id=context.image.controller_id,
        brokers=[
            DescribeClusterBroker(node.broker_id, endpoint.host, endpoint.port, node.rack)
            for node, endpoint in context.image.broker_endpoints(request.session.listener)
        ],
    )
    if body.include_cluster_authorized_operations:
        response.cluster_authorized_operations = context.authorizer.cluster_operations(
            request.session
        )
    return response
