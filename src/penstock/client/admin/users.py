"""SCRAM users. Passwords are salted and hashed here: the broker never sees them."""

import secrets
from collections.abc import Iterable, Mapping, Sequence

from penstock.client.admin.advice import explain
from penstock.client.admin.errors import AdminError
from penstock.client.admin.model_security import (
    ScramCredentialInfo,
    ScramDeletion,
    ScramUpsertion,
)
from penstock.client.admin.routing import CONTROLLER_CODES, Router, Where, check_several, several
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


class UserCalls(Router):
    """Calls about SCRAM credentials."""

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None, *, timeout_ms: int | None = None
    ) -> dict[str, tuple[ScramCredentialInfo, ...]]:
        """Which mechanisms users have credentials for, sorted; None is for all users.

        A user that was asked for and has none is RESOURCE_NOT_FOUND.
        """
        names = None
        if users is not None:
            wanted = several("describe_user_scram_credentials", users)
            names = [UserName(name) for name in wanted]
        response = await self._ask(
            "describe_user_scram_credentials",
            Where.ANY,
            DescribeUserScramCredentialsRequest(names),
            DescribeUserScramCredentialsResponse,
            self._deadline(timeout_ms),
            verdict=lambda answer: (answer.error_code, answer.error_message),
        )
        results: dict[str, tuple[ScramCredentialInfo, ...]] = {}
        errors: dict[str, KafkaError] = {}
        for each in sorted(response.results, key=lambda each: each.user):
            if each.error_code != ErrorCode.NONE:
                errors[each.user] = explain(
                    each.error_code, f"user {each.user}", each.error_message
                )
                continue
            results[each.user] = tuple(
                ScramCredentialInfo(ScramMechanism(info.mechanism), info.iterations)
                for info in sorted(each.credential_infos, key=lambda info: info.mechanism)
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
        """Set and delete credentials of users.

        A broker takes one change of a user at a time, so further ones of the same user follow in
        requests of their own, as long as none of his fails.
        """
        check_several("alter_user_scram_credentials", alterations)
        deadline_ms = self._deadline(timeout_ms)
        waiting: dict[str, list[ScramUpsertion | ScramDeletion]] = {}
        for alteration in alterations:
            waiting.setdefault(alteration.user, []).append(alteration)
        users = list(waiting)
        errors: dict[str, KafkaError] = {}
        while waiting:
            wave = {user: left.pop(0) for user, left in waiting.items()}
            try:
                await self._alter_users(wave, deadline_ms)
            except AdminError as failed:
                errors.update(failed.errors)
            waiting = {user: left for user, left in waiting.items() if left and user not in errors}
        if errors:
            done = {user: None for user in users if user not in errors}
            raise AdminError("alter_user_scram_credentials", errors, done)

    async def _alter_users(
        self, by_user: Mapping[str, ScramUpsertion | ScramDeletion], deadline_ms: int
    ) -> None:
        async def send(node_id: int, users: Sequence[str]) -> Mapping[str, KafkaError | None]:
            some = [by_user[user] for user in users]
            request = AlterUserScramCredentialsRequest(
                [
                    ScramCredentialDeletion(each.user, each.mechanism)
                    for each in some
                    if isinstance(each, ScramDeletion)
                ],
                [_upsertion(each) for each in some if isinstance(each, ScramUpsertion)],
            )
            response = await self._request(
                "alter_user_scram_credentials",
                node_id,
                request,
                AlterUserScramCredentialsResponse,
                deadline_ms,
            )
            return {
                each.user: (
                    None
                    if each.error_code == ErrorCode.NONE
                    else explain(each.error_code, f"user {each.user}", each.error_message)
                )
                for each in response.results
            }

        await self._each(
            "alter_user_scram_credentials",
            by_user,
            self._at(Where.CONTROLLER, deadline_ms),
            send,
            deadline_ms,
            retriable=CONTROLLER_CODES,
        )


def _upsertion(given: ScramUpsertion) -> ScramCredentialUpsertion:
    salt = given.salt
    if salt is None:
        salt = random_text(secrets.randbits(_SALT_BITS)).encode()
    # The broker refuses what is out of its bounds; here it only must be possible.
    salted = salted_password(given.mechanism, given.password, salt, max(1, given.iterations))
    return ScramCredentialUpsertion(given.user, given.mechanism, given.iterations, salt, salted)
