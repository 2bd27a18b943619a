"""`penstock user`: users that log in with SCRAM (kafka-configs.sh --entity-type users; X2)."""

import os
import sys
from enum import StrEnum

import typer

from penstock.cli import complete
from penstock.cli.app import new_group
from penstock.cli.names import count_of
from penstock.cli.options import argument, flag, option
from penstock.cli.output import UsageError
from penstock.cli.session import YES, Session, command

app = new_group("Users that log in with SCRAM: create, list, describe, delete.")

PASSWORD_VARIABLE = "PENSTOCK_USER_PASSWORD"


class Mechanism(StrEnum):
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"


ONE_USER = argument("USER", help="The user.", autocompletion=complete.users)


@command(app, "list")
def list_users(session: Session) -> None:
    """List users that have a password."""
    _print(session, None)


@command(app, "describe")
def describe(
    session: Session,
    users: list[str] = argument("USER", help="Users.", autocompletion=complete.users),
) -> None:
    """Show the mechanisms of users. Passwords are not stored."""
    _print(session, users)


@command(app, "create")
def create(
    session: Session,
    user: str = ONE_USER,
    mechanism: list[Mechanism] | None = option(
        "--mechanism", "-m", help="The mechanism; may be repeated. Default: SCRAM-SHA-512."
    ),
    iterations: int = option(
        "--iterations", default=4096, min=4096, max=16384, help="The iterations of the hash."
    ),
    password_stdin: bool = flag("--password-stdin", help="Read the password from standard input."),
) -> None:
    """Create a user, or change the password of one.

    The password is read from the terminal, or from standard input with --password-stdin or
    from the variable PENSTOCK_USER_PASSWORD. It is hashed here and never sent.
    """
    from penstock.client.admin import ScramMechanism, ScramUpsertion

    chosen = list(dict.fromkeys(mechanism or [Mechanism.SCRAM_SHA_512]))
    password = _password(user, from_stdin=password_stdin)
    with session.admin() as admin:
        admin.alter_user_scram_credentials(
            ScramUpsertion(user, ScramMechanism[choice.name], password, iterations)
            for choice in chosen
        )
    session.out.done(
        f"user {user} can log in with {' and '.join(chosen)}",
        [{"user": user, "mechanism": choice, "iterations": iterations} for choice in chosen],
    )


@command(app, "delete")
def delete(
    session: Session,
    user: str = ONE_USER,
    mechanism: list[Mechanism] | None = option(
        "--mechanism", "-m", help="Only this one. Default: all."
    ),
    yes: bool = YES,
) -> None:
    """Remove the credentials of a user."""
    from penstock.client.admin import ScramDeletion, ScramMechanism

    with session.admin() as admin:
        if mechanism:
            chosen = [ScramMechanism[choice.name] for choice in dict.fromkeys(mechanism)]
        else:
            credentials = admin.describe_user_scram_credentials([user])
            chosen = [credential.mechanism for credential in credentials[user]]
        names = [choice.mechanism_name for choice in chosen]
        session.confirm(
            f"Remove {count_of(len(names), 'login')} of user {user}: {', '.join(names)}?",
            yes=yes,
        )
        admin.alter_user_scram_credentials(ScramDeletion(user, choice) for choice in chosen)
    session.out.done(
        f"user {user} cannot log in with {' or '.join(names)} any more",
        [{"user": user, "mechanism": name, "deleted": True} for name in names],
    )


def _print(session: Session, users: list[str] | None) -> None:
    with session.admin() as admin:
        credentials = admin.describe_user_scram_credentials(users)
    session.out.table(
        ["User", "Mechanism", "Iterations"],
        [
            (user, info.mechanism.mechanism_name, info.iterations)
            for user, infos in sorted(credentials.items())
            for info in infos
        ],
        empty="no user has a password",
    )


def _password(user: str, *, from_stdin: bool) -> str:
    if from_stdin:
        password = sys.stdin.readline().rstrip("\r\n")
    elif PASSWORD_VARIABLE in os.environ:
        password = os.environ[PASSWORD_VARIABLE]
    elif sys.stdin.isatty():
        password = str(
            typer.prompt(f"Password of {user}", hide_input=True, confirmation_prompt=True, err=True)
        )
    else:
        raise UsageError(
            "no password", remedy=f"pipe it in with --password-stdin, or set {PASSWORD_VARIABLE}"
        )
    if not password:
        raise UsageError("the password is empty: nobody could log in with it")
    return password
