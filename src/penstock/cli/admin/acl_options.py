"""The options of `penstock acl`, and the ACLs and filters that they stand for (X3)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.cli import complete
from penstock.cli.options import flag, option, option_field
from penstock.cli.output import UsageError

if TYPE_CHECKING:
    from penstock.client.admin import (
        AclBinding,
        AclBindingFilter,
        AclOperation,
        AclPermission,
        PatternType,
        ResourceType,
    )

CLUSTER = "kafka-cluster"
WILDCARD = "*"


@dataclass(frozen=True)
class Resources:
    """The options that name the resources of ACLs."""

    topics: list[str] | None = option_field(
        option("--topic", help="A topic; * for all.", autocompletion=complete.topics)
    )
    groups: list[str] | None = option_field(
        option("--group", help="A group; * for all.", autocompletion=complete.groups)
    )
    cluster: bool = option_field(flag("--cluster", help="The cluster itself."))
    transactional_ids: list[str] | None = option_field(
        option("--transactional-id", help="A transactional id; * for all.")
    )
    delegation_tokens: list[str] | None = option_field(
        option("--delegation-token", help="A delegation token.")
    )
    users: list[str] | None = option_field(
        option("--user-principal", help="A principal whose delegation tokens the ACL is for.")
    )

    def named(self) -> "list[tuple[ResourceType, str]]":
        from penstock.client.admin import ResourceType

        names = {
            ResourceType.TOPIC: self.topics,
            ResourceType.GROUP: self.groups,
            ResourceType.CLUSTER: [CLUSTER] if self.cluster else None,
            ResourceType.TRANSACTIONAL_ID: self.transactional_ids,
            ResourceType.DELEGATION_TOKEN: self.delegation_tokens,
            ResourceType.USER: self.users,
        }
        return [(kind, name) for kind, of_kind in names.items() for name in of_kind or ()]


@dataclass(frozen=True)
class Principals:
    """The options that name principals and the hosts that they connect from."""

    allow: list[str] | None = option_field(
        option(
            "--allow-principal",
            metavar="User:NAME",
            help="A principal that is allowed; User:* for all.",
        )
    )
    deny: list[str] | None = option_field(
        option("--deny-principal", metavar="User:NAME", help="A principal that is denied.")
    )
    allow_hosts: list[str] | None = option_field(
        option("--allow-host", help="Only from this address. Default: any.")
    )
    deny_hosts: list[str] | None = option_field(
        option("--deny-host", help="Denied from this address. Default: any.")
    )

    def entries(self) -> "list[tuple[str, str, AclPermission]]":
        """Returns principal, host and permission of each ACL.

        Raises UsageError for hosts without principals, and for names without a type.
        """
        from penstock.client.admin import AclPermission

        for principal in (*(self.allow or ()), *(self.deny or ())):
            if ":" not in principal:
                raise UsageError(
                    f"'{principal}' is not a principal", remedy=f"write User:{principal}"
                )
        for effect, hosts, principals in (
            ("allow", self.allow_hosts, self.allow),
            ("deny", self.deny_hosts, self.deny),
        ):
            if hosts and not principals:
                raise UsageError(f"--{effect}-host needs --{effect}-principal")
        return [
            (principal, host, permission)
            for principals, hosts, permission in (
                (self.allow, self.allow_hosts, AclPermission.ALLOW),
                (self.deny, self.deny_hosts, AclPermission.DENY),
            )
            for principal in principals or ()
            for host in (hosts or [WILDCARD])
        ]


@dataclass(frozen=True)
class Roles:
    """The options that stand for all operations that a kind of client needs."""

    producer: bool = option_field(
        flag("--producer", help="All operations that a producer needs on --topic.")
    )
    consumer: bool = option_field(
        flag("--consumer", help="All operations that a consumer needs on --topic and --group.")
    )
    idempotent: bool = option_field(
        flag("--idempotent", help="With --producer: idempotence too, for brokers before 3.0.")
    )


def _permitted_operations(
    resources: Resources, operations: "Sequence[AclOperation]", roles: Roles
) -> "list[tuple[ResourceType, str, AclOperation]]":
    """Returns each pair of a resource and an operation that the options name, once."""
    from penstock.client.admin import AclOperation, ResourceType

    op = AclOperation
    named = resources.named()
    permissions: list[tuple[ResourceType, str, AclOperation]] = []
    if not roles.producer and not roles.consumer:
        if roles.idempotent:
            raise UsageError("--idempotent goes with --producer")
        if not named:
            raise UsageError(
                "name a resource: --topic, --group, --cluster, --transactional-id, "
                "--delegation-token or --user-principal"
            )
        _check_operations(named, operations)
        permissions = [
            (*resource, operation) for resource in named for operation in operations or (op.ALL,)
        ]
    elif operations:
        raise UsageError(
            "--producer and --consumer set the operations", remedy="leave out --operation"
        )
    elif resources.cluster or resources.delegation_tokens or resources.users:
        raise UsageError("--producer and --consumer go with --topic, --group, --transactional-id")
    if roles.producer:
        if not resources.topics:
            raise UsageError("--producer needs --topic")
        for kind, name in named:
            if kind is ResourceType.TOPIC:
                permissions += [
                    (kind, name, operation) for operation in (op.WRITE, op.DESCRIBE, op.CREATE)
                ]
            elif kind is ResourceType.TRANSACTIONAL_ID:
                permissions += [(kind, name, operation) for operation in (op.WRITE, op.DESCRIBE)]
        if roles.idempotent:
            permissions.append((ResourceType.CLUSTER, CLUSTER, op.IDEMPOTENT_WRITE))
    if roles.consumer:
        if not resources.topics or not resources.groups:
            raise UsageError("--consumer needs --topic and --group")
        for kind, name in named:
            if kind is ResourceType.TOPIC:
                permissions += [(kind, name, operation) for operation in (op.READ, op.DESCRIBE)]
            elif kind is ResourceType.GROUP:
                permissions.append((kind, name, op.READ))
    return list(dict.fromkeys(permissions))


def _check_operations(
    named: "Sequence[tuple[ResourceType, str]]", operations: "Sequence[AclOperation]"
) -> None:
    from penstock.client.admin import AclOperation
    from penstock.security.acl import SUPPORTED_OPERATIONS

    for kind, _ in named:
        possible = (*SUPPORTED_OPERATIONS.get(kind, ()), AclOperation.ALL)
        for operation in operations:
            if operation not in possible:
                supported = ", ".join(
                    sorted(option_value(supported_operation) for supported_operation in possible)
                )
                raise UsageError(
                    f"a {option_value(kind)} has no operation {option_value(operation)}: it has "
                    f"{supported}"
                )


def bindings(
    resources: Resources,
    pattern: "PatternType",
    principals: Principals,
    operations: "Sequence[AclOperation]",
    roles: Roles,
) -> "list[AclBinding]":
    """Returns the ACLs to add. The name `*` is literal with any pattern type: it means all."""
    from penstock.client.admin import AclBinding, PatternType

    if pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise UsageError("an ACL has a literal or a prefixed name")
    entries = principals.entries()
    if not entries:
        raise UsageError("name a principal: --allow-principal or --deny-principal")
    acls = []
    for kind, name, operation in _permitted_operations(resources, operations, roles):
        of_kind = PatternType.LITERAL if name in (CLUSTER, WILDCARD) else pattern
        for principal, host, permission in entries:
            acls.append(AclBinding(kind, name, of_kind, principal, host, operation, permission))
    return acls


def filters(
    resources: Resources,
    pattern: "PatternType",
    principals: Principals,
    operations: "Sequence[AclOperation]",
    roles: Roles,
) -> "list[AclBindingFilter]":
    """Returns the filters of the ACLs to remove. They match anything that no option restricts."""
    from penstock.client.admin import AclBindingFilter, AclOperation, PatternType, ResourceType

    entries = principals.entries()
    named = resources.named()
    triples: list[tuple[ResourceType, str | None, AclOperation]]
    if roles.producer or roles.consumer or (named and operations):
        triples = list(_permitted_operations(resources, operations, roles))
    elif named:
        triples = [(kind, name, AclOperation.ANY) for kind, name in named]
    elif entries or operations:
        pattern = PatternType.ANY
        triples = [
            (ResourceType.ANY, None, operation) for operation in operations or (AclOperation.ANY,)
        ]
    else:
        raise UsageError("name the ACLs to remove: --topic, --group, --cluster, … or a principal")
    acl_filters = []
    for kind, name, operation in triples:
        is_literal = kind is ResourceType.CLUSTER or (name, pattern) == (
            WILDCARD,
            PatternType.PREFIXED,
        )
        of_kind = PatternType.LITERAL if is_literal else pattern
        base = AclBindingFilter(kind, name, of_kind, operation=operation)
        acl_filters += [
            base._replace(principal=principal, host=host, permission=permission)
            for principal, host, permission in entries
        ] or [base]
    return acl_filters


def option_value(value: "ResourceType | AclOperation | PatternType | AclPermission") -> str:
    """Returns the name that options and tables have for it: `describe-configs`."""
    return value.name.lower().replace("_", "-")
