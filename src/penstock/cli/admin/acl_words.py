"""From the options of `penstock acl` to rules and filters: pure decisions (X3)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

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


class Resources(NamedTuple):
    """What rules are about."""

    topics: Sequence[str] = ()
    groups: Sequence[str] = ()
    cluster: bool = False
    transactional_ids: Sequence[str] = ()
    delegation_tokens: Sequence[str] = ()
    users: Sequence[str] = ()

    def named(self) -> "list[tuple[ResourceType, str]]":
        from penstock.client.admin import ResourceType

        return [
            *((ResourceType.TOPIC, topic) for topic in self.topics),
            *((ResourceType.GROUP, group) for group in self.groups),
            *([(ResourceType.CLUSTER, CLUSTER)] if self.cluster else []),
            *(
                (ResourceType.TRANSACTIONAL_ID, transactional_id)
                for transactional_id in self.transactional_ids
            ),
            *(
                (ResourceType.DELEGATION_TOKEN, delegation_token)
                for delegation_token in self.delegation_tokens
            ),
            *((ResourceType.USER, user) for user in self.users),
        ]


class Who(NamedTuple):
    """Principals and the hosts that they come from; hosts only count with principals."""

    allow: Sequence[str] = ()
    deny: Sequence[str] = ()
    allow_hosts: Sequence[str] = ()
    deny_hosts: Sequence[str] = ()

    def entries(self) -> "list[tuple[str, str, AclPermission]]":
        from penstock.client.admin import AclPermission

        for principal in (*self.allow, *self.deny):
            if ":" not in principal:
                raise UsageError(f"'{principal}' is no principal: write User:{principal}")
        for option, hosts, principals in (
            ("allow", self.allow_hosts, self.allow),
            ("deny", self.deny_hosts, self.deny),
        ):
            if hosts and not principals:
                raise UsageError(f"--{option}-host needs --{option}-principal")
        return [
            (principal, host, permission)
            for principals, hosts, permission in (
                (self.allow, self.allow_hosts, AclPermission.ALLOW),
                (self.deny, self.deny_hosts, AclPermission.DENY),
            )
            for principal in principals
            for host in (hosts or [WILDCARD])
        ]


class Roles(NamedTuple):
    """Short words for what a kind of client needs."""

    producer: bool = False
    consumer: bool = False
    idempotent: bool = False


def grants(
    resources: Resources, operations: "Sequence[AclOperation]", roles: Roles
) -> "list[tuple[ResourceType, str, AclOperation]]":
    """What may be done with which resource, as the options say it. Each once."""
    from penstock.client.admin import AclOperation, ResourceType

    op = AclOperation
    named = resources.named()
    result: list[tuple[ResourceType, str, AclOperation]] = []
    if not roles.producer and not roles.consumer:
        if roles.idempotent:
            raise UsageError("--idempotent goes with --producer")
        if not named:
            raise UsageError(
                "say what the rule is about: --topic, --group, --cluster, --transactional-id, "
                "--delegation-token or --user-principal"
            )
        _check_operations(named, operations)
        result = [(*item, operation) for item in named for operation in operations or (op.ALL,)]
    elif operations:
        raise UsageError("--producer and --consumer say the operations: leave --operation away")
    elif resources.cluster or resources.delegation_tokens or resources.users:
        raise UsageError("--producer and --consumer go with --topic, --group, --transactional-id")
    if roles.producer:
        if not resources.topics:
            raise UsageError("--producer needs --topic")
        for kind, name in named:
            if kind is ResourceType.TOPIC:
                result += [(kind, name, item) for item in (op.WRITE, op.DESCRIBE, op.CREATE)]
            elif kind is ResourceType.TRANSACTIONAL_ID:
                result += [(kind, name, item) for item in (op.WRITE, op.DESCRIBE)]
        if roles.idempotent:
            result.append((ResourceType.CLUSTER, CLUSTER, op.IDEMPOTENT_WRITE))
    if roles.consumer:
        if not resources.topics or not resources.groups:
            raise UsageError("--consumer needs --topic and --group")
        for kind, name in named:
            if kind is ResourceType.TOPIC:
                result += [(kind, name, item) for item in (op.READ, op.DESCRIBE)]
            elif kind is ResourceType.GROUP:
                result.append((kind, name, op.READ))
    return list(dict.fromkeys(result))


def _check_operations(
    named: "Sequence[tuple[ResourceType, str]]", operations: "Sequence[AclOperation]"
) -> None:
    from penstock.client.admin import AclOperation
    from penstock.security.acl import SUPPORTED_OPERATIONS

    for kind, _ in named:
        possible = (*SUPPORTED_OPERATIONS.get(kind, ()), AclOperation.ALL)
        for operation in operations:
            if operation not in possible:
                words = ", ".join(sorted(word(item) for item in possible))
                raise UsageError(
                    f"a {word(kind)} has no operation {word(operation)}: it has {words}"
                )


def bindings(
    resources: Resources,
    pattern: "PatternType",
    who: Who,
    operations: "Sequence[AclOperation]",
    roles: Roles,
) -> "list[AclBinding]":
    """The rules to add. `*` always stands for every name, whatever the pattern."""
    from penstock.client.admin import AclBinding, PatternType

    if pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise UsageError("a rule is for a literal or for a prefixed name")
    entries = who.entries()
    if not entries:
        raise UsageError("say whom the rule is for: --allow-principal or --deny-principal")
    result = []
    for kind, name, operation in grants(resources, operations, roles):
        of_kind = PatternType.LITERAL if name in (CLUSTER, WILDCARD) else pattern
        for principal, host, permission in entries:
            result.append(AclBinding(kind, name, of_kind, principal, host, operation, permission))
    return result


def filters(
    resources: Resources,
    pattern: "PatternType",
    who: Who,
    operations: "Sequence[AclOperation]",
    roles: Roles,
) -> "list[AclBindingFilter]":
    """Which rules to remove: what the options leave open may be anything."""
    from penstock.client.admin import AclBindingFilter, AclOperation, PatternType, ResourceType

    entries = who.entries()
    named = resources.named()
    triples: list[tuple[ResourceType, str | None, AclOperation]]
    if roles.producer or roles.consumer or (named and operations):
        triples = list(grants(resources, operations, roles))
    elif named:
        triples = [(kind, name, AclOperation.ANY) for kind, name in named]
    elif entries or operations:
        pattern = PatternType.ANY
        triples = [
            (ResourceType.ANY, None, operation) for operation in operations or (AclOperation.ANY,)
        ]
    else:
        raise UsageError("say which rules: --topic, --group, --cluster, … or a principal")
    result = []
    for kind, name, operation in triples:
        is_literal = kind is ResourceType.CLUSTER or (name, pattern) == (
            WILDCARD,
            PatternType.PREFIXED,
        )
        of_kind = PatternType.LITERAL if is_literal else pattern
        base = AclBindingFilter(kind, name, of_kind, operation=operation)
        result += [
            base._replace(principal=principal, host=host, permission=permission)
            for principal, host, permission in entries
        ] or [base]
    return result


def word(value: "ResourceType | AclOperation | PatternType | AclPermission") -> str:
    """`transactional-id`, `describe-configs`."""
    return value.name.lower().replace("_", "-")
