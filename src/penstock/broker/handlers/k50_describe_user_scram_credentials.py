"""DescribeUserScramCredentials (50), version 0: returns which SCRAM credentials users have (X2)."""

from collections import Counter
from dataclasses import dataclass

from penstock.broker.pacer import Pacer, Steps
from penstock.broker.request import HandlerResult, Request, Response
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.controller.image import ClusterImage
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from penstock.security.acl import AclOperation
from penstock.security.scram_credential import ScramCredential, ScramMechanism


@dataclass(frozen=True, slots=True)
class Context:
    pacer: Pacer
    image: ClusterImage
    authorizer: RequestAuthorizer


def handle(
    context: Context, request: Request, body: DescribeUserScramCredentialsRequest
) -> HandlerResult:
    context.authorizer.require(request.session, AclOperation.DESCRIBE)
    return context.pacer.run(_steps(context, body))


def _steps(context: Context, body: DescribeUserScramCredentialsRequest) -> Steps[Response]:
    response = DescribeUserScramCredentialsResponse()
    if not body.users:
        for key in list(context.image.configs):
            yield
            if _is_user(key.entity):
                result = _describe(context, key.entity[0][1])
                if result.credential_infos:
                    response.results.append(result)
        return response
    for user, count in Counter(user.name for user in body.users).items():
        yield
        if count == 1:
            result = _describe(context, user)
        else:
            result = DescribeUserScramCredentialsResult(
                user,
                ErrorCode.DUPLICATE_RESOURCE,
                f"the request names user {user!r} {count} times; name it once",
            )
        response.results.append(result)
    return response


def _is_user(entity: tuple[tuple[str, str], ...]) -> bool:
    return len(entity) == 1 and entity[0][0] == "users"


def _describe(context: Context, user: str) -> DescribeUserScramCredentialsResult:
    values = context.image.config("users", user)
    infos = [
        CredentialInfo(
            mechanism, ScramCredential.from_text(values[mechanism.mechanism_name]).iterations
        )
        for mechanism in ScramMechanism
        if mechanism.mechanism_name in values
    ]
    if infos:
        return DescribeUserScramCredentialsResult(user, credential_infos=infos)
    return DescribeUserScramCredentialsResult(
        user, ErrorCode.RESOURCE_NOT_FOUND, f"user {user!r} has no SCRAM credentials"
    )
