"""Changes of credentials by AlterUserScramCredentials requests (X2)."""

import pytest

from penstock.core.errors import ErrorCode
from penstock.security.scram_changes import (
    ScramChange,
    ScramDeletion,
    ScramUpsertion,
    plan_scram_changes,
)
from penstock.security.scram_credential import (
    ScramMechanism,
    salted_password,
)
from tests.support.protocol.scram_client import credential_from_password

SHA_256 = ScramMechanism.SCRAM_SHA_256
SALTED = salted_password(SHA_256, "pencil", b"salt", 4096)


def upsertion(user: str = "ann", mechanism: int = 1, iterations: int = 4096) -> ScramUpsertion:
    return ScramUpsertion(user, mechanism, iterations, b"salt", SALTED)


def exists(user: str, mechanism: ScramMechanism) -> bool:
    return (user, mechanism) in {("ann", SHA_256), ("bob", SHA_256)}


def test_credentials_are_set_and_removed() -> None:
    changes, errors = plan_scram_changes([ScramDeletion("bob", 1)], [upsertion()], exists)
    credential = credential_from_password(SHA_256, "pencil", b"salt")
    assert changes == [ScramChange("bob", SHA_256, None), ScramChange("ann", SHA_256, credential)]
    assert errors == {}


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion(mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion(iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (ScramDeletion("", 1), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (ScramDeletion("ann", 9), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (ScramDeletion("ann", 2), ErrorCode.RESOURCE_NOT_FOUND),
        (ScramDeletion("eve", 1), ErrorCode.RESOURCE_NOT_FOUND),
    ],
)
def test_changes_that_kafka_refuses_are_refused(
    wrong: ScramDeletion | ScramUpsertion, code: ErrorCode
) -> None:
    """Only for the user concerned; the other users are changed."""
    if isinstance(wrong, ScramDeletion):
        changes, errors = plan_scram_changes([wrong, ScramDeletion("bob", 1)], [], exists)
    else:
        changes, errors = plan_scram_changes([ScramDeletion("bob", 1)], [wrong], exists)
    assert {user: error.code for user, error in errors.items()} == {wrong.user: code}
    assert changes == [ScramChange("bob", SHA_256, None)]


def test_the_largest_number_of_iterations() -> None:
    changes, errors = plan_scram_changes([], [upsertion(iterations=16384)], exists)
    assert len(changes) == 1
    assert not errors


@pytest.mark.parametrize(
    ("deletions", "upsertions"),
    [
        ([ScramDeletion("ann", 1), ScramDeletion("ann", 1)], []),
        ([ScramDeletion("ann", 1)], [upsertion(mechanism=2)]),
        ([], [upsertion(), upsertion(mechanism=2), upsertion()]),
    ],
)
def test_a_user_is_changed_once_or_not_at_all(
    deletions: list[ScramDeletion], upsertions: list[ScramUpsertion]
) -> None:
    changes, errors = plan_scram_changes(deletions, upsertions, exists)
    assert changes == []
    assert [error.code for error in errors.values()] == [ErrorCode.DUPLICATE_RESOURCE]
