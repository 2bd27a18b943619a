"""`penstock quota`: limits of users, client ids and addresses (kafka-configs.sh; X4)."""

from typing import TYPE_CHECKING

from penstock.cli import complete
from penstock.cli.app import new_group
from penstock.cli.names import key_values
from penstock.cli.options import flag, option
from penstock.cli.output import UsageError
from penstock.cli.session import DRY_RUN, Session, command

if TYPE_CHECKING:
    from penstock.client.admin import ClientQuotaEntity

app = new_group("Limits of users, client ids and addresses.")

USER = option("--user", help="A user.", autocompletion=complete.users)
CLIENT = option("--client-id", help="A client id.")
IP = option("--ip", help="An address.")
USER_DEFAULTS = flag("--user-defaults", help="Users that have no quota of their own.")
CLIENT_DEFAULTS = flag("--client-defaults", help="Client ids that have no quota of their own.")
IP_DEFAULTS = flag("--ip-defaults", help="Addresses that have no quota of their own.")


@command(app, "describe")
def describe(
    session: Session,
    user: str | None = USER,
    client_id: str | None = CLIENT,
    ip: str | None = IP,
    user_defaults: bool = USER_DEFAULTS,
    client_defaults: bool = CLIENT_DEFAULTS,
    ip_defaults: bool = IP_DEFAULTS,
    strict: bool = flag("--strict", help="Only exact matches: a user without client ids."),
) -> None:
    """Show quotas: all of them, or those that match."""
    from penstock.client.admin import ClientQuotaFilter

    target = entity(user, client_id, ip, user_defaults, client_defaults, ip_defaults)
    with session.admin() as admin:
        result = admin.describe_client_quotas(ClientQuotaFilter(*target, strict=strict))
    rows = []
    for entry, quotas in sorted(result.items(), key=lambda item: str(item[0])):
        for name, value in sorted(quotas.items()):
            rows.append((entry.user, entry.client_id, entry.ip, name, _number(value)))
    session.out.table(
        ["User", "Client id", "Ip", "Quota", "Value"], rows, empty="there are no quotas"
    )


@command(app, "alter")
def alter(
    session: Session,
    user: str | None = USER,
    client_id: str | None = CLIENT,
    ip: str | None = IP,
    user_defaults: bool = USER_DEFAULTS,
    client_defaults: bool = CLIENT_DEFAULTS,
    ip_defaults: bool = IP_DEFAULTS,
    to_set: list[str] | None = option(
        "--set",
        "-s",
        metavar="QUOTA=VALUE",
        help="producer_byte_rate, consumer_byte_rate (bytes a second), request_percentage, "
        "controller_mutation_rate, connection_creation_rate (addresses); may be repeated.",
    ),
    to_delete: list[str] | None = option(
        "--delete", "-d", metavar="QUOTA", help="Remove a quota; may be repeated."
    ),
    dry_run: bool = DRY_RUN,
) -> None:
    """Set and remove quotas of a user, a client id, both together, or an address."""
    target = entity(user, client_id, ip, user_defaults, client_defaults, ip_defaults)
    if not any(part is not None for part in target):
        raise UsageError(
            "name the owner of the quota: --user, --client-id, --ip, or --user-defaults, "
            "--client-defaults, --ip-defaults"
        )
    changes: dict[str, float | None] = {}
    for name, text in key_values(to_set or [], "--set").items():
        try:
            changes[name] = float(text)
        except ValueError:
            raise UsageError("the value must be a number", subject=f"--set {name}={text}") from None
    for name in to_delete or []:
        if name in changes:
            raise UsageError(f"{name} is set and removed", remedy="choose one")
        changes[name] = None
    if not changes:
        raise UsageError("name what to change: --set or --delete")
    with session.admin() as admin:
        admin.alter_client_quotas({target: changes}, validate_only=dry_run)
    what = "could be changed" if dry_run else "changed"
    session.out.done(
        f"{what}: {', '.join(changes)}",
        target._asdict() | {"altered": not dry_run, "quotas": changes},
    )


def entity(
    user: str | None,
    client_id: str | None,
    ip: str | None,
    user_defaults: bool,
    client_defaults: bool,
    ip_defaults: bool,
) -> "ClientQuotaEntity":
    """Returns the entity of the options. Raises UsageError if they contradict each other."""
    from penstock.client.admin import ClientQuotaEntity, Quota

    for name, value, default, defaults_option in (
        ("--user", user, user_defaults, "--user-defaults"),
        ("--client-id", client_id, client_defaults, "--client-defaults"),
        ("--ip", ip, ip_defaults, "--ip-defaults"),
    ):
        if value is not None and default:
            raise UsageError(f"choose one of {name} and {defaults_option}")
    result = ClientQuotaEntity(
        Quota.DEFAULT if user_defaults else user,
        Quota.DEFAULT if client_defaults else client_id,
        Quota.DEFAULT if ip_defaults else ip,
    )
    if result.ip is not None and (result.user is not None or result.client_id is not None):
        raise UsageError(
            "quotas of addresses cannot be combined", remedy="leave out --user and --client-id"
        )
    return result


def _number(value: float) -> int | float:
    return int(value) if value.is_integer() else value
