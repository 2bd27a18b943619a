"""DeleteAcls (31), versions 0 to 3: deletes the ACLs that match filters (X3)."""

from dataclasses import dataclass

from penstock.broker.metadata.controller_host import ControllerHost
from penstock.broker.request import Request, Response
from penstock.broker.security.acls import acl_filter, authorizer_for
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.controller.acls import Binding, delete_acls
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import AccessControlEntry, AclKey
from penstock.controller.result import ControllerResult
from penstock.core.errors import KafkaError
from penstock.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from penstock.security.acl import (
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from penstock.security.acl_authorizer import AclAuthorizer


@dataclass(frozen=True, slots=True)
class Context:
    controller: ControllerHost
    authorizer: RequestAuthorizer


async def handle(context: Context, request: Request, body: DeleteAclsRequest) -> Response:
    try:
        authorizer = authorizer_for(context.authorizer, request.session, AclOperation.ALTER)
    except KafkaError as error:
        refusal = DeleteAclsFilterResult(error.code, error.message)
        return DeleteAclsResponse(filter_results=[refusal for _ in body.filters])

    def decide(image: ClusterImage) -> ControllerResult[DeleteAclsResponse]:
        bindings: list[Binding] = []
        results = [
            _matching_acls(authorizer, request_filter, bindings) for request_filter in body.filters
        ]
        return ControllerResult(
            delete_acls(image, bindings), DeleteAclsResponse(filter_results=results)
        )

    try:
        return await context.controller.write(decide, request)
    except KafkaError as error:
        failure = DeleteAclsFilterResult(error.code, error.message)
        return DeleteAclsResponse(filter_results=[failure for _ in body.filters])


def _matching_acls(
    authorizer: AclAuthorizer, request_filter: DeleteAclsFilter, bindings: list[Binding]
) -> DeleteAclsFilterResult:
    """Returns the ACLs that match a filter, and adds them to `bindings`."""
    try:
        selected = acl_filter(request_filter)
    except KafkaError as error:
        return DeleteAclsFilterResult(error.code, error.message)
    result = DeleteAclsFilterResult(error_message=None)
    for pattern, entries in authorizer.acls(selected):
        for entry in entries:
            bindings.append((AclKey(*pattern), AccessControlEntry(*entry)))
            result.matching_acls.append(_matching_acl(*bindings[-1]))
    return result


def _matching_acl(key: AclKey, entry: AccessControlEntry) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        0,
        None,
        ResourceType[key.resource_type],
        key.name,
        PatternType[key.pattern_type],
        entry.principal,
        entry.host,
        AclOperation[entry.operation],
        AclPermission[entry.permission],
    )
