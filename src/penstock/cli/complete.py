"""Names from the cluster, for the shell that completes a word: quick, and silent when it fails."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import typer

from penstock.cli.output import Output
from penstock.cli.session import DEFAULT_SERVER, Session

if TYPE_CHECKING:
    from penstock.client.admin.admin import Admin

TIMEOUT_S = 1.0
"""Whoever presses Tab does not wait longer."""


def topics(ctx: typer.Context, incomplete: str) -> list[str]:
    return _names(ctx, incomplete, lambda admin: admin.list_topics(include_internal=True))


def groups(ctx: typer.Context, incomplete: str) -> list[str]:
    return _names(ctx, incomplete, lambda admin: [each.group_id for each in admin.list_groups()])


def transactional_ids(ctx: typer.Context, incomplete: str) -> list[str]:
    def find(admin: "Admin") -> list[str]:
        found = admin.list_transactions().values()
        return [each.transactional_id for listed in found for each in listed]

    return _names(ctx, incomplete, find)


def users(ctx: typer.Context, incomplete: str) -> list[str]:
    return _names(ctx, incomplete, lambda admin: admin.describe_user_scram_credentials())


def _names(
    ctx: typer.Context, incomplete: str, find: "Callable[[Admin], Iterable[str]]"
) -> list[str]:
    """What `find` gives, as far as it begins like the word; nothing if anything goes wrong."""
    given = ctx.params
    try:
        session = Session(
            given.get("bootstrap_server") or DEFAULT_SERVER,
            given.get("config_file"),
            given.get("settings"),
            TIMEOUT_S,
        )
        session.out = _Silent()
        with session.admin() as admin:
            return sorted(name for name in find(admin) if name.startswith(incomplete))
    except (Exception, SystemExit):  # noqa: BLE001 - the shell shows nothing of it
        return []


class _Silent(Output):
    """Nothing may be printed between the user's words."""

    def __init__(self) -> None:
        super().__init__(as_json=True)
