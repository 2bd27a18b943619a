"""The changes of an AlterUserScramCredentials request, checked user by user (X2)."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.core.errors import ErrorCode, KafkaError, drop_traceback
from penstock.security.scram_credential import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    ScramCredential,
    ScramMechanism,
    credential_from_salted_password,
)


class ScramDeletion(NamedTuple):
    """Deletes a credential; `mechanism` is the number in the protocol."""

    user: str
    mechanism: int


class ScramUpsertion(NamedTuple):
    """Sets a credential; `mechanism` is the number in the protocol."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


class ScramChange(NamedTuple):
    """A credential to set, or to delete if `credential` is None."""

    user: str
    mechanism: ScramMechanism
    credential: ScramCredential | None


class ScramChanges(NamedTuple):
    """The changes, and the errors of the other users. Every user is in one of them."""

    changes: list[ScramChange]
    errors: dict[str, KafkaError]


def plan_scram_changes(
    deletions: Sequence[ScramDeletion],
    upsertions: Sequence[ScramUpsertion],
    exists: Callable[[str, ScramMechanism], bool],
) -> ScramChanges:
    """Returns the checked changes; a user may appear only once, whatever the mechanism."""
    changes: dict[str, ScramChange] = {}
    errors: dict[str, KafkaError] = {}
    requested: list[ScramDeletion | ScramUpsertion] = [*deletions, *upsertions]
    for change in requested:
        user = change.user
        if user in errors:
            continue
        if changes.pop(user, None) is not None:
            errors[user] = KafkaError(
                ErrorCode.DUPLICATE_RESOURCE,
                f"user {user!r} appears more than once; change one credential of a user at a time",
            )
            continue
        try:
            if isinstance(change, ScramDeletion):
                changes[user] = _deletion(change, exists)
            else:
                changes[user] = _upsertion(change)
        except KafkaError as error:
            errors[user] = drop_traceback(error)
    return ScramChanges(list(changes.values()), errors)


def _mechanism(user: str, number: int) -> ScramMechanism:
    if not user:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "the user name must not be empty")
    try:
        return ScramMechanism(number)
    except ValueError as error:
        valid = ", ".join(
            f"{mechanism.value} ({mechanism.mechanism_name})" for mechanism in ScramMechanism
        )
        raise KafkaError(
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            f"unknown SCRAM mechanism {number}; use one of {valid}",
        ) from error


def _deletion(
    deletion: ScramDeletion, exists: Callable[[str, ScramMechanism], bool]
) -> ScramChange:
    mechanism = _mechanism(deletion.user, deletion.mechanism)
    if not exists(deletion.user, mechanism):
        raise KafkaError(
            ErrorCode.RESOURCE_NOT_FOUND,
            f"user {deletion.user!r} has no {mechanism.mechanism_name} credential to delete",
        )
    return ScramChange(deletion.user, mechanism, None)


def _upsertion(upsertion: ScramUpsertion) -> ScramChange:
    mechanism = _mechanism(upsertion.user, upsertion.mechanism)
    iterations = upsertion.iterations
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        few_or_many = "few" if iterations < MIN_ITERATIONS else "many"
        raise KafkaError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"too {few_or_many} iterations: {iterations};"
            f" choose between {MIN_ITERATIONS} and {MAX_ITERATIONS}",
        )
    credential = credential_from_salted_password(
        mechanism, upsertion.salted_password, upsertion.salt, iterations
    )
    return ScramChange(upsertion.user, mechanism, credential)
