"""`penstock quota`: limits of users, client ids and addresses (kafka-configs.sh; X4)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from penstock.cli import complete
from penstock.cli.app import new_group
from penstock.cli.names import key_values
from penstock.cli.options import flag, option, option_field
from penstock.cli.output import UsageError
from penstock.cli.session import DRY_RUN, Session, command

if TYPE_CHECKING:
    from penstock.client.admin import ClientQuotaEntity

app = new_group("Limits of users, client ids and addresses.")


@dataclass(frozen=True)
class Entity:
    """The options that name the owner of a quota."""

    user: str | None = option_field(option("--user", help="A user.", autocompletion=complete.users))
    client_id: str | None = option_field(option("--client-id", help="A client id."))
    ip: str | None = option_field(option("--ip", help="An address."))
    user_defaults: bool = option_field(
        flag("--user-defaults", help="Users that have no quota of their own.")
    )
    client_defaults: bool = option_field(
        flag("--client-defaults", help="Client ids that have no quota of their own.")
    )
    ip_defaults: bool = option_field(
        flag("--ip-defaults", help="Addresses that have no quota of their own.")
    )

    def resolve(self) -> "ClientQuotaEntity":
        """Returns the entity. Raises UsageError if the options contradict each other."""
        from penstock.client.admin import ClientQuotaEntity, Quota

        def part(
            name: str, value: str | None, is_default: bool
        ) -> "str | Literal[Quota.DEFAULT] | None":
            if value is not None and is_default:
                defaults = f"--{name.removesuffix('-id')}-defaults"
                raise UsageError(f"choose one of --{name} and {defaults}")
            return Quota.DEFAULT if is_default else value

        entity = ClientQuotaEntity(
            part("user", self.user, self.user_defaults),
            part("client-id", self.client_id, self.client_defaults),
            part("ip", self.ip, self.ip_defaults),
        )
        if entity.ip is not None and (entity.user is not None or entity.client_id is not None):
            raise UsageError(
                "quotas of addresses cannot be combined", remedy="leave out --user and --client-id"
            )
        return entity


@command(app, "describe")
def describe(
    session: Session,
    entity: Entity,
    strict: bool = flag("--strict", help="Only exact matches: a user without client ids."),
) -> None:
    """Show quotas: all of them, or those that match."""
    from penstock.client.admin import ClientQuotaFilter

    target = entity.resolve()
    with session.admin() as admin:
        quotas_by_entity = admin.describe_client_quotas(ClientQuotaFilter(*target, strict=strict))
    rows = []
    for entry, quotas in sorted(quotas_by_entity.items(), key=lambda entry: str(entry[0])):
        for name, value in sorted(quotas.items()):
            rows.append((entry.user, entry.client_id, entry.ip, name, _number(value)))
    session.out.table(
        ["User", "Client id", "Ip", "Quota", "Value"], rows, empty="there are no quotas"
    )


@command(app, "alter")
def alter(
    session: Session,
    entity: Entity,
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
    target = entity.resolve()
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


def _number(value: float) -> int | float:
    return int(value) if value.is_integer() else value
