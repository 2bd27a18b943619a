"""`penstock acl`: lists, adds and removes ACLs (kafka-acls.sh; X3)."""

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from penstock.cli.admin.acl_options import (
    Principals,
    Resources,
    Roles,
    bindings,
    filters,
    option_value,
)
from penstock.cli.app import new_group
from penstock.cli.names import count_of
from penstock.cli.options import option
from penstock.cli.output import Marked
from penstock.cli.session import YES, Session, command

if TYPE_CHECKING:
    from penstock.client.admin import AclBinding, AclBindingFilter, AclOperation
    from penstock.client.admin.admin import Admin

app = new_group("ACLs, which allow or deny operations: list, add, remove.")


class Pattern(StrEnum):
    ANY = "any"
    MATCH = "match"
    LITERAL = "literal"
    PREFIXED = "prefixed"


class NewPattern(StrEnum):
    LITERAL = "literal"
    PREFIXED = "prefixed"


class Operation(StrEnum):
    ALL = "all"
    READ = "read"
    WRITE = "write"
    CREATE = "create"
    DELETE = "delete"
    ALTER = "alter"
    DESCRIBE = "describe"
    CLUSTER_ACTION = "cluster-action"
    DESCRIBE_CONFIGS = "describe-configs"
    ALTER_CONFIGS = "alter-configs"
    IDEMPOTENT_WRITE = "idempotent-write"
    CREATE_TOKENS = "create-tokens"
    DESCRIBE_TOKENS = "describe-tokens"
    TWO_PHASE_COMMIT = "two-phase-commit"


OPERATIONS = option("--operation", help="An operation; may be repeated. Default: all.")


@command(app, "list")
def list_acls(
    session: Session,
    resources: Resources,
    *,
    pattern: Pattern = option(
        "--resource-pattern-type",
        default=Pattern.LITERAL,
        help="match: every ACL that applies to the name.",
    ),
    principal: list[str] | None = option(
        "--principal", metavar="User:NAME", help="Only ACLs of this principal."
    ),
) -> None:
    """List ACLs: all, or those of some resources or principals."""
    from penstock.client.admin import AclBindingFilter, PatternType

    acl_filters = [
        AclBindingFilter(kind, name, PatternType[pattern.name]) for kind, name in resources.named()
    ] or [AclBindingFilter()]
    if principal:
        acl_filters = [
            acl_filter._replace(principal=name) for acl_filter in acl_filters for name in principal
        ]
    with session.admin() as admin:
        acls = _describe(admin, acl_filters)
    _print(session, acls, empty="there are no such ACLs")


@command(app, "add")
def add(
    session: Session,
    resources: Resources,
    *,
    pattern: NewPattern = option(
        "--resource-pattern-type",
        default=NewPattern.LITERAL,
        help="prefixed: all names that start with the given one.",
    ),
    principals: Principals,
    operation: list[Operation] | None = OPERATIONS,
    roles: Roles,
) -> None:
    """Add ACLs."""
    from penstock.client.admin import PatternType

    acls = bindings(resources, PatternType[pattern.name], principals, _operations(operation), roles)
    with session.admin() as admin:
        admin.create_acls(acls)
    session.out.note(f"added {count_of(len(acls), 'ACL')}:")
    _print(session, acls)


@command(app, "remove")
def remove(
    session: Session,
    resources: Resources,
    *,
    pattern: Pattern = option(
        "--resource-pattern-type",
        default=Pattern.LITERAL,
        help="match: every ACL that applies to the name.",
    ),
    principals: Principals,
    operation: list[Operation] | None = OPERATIONS,
    roles: Roles,
    yes: bool = YES,
) -> None:
    """Remove ACLs; those that match are shown first."""
    from penstock.client.admin import PatternType

    acl_filters = filters(
        resources, PatternType[pattern.name], principals, _operations(operation), roles
    )
    removed: list[AclBinding] = []
    with session.admin() as admin:
        matches = _describe(admin, acl_filters)
        if matches:
            if not session.out.as_json:
                _print(session, matches)
            session.confirm(f"Remove {count_of(len(matches), 'ACL')}?", yes=yes)
            deleted = admin.delete_acls(acl_filters)
            removed = list(dict.fromkeys(acl for acls in deleted.values() for acl in acls))
            session.out.note(f"removed {count_of(len(removed), 'ACL')}")
        else:
            session.out.note("no ACL matches: nothing was removed")
    if session.out.as_json:
        _print(session, removed)


def _describe(admin: "Admin", acl_filters: "list[AclBindingFilter]") -> "list[AclBinding]":
    """Returns the ACLs that match any of the filters, each once."""
    return list(
        dict.fromkeys(acl for acl_filter in acl_filters for acl in admin.describe_acls(acl_filter))
    )


def _operations(options: list[Operation] | None) -> "list[AclOperation]":
    from penstock.client.admin import AclOperation

    return [AclOperation[option.name] for option in dict.fromkeys(options or ())]


def _print(session: Session, acls: "Sequence[AclBinding]", *, empty: str = "") -> None:
    from penstock.client.admin import AclPermission

    styles = {AclPermission.ALLOW: "green", AclPermission.DENY: "red"}
    session.out.table(
        ["Resource", "Name", "Pattern", "Principal", "Host", "Operation", "Permission"],
        [
            (
                option_value(acl.resource_type),
                acl.resource_name,
                option_value(acl.pattern_type),
                acl.principal,
                acl.host,
                option_value(acl.operation),
                Marked(option_value(acl.permission), styles.get(acl.permission, "")),
            )
            for acl in acls
        ],
        empty=empty,
    )
