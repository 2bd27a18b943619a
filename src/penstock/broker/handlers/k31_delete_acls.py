"""DeleteAcls (31): versions 0 to 3: the access rules that filters find are gone (X3)."""

from dataclasses import dataclass

from penstock.broker.metadata.controller_host import ControllerHost
from penstock.broker.request import Request, Response
from penstock.broker.security.acls import authorizer_for
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
    AclFilter,
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
        results = [_found(authorizer, each, bindings) for each in body.filters]
        return ControllerResult(
            delete_acls(image, bindings), DeleteAclsResponse(filter_results=results)
        )

    return await context.controller.run(decide)


def _found(
    authorizer: AclAuthorizer, wanted: DeleteAclsFilter, bindings: list[Binding]
) -> DeleteAclsFilterResult:
    """What one filter finds, which is added to `bindings` too."""
    try:
        acl_filter = AclFilter.of_codes(
            wanted.resource_type_filter,
            wanted.resource_name_filter,
            wanted.pattern_type_filter,
            wanted.principal_filter,
            wanted.host_filter,
            wanted.operation,
            wanted.permission_type,
        )
    except KafkaError as error:
        return DeleteAclsFilterResult(error.code, error.message)
    result = DeleteAclsFilterResult(error_message=None)
    for pattern, entries in authorizer.acls(acl_filter):
        for entry in entries:
            bindings.append((AclKey(*pattern), AccessControlEntry(*entry)))
            result.matching_acls.append(_matching(*bindings[-1]))
    return result


def _matching(key: AclKey, entry: AccessControlEntry) -> DeleteAclsMatchingAcl:
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
