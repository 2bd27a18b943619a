"""`penstock token`: delegation tokens (kafka-delegation-tokens.sh; X2).

Tokens are named by their ids: those who may change a token can see its HMAC, which is a password
and so no argument.
"""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.cli.app import new_group
from penstock.cli.options import argument, flag, option
from penstock.cli.session import YES, Session, command
from penstock.core.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from penstock.client.admin import DelegationToken
    from penstock.client.admin.admin import Admin

app = new_group("Delegation tokens, with which others log in as you: create, list, renew, expire.")

ONE_TOKEN = argument("TOKEN", help="The id of the token.")


@command(app, "list")
def list_tokens(
    session: Session,
    owners: list[str] | None = option(
        "--owner", help="Only those of this owner or renewer, such as User:ann; may be repeated."
    ),
    hmac: bool = flag("--hmac", help="Also show the HMACs, which are passwords."),
) -> None:
    """List the tokens that you may see: your own, those you may renew, and those of ACLs."""
    with session.admin() as admin:
        tokens = admin.describe_delegation_token(owners)
    columns = ["Token", "Owner", "Requester", "Renewers", "Issued", "Expires", "Ends"]
    session.out.table(
        [*columns, "HMAC"] if hmac else columns,
        [
            (
                *(token.token_id, token.owner, token.requester, token.renewers),
                *map(_time, (token.issue_timestamp, token.expiry_timestamp, token.max_timestamp)),
                *([token.password] if hmac else []),
            )
            for token in tokens
        ],
        document=[_document(token, with_hmac=hmac) for token in tokens],
        empty="there are no delegation tokens that you may see",
    )


@command(app, "create")
def create(
    session: Session,
    owner: str | None = option(
        "--owner", help="Who logs in with it, such as User:ann, if not you; needs CREATE_TOKENS."
    ),
    renewers: list[str] | None = option(
        "--renewer", help="Who may renew and end it, besides its owner; may be repeated."
    ),
    max_lifetime: int = option(
        "--max-lifetime",
        metavar="MS",
        default=-1,
        help="How long it may be renewed; -1 for as long as the brokers allow.",
    ),
) -> None:
    """Create a token: its id is the user name of logins with it, its HMAC the password."""
    with session.admin() as admin:
        token = admin.create_delegation_token(
            owner=owner, renewers=renewers or (), max_lifetime_ms=max_lifetime
        )
    session.out.fields(
        {
            "Token": token.token_id,
            "HMAC": token.password,
            "Owner": token.owner,
            "Requester": token.requester,
            "Renewers": token.renewers,
            "Issued": _time(token.issue_timestamp),
            "Expires": _time(token.expiry_timestamp),
            "Ends": _time(token.max_timestamp),
        },
        document=_document(token, with_hmac=True),
    )


@command(app, "renew")
def renew(
    session: Session,
    token_id: str = ONE_TOKEN,
    period: int = option(
        "--period",
        metavar="MS",
        default=-1,
        help="How long it is valid from now on; -1 for as long as the brokers allow.",
    ),
) -> None:
    """Let a token expire later, up to the end of its maximum lifetime."""
    with session.admin() as admin:
        token = _find(admin, token_id)
        expiry_ms = admin.renew_delegation_token(token.hmac, renew_period_ms=period)
    session.out.done(
        f"token {token_id} expires at {_time(expiry_ms)}",
        {"token": token_id, "expires_ms": expiry_ms},
    )


@command(app, "expire")
def expire(
    session: Session,
    token_id: str = ONE_TOKEN,
    period: int = option(
        "--period", metavar="MS", default=-1, help="How long it is still valid; -1 ends it now."
    ),
    yes: bool = YES,
) -> None:
    """End a token. Connections that have logged in with it stay until their login expires."""
    with session.admin() as admin:
        token = _find(admin, token_id)
        session.confirm(f"End token {token_id} of {token.owner}?", yes=yes)
        expiry_ms = admin.expire_delegation_token(token.hmac, expiry_period_ms=period)
    session.out.done(
        f"token {token_id} has ended"
        if period < 0
        else f"token {token_id} expires at {_time(expiry_ms)}",
        {"token": token_id, "expires_ms": expiry_ms},
    )


def _find(admin: "Admin", token_id: str) -> "DelegationToken":
    for token in admin.describe_delegation_token():
        if token.token_id == token_id:
            return token
    raise KafkaError(
        ErrorCode.DELEGATION_TOKEN_NOT_FOUND,
        f"there is no token {token_id} that you may see",
        remedy="`describe_delegation_token` shows those that you may see",
    )


def _document(token: "DelegationToken", *, with_hmac: bool) -> dict[str, object]:
    document: dict[str, object] = {
        "token": token.token_id,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": token.renewers,
        "issued_ms": token.issue_timestamp,
        "expires_ms": token.expiry_timestamp,
        "ends_ms": token.max_timestamp,
    }
    if with_hmac:
        document["hmac"] = token.password
    return document


def _time(timestamp_ms: int) -> datetime | int:
    """Returns a time in UTC; the number if it is beyond what a date can be."""
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return timestamp_ms
