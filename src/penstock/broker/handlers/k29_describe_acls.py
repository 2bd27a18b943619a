"""DescribeAcls (29): versions 0 to 3: the access rules that a filter finds (X3)."""

from typing import TYPE_CHECKING

from penstock.broker.request import HandlerResult, Request
from penstock.broker.security.acls import authorizer_for
from penstock.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from penstock.security.acl import (
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


def handle(broker: "Broker", request: Request, body: DescribeAclsRequest) -> HandlerResult:
    authorizer = authorizer_for(broker, request.session, AclOperation.DESCRIBE)
    wanted = AclFilter.of_codes(
        body.resource_type_filter,
        body.resource_name_filter,
        body.pattern_type_filter,
        body.principal_filter,
        body.host_filter,
        body.operation,
        body.permission_type,
    )
    return DescribeAclsResponse(
        resources=[
            DescribeAclsResource(
                ResourceType[resource_type],
                name,
                PatternType[pattern_type],
                [
                    AclDescription(
                        principal, host, AclOperation[operation], AclPermission[permission]
                    )
                    for principal, host, operation, permission in entries
                ],
            )
            for (resource_type, pattern_type, name), entries in authorizer.acls(wanted)
        ],
    )
