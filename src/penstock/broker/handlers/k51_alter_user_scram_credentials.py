"""AlterUserScramCredentials (51), version 0: sets and deletes SCRAM credentials (X2)."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.broker.metadata.controller_host import ControllerHost
from penstock.broker.request import Request, Response
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.controller.image import ClusterImage
from penstock.controller.result import ControllerResult
from penstock.controller.scram import alter_scram_credentials
from penstock.core.errors import KafkaError
from penstock.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from penstock.security.acl import AclOperation
from penstock.security.scram_changes import (
    ScramDeletion,
    ScramUpsertion,
    plan_scram_changes,
)
from penstock.security.scram_credential import ScramMechanism


@dataclass(frozen=True, slots=True)
class Context:
    controller: ControllerHost
    authorizer: RequestAuthorizer


async def handle(
    context: Context, request: Request, body: AlterUserScramCredentialsRequest
) -> Response:
    users = dict.fromkeys(
        [
            *(deletion.name for deletion in body.deletions),
            *(upsertion.name for upsertion in body.upsertions),
        ]
    )
    try:
        context.authorizer.require(request.session, AclOperation.ALTER)
    except KafkaError as error:
        return _response(dict.fromkeys(users, error))

    def decide(image: ClusterImage) -> ControllerResult[AlterUserScramCredentialsResponse]:
        deletions = [
            ScramDeletion(deletion.name, deletion.mechanism) for deletion in body.deletions
        ]
        upsertions = [
            ScramUpsertion(
                upsertion.name,
                upsertion.mechanism,
                upsertion.iterations,
                upsertion.salt,
                upsertion.salted_password,
            )
            for upsertion in body.upsertions
        ]

        def exists(user: str, mechanism: ScramMechanism) -> bool:
            return mechanism.mechanism_name in image.config("users", user)

        planned = plan_scram_changes(deletions, upsertions, exists)
        changes = alter_scram_credentials(
            image,
            (
                (
                    user,
                    mechanism.mechanism_name,
                    None if credential is None else credential.to_text(),
                )
                for user, mechanism, credential in planned.changes
            ),
        )
        return ControllerResult(
            changes, _response({user: planned.errors.get(user) for user in users})
        )

    try:
        return await context.controller.run(decide, request)
    except KafkaError as error:
        return _response(dict.fromkeys(users, error))


def _response(errors: Mapping[str, KafkaError | None]) -> AlterUserScramCredentialsResponse:
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user, 0, None)
            if error is None
            else AlterUserScramCredentialsResult(user, error.code, error.message)
            for user, error in errors.items()
        ]
    )
