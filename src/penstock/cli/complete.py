"""Shell completion with names from the cluster: quick, and silent if it fails."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import typer

from penstock.cli.output import Output
from penstock.cli.session import DEFAULT_SERVER, Session

if TYPE_CHECKING:
    from penstock.client.admin.admin import Admin

TIMEOUT_S = 1.0
"""How long a user who presses Tab waits at most."""


def topics(ctx: typer.Context, incomplete: str) -> list[str]:
    return _names(ctx, incomplete, lambda admin: admin.list_topics(include_internal=True))


def groups(ctx: typer.Context, incomplete: str) -> list[str]:
    return _names(ctx, incomplete, lambda admin: [group.group_id for group in admin.list_groups()])


def transactional_ids(ctx: typer.Context, incomplete: str) -> list[str]:
    def find(admin: "Admin") -> list[str]:
        by_broker = admin.list_transactions().values()
        return [listing.transactional_id for listings in by_broker for listing in listings]

    return _names(ctx, incomplete, find)


def users(ctx: typer.Context, incomplete: str) -> list[str]:
    return _names(ctx, incomplete, lambda admin: admin.describe_user_scram_credentials())


def _names(
    ctx: typer.Context, incomplete: str, find: "Callable[[Admin], Iterable[str]]"
) -> list[str]:
    """Returns the names that start with `incomplete`; nothing if anything goes wrong."""
    params = ctx.params
    try:
        session = Session(
            params.get("bootstrap_server") or DEFAULT_SERVER,
            params.get("config_file"),
            params.get("settings"),
            TIMEOUT_S,
        )
        session.out = _SilentOutput()
        with session.admin() as admin:
            return sorted(name for name in find(admin) if name.startswith(incomplete))
    except (Exception, SystemExit):  # noqa: BLE001 - completion must not print errors
        return []


class _SilentOutput(Output):
    """Output that prints nothing, because the user is typing a command."""

    def __init__(self) -> None:
        super().__init__(as_json=True)
