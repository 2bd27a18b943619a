"""Admin calls for SCRAM credentials. Passwords are salted and hashed here, and never sent."""

import secrets
from collections.abc import Iterable, Mapping, Sequence

from penstock.client.admin.advice import broker_error, error_or_none
from penstock.client.admin.api_driver import (
    CONTROLLER_CODES,
    AdminApiDriver,
    NodeProvider,
    check_collection,
    code_and_message,
    unique_keys,
)
from penstock.client.admin.errors import AdminError
from penstock.client.admin.model_security import (
    ScramCredentialInfo,
    ScramDeletion,
    ScramUpsertion,
)
from penstock.core.errors import ErrorCode, KafkaError
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


class UserCalls(AdminApiDriver):
    """The calls for SCRAM credentials."""

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None, *, timeout_ms: int | None = None
    ) -> dict[str, tuple[ScramCredentialInfo, ...]]:
        """Returns the mechanisms that users have credentials for, sorted; by default of all users.

        A given user without credentials is RESOURCE_NOT_FOUND.
        """
        names = None
        if users is not None:
            requested = unique_keys("describe_user_scram_credentials", users)
            names = [UserName(name) for name in requested]
        response = await self._request_until_done(
            "describe_user_scram_credentials",
            NodeProvider.ANY,
            DescribeUserScramCredentialsRequest(names),
            DescribeUserScramCredentialsResponse,
            self._deadline(timeout_ms),
            get_error=code_and_message,
        )
        results: dict[str, tuple[ScramCredentialInfo, ...]] = {}
        errors: dict[str, KafkaError] = {}
        for result in sorted(response.results, key=lambda result: result.user):
            if result.error_code != ErrorCode.NONE:
                errors[result.user] = broker_error(
                    result.error_code, f"user {result.user}", result.error_message
                )
                continue
            results[result.user] = tuple(
                ScramCredentialInfo(ScramMechanism(info.mechanism), info.iterations)
                for info in sorted(result.credential_infos, key=lambda info: info.mechanism)
                if info.mechanism in ScramMechanism._value2member_map_
            )
        if errors:
            raise AdminError("describe_user_scram_credentials", errors, results)
        return results

    async def alter_user_scram_credentials(
        self,
        alterations: Iterable[ScramUpsertion | ScramDeletion],
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Sets and deletes credentials of users.

        A request may have one change per user, so that further changes of a user are sent in
        further requests, unless one of them fails.
        """
        check_collection("alter_user_scram_credentials", alterations)
        deadline_ms = self._deadline(timeout_ms)
        pending: dict[str, list[ScramUpsertion | ScramDeletion]] = {}
        for alteration in alterations:
            pending.setdefault(alteration.user, []).append(alteration)
        users = list(pending)
        errors: dict[str, KafkaError] = {}
        while pending:
            batch = {user: remaining.pop(0) for user, remaining in pending.items()}
            try:
                await self._alter_users(batch, deadline_ms)
            except AdminError as failed:
                errors.update(failed.errors)
            pending = {
                user: remaining
                for user, remaining in pending.items()
                if remaining and user not in errors
            }
        if errors:
            done = {user: None for user in users if user not in errors}
            raise AdminError("alter_user_scram_credentials", errors, done)

    async def _alter_users(
        self, by_user: Mapping[str, ScramUpsertion | ScramDeletion], deadline_ms: int
    ) -> None:
        async def send(node_id: int, users: Sequence[str]) -> Mapping[str, KafkaError | None]:
            keys = [by_user[user] for user in users]
            request = AlterUserScramCredentialsRequest(
                [
                    ScramCredentialDeletion(key.user, key.mechanism)
                    for key in keys
                    if isinstance(key, ScramDeletion)
                ],
                [_upsertion(key_item) for key_item in keys if isinstance(key_item, ScramUpsertion)],
            )
            response = await self._request(
                "alter_user_scram_credentials",
                node_id,
                request,
                AlterUserScramCredentialsResponse,
                deadline_ms,
            )
            return {
                result.user: error_or_none(
                    result.error_code, f"user {result.user}", result.error_message
                )
                for result in response.results
            }

        await self._request_each(
            "alter_user_scram_credentials",
            by_user,
            self._single_node(NodeProvider.CONTROLLER, deadline_ms),
            send,
            deadline_ms,
            retriable=CONTROLLER_CODES,
        )


def _upsertion(value: ScramUpsertion) -> ScramCredentialUpsertion:
    salt = value.salt
    if salt is None:
        salt = random_text(secrets.randbits(_SALT_BITS)).encode()
    # The broker rejects too few iterations; here they only must be possible.
    salted = salted_password(value.mechanism, value.password, salt, max(1, value.iterations))
    return ScramCredentialUpsertion(value.user, value.mechanism, value.iterations, salt, salted)
