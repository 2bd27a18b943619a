"""Admin calls for SCRAM credentials. Passwords are salted and hashed here, and never sent."""

import secrets
from collections.abc import Iterable, Mapping, Sequence

from penstock.client.admin.advice import response_error
from penstock.client.admin.api_driver import (
    AdminApiDriver,
    AdminCall,
    NodeProvider,
    Results,
    check_collection,
    unique_keys,
)
from penstock.client.admin.api_lookup import single_node
from penstock.client.admin.errors import AdminError
from penstock.client.admin.model_security import (
    ScramCredentialInfo,
    ScramDeletion,
    ScramUpsertion,
)
from penstock.core.errors import KafkaError
from penstock.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from penstock.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from penstock.security.scram_credential import ScramMechanism, random_text, salted_password

_SALT_BITS = 130


async def describe_user_scram_credentials(
    admin: AdminApiDriver, users: Iterable[str] | None = None, *, timeout_ms: int | None = None
) -> dict[str, tuple[ScramCredentialInfo, ...]]:
    """Returns the mechanisms that users have credentials for, sorted; by default of all users.

    A given user without credentials is RESOURCE_NOT_FOUND.
    """
    call = AdminCall(admin, "describe_user_scram_credentials", timeout_ms)
    names = None if users is None else [UserName(name) for name in unique_keys(call.name, users)]
    response = await call.request_until_done(
        NodeProvider.ANY,
        DescribeUserScramCredentialsRequest(names),
        DescribeUserScramCredentialsResponse,
    )
    results: dict[str, tuple[ScramCredentialInfo, ...] | KafkaError] = {}
    for result in sorted(response.results, key=lambda result: result.user):
        infos = tuple(
            ScramCredentialInfo(ScramMechanism(info.mechanism), info.iterations)
            for info in sorted(result.credential_infos, key=lambda info: info.mechanism)
            if info.mechanism in ScramMechanism._value2member_map_
        )
        results[result.user] = response_error(result, f"user {result.user}") or infos
    return call.checked(results)


async def alter_user_scram_credentials(
    admin: AdminApiDriver,
    alterations: Iterable[ScramUpsertion | ScramDeletion],
    *,
    timeout_ms: int | None = None,
) -> None:
    """Sets and deletes credentials of users.

    A request may have one change per user, so that further changes of a user are sent in
    further requests, unless one of them fails.
    """
    call = AdminCall(admin, "alter_user_scram_credentials", timeout_ms)
    check_collection(call.name, alterations)
    pending: dict[str, list[ScramUpsertion | ScramDeletion]] = {}
    for alteration in alterations:
        pending.setdefault(alteration.user, []).append(alteration)
    users = list(pending)
    errors: dict[str, KafkaError] = {}
    while pending:
        batch = {user: remaining.pop(0) for user, remaining in pending.items()}
        try:
            await _alter_users(call, batch)
        except AdminError as failed:
            errors.update(failed.errors)
        pending = {
            user: remaining
            for user, remaining in pending.items()
            if remaining and user not in errors
        }
    call.checked({user: errors.get(user) for user in users})


async def _alter_users(
    call: AdminCall, by_user: Mapping[str, ScramUpsertion | ScramDeletion]
) -> None:
    async def send(node_id: int, users: Sequence[str]) -> Results[str, None]:
        keys = [by_user[user] for user in users]
        request = AlterUserScramCredentialsRequest(
            [
                ScramCredentialDeletion(key.user, key.mechanism)
                for key in keys
                if isinstance(key, ScramDeletion)
            ],
            [_upsertion(key) for key in keys if isinstance(key, ScramUpsertion)],
        )
        response = await call.request(node_id, request, AlterUserScramCredentialsResponse)
        return {
            result.user: response_error(result, f"user {result.user}")
            for result in response.results
        }

    await call.request_each(by_user, single_node(call, NodeProvider.CONTROLLER), send)


def _upsertion(value: ScramUpsertion) -> ScramCredentialUpsertion:
    salt = value.salt
    if salt is None:
        salt = random_text(secrets.randbits(_SALT_BITS)).encode()
    # The broker rejects too few iterations; here they only must be possible.
    salted = salted_password(value.mechanism, value.password, salt, max(1, value.iterations))
    return ScramCredentialUpsertion(value.user, value.mechanism, value.iterations, salt, salted)
