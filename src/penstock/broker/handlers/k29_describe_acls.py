"""DescribeAcls (29), versions 0 to 3: returns the ACLs that match a filter (X3)."""

from dataclasses import dataclass

from penstock.broker.pacer import Pacer, Steps
from penstock.broker.request import HandlerResult, Request, Response
from penstock.broker.security.acls import acl_filter, authorizer_for
from penstock.broker.security.request_authorizer import RequestAuthorizer
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
from penstock.security.acl_authorizer import AclAuthorizer


@dataclass(frozen=True, slots=True)
class Context:
    pacer: Pacer
    authorizer: RequestAuthorizer


def handle(context: Context, request: Request, body: DescribeAclsRequest) -> HandlerResult:
    authorizer = authorizer_for(context.authorizer, request.session, AclOperation.DESCRIBE)
    return context.pacer.run(_matching_acls(authorizer, acl_filter(body)))


def _matching_acls(authorizer: AclAuthorizer, selected: AclFilter) -> Steps[Response]:
    resources = []
    for key, entries in authorizer.patterns():
        yield
        if not selected.matches_pattern(key):
            continue
        acls = []
        for entry in entries:
            yield
            if selected.matches_entry(entry):
                principal, host, operation, permission = entry
                acls.append(
                    AclDescription(
                        principal, host, AclOperation[operation], AclPermission[permission]
                    )
                )
        if acls:
            resource_type, pattern_type, name = key
            resources.append(
                DescribeAclsResource(
                    ResourceType[resource_type], name, PatternType[pattern_type], acls
                )
            )
    return DescribeAclsResponse(resources=resources)
