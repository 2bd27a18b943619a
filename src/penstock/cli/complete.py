"""Shell completion with names from the cluster: quick, and silent if it fails."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

import typer

from penstock.cli.output import Output
from penstock.cli.session import DEFAULT_SERVER, Session

if TYPE_CHECKING:
    from penstock.client.admin.admin import Admin

TIMEOUT_S = 1.0
"""How long a user who presses Tab waits at most."""


Completion: TypeAlias = Callable[[typer.Context, str], list[str]]


def _completion(find: "Callable[[Admin], Iterable[str]]") -> Completion:
    """Returns a completion with the names that `find` returns; nothing if anything goes wrong."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        params = ctx.params
        try:
            session = Session(
                params.get("bootstrap_server") or DEFAULT_SERVER,
                params.get("config_file"),
                params.get("settings"),
                TIMEOUT_S,
            )
            session.out = Output(as_json=True)  # prints no notes
            with session.admin() as admin:
                return sorted(name for name in find(admin) if name.startswith(incomplete))
        except (Exception, SystemExit):  # noqa: BLE001 - completion must not print errors
            return []

    return complete


topics = _completion(lambda admin: admin.list_topics(include_internal=True))
groups = _completion(lambda admin: [group.group_id for group in admin.list_groups()])
users = _completion(lambda admin: admin.describe_user_scram_credentials())
transactional_ids = _completion(
    lambda admin: [
        listing.transactional_id
        for listings in admin.list_transactions().values()
        for listing in listings
    ]
)
