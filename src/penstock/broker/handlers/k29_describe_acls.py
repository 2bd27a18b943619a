"""DescribeAcls (29), versions 0 to 3: returns the ACLs that match a filter (X3)."""

from dataclasses import dataclass

from penstock.broker.request import HandlerResult, Request
from penstock.broker.security.acls import acl_filter, authorizer_for
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from penstock.security.acl import (
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)


@dataclass(frozen=True, slots=True)
class Context:
    authorizer: RequestAuthorizer


def handle(context: Context, request: Request, body: DescribeAclsRequest) -> HandlerResult:
    authorizer = authorizer_for(context.authorizer, request.session, AclOperation.DESCRIBE)
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
            for (resource_type, pattern_type, name), entries in authorizer.acls(acl_filter(body))
        ],
    )
