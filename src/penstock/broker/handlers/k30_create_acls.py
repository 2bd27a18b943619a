"""CreateAcls (30), versions 0 to 3: creates ACLs, in force when the response is sent (X3)."""

from dataclasses import dataclass

from penstock.broker.metadata.controller_host import ControllerHost
from penstock.broker.pacer import Pacer
from penstock.broker.request import Request, Response
from penstock.broker.security.acls import authorizer_for
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.controller.acls import create_acls
from penstock.controller.metadata import AccessControlEntry, AclKey
from penstock.controller.result import ControllerResult
from penstock.core.errors import KafkaError
from penstock.protocol.messages.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from penstock.security.acl import AclOperation, new_binding


@dataclass(frozen=True, slots=True)
class Context:
    pacer: Pacer
    controller: ControllerHost
    authorizer: RequestAuthorizer


async def handle(context: Context, request: Request, body: CreateAclsRequest) -> Response:
    try:
        authorizer_for(context.authorizer, request.session, AclOperation.ALTER)
    except KafkaError as error:
        refusal = AclCreationResult(error.code, error.message)
        return CreateAclsResponse(results=[refusal for _ in body.creations])
    bindings = []
    results = []
    async for creation in context.pacer.each(body.creations):
        try:
            pattern, entry = new_binding(
                creation.resource_type,
                creation.resource_name,
                creation.resource_pattern_type,
                creation.principal,
                creation.host,
                creation.operation,
                creation.permission_type,
            )
        except KafkaError as error:
            results.append(AclCreationResult(error.code, error.message))
            continue
        bindings.append((AclKey(*pattern), AccessControlEntry(*entry)))
        results.append(AclCreationResult())
    try:
        await context.controller.write(
            lambda image: ControllerResult(create_acls(image, bindings), None), request
        )
    except KafkaError as error:
        failure = AclCreationResult(error.code, error.message)
        results = [result if result.error_code else failure for result in results]
    return CreateAclsResponse(results=results)
