"""`penstock acl`: who may do what (kafka-acls.sh; X3)."""

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import complete
from penstock.cli.admin.acl_words import Resources, Roles, Who, bindings, filters, word
from penstock.cli.app import new_group
from penstock.cli.names import count_of
from penstock.cli.output import Marked
from penstock.cli.session import Session, Yes, command

if TYPE_CHECKING:
    from penstock.client.admin import AclBinding, AclOperation

app = new_group("Rules that say who may do what: list, add, remove.")


class Pattern(StrEnum):
    ANY = "any"
    MATCH = "match"
    LITERAL = "literal"
    PREFIXED = "prefixed"


class RulePattern(StrEnum):
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


Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", help="A topic; * for all.", autocompletion=complete.topics),
]
Groups = Annotated[
    list[str] | None,
    typer.Option("--group", help="A group; * for all.", autocompletion=complete.groups),
]
Cluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
Ids = Annotated[
    list[str] | None, typer.Option("--transactional-id", help="A transactional id; * for all.")
]
Tokens = Annotated[list[str] | None, typer.Option("--delegation-token", help="A token.")]
Users = Annotated[
    list[str] | None,
    typer.Option("--user-principal", help="A principal whose tokens the rule is about."),
]
Allow = Annotated[
    list[str] | None,
    typer.Option("--allow-principal", metavar="User:NAME", help="Who may; User:* for all."),
]
Deny = Annotated[
    list[str] | None,
    typer.Option("--deny-principal", metavar="User:NAME", help="Who may not."),
]
AllowHosts = Annotated[
    list[str] | None, typer.Option("--allow-host", help="From this address only; * without.")
]
DenyHosts = Annotated[
    list[str] | None, typer.Option("--deny-host", help="Not from this address; * without.")
]
Operations = Annotated[
    list[Operation] | None,
    typer.Option("--operation", help="What may (not) be done; may be repeated. all without."),
]
Producer = Annotated[bool, typer.Option("--producer", help="All that a producer needs on --topic.")]
Consumer = Annotated[
    bool, typer.Option("--consumer", help="All that a consumer needs on --topic and --group.")
]
Idempotent = Annotated[
    bool,
    typer.Option("--idempotent", help="With --producer: idempotence too, for brokers before 3.0."),
]


@command(app, "list")
def list_acls(
    session: Session,
    topic: Topics = None,
    group: Groups = None,
    cluster: Cluster = False,
    transactional_id: Ids = None,
    delegation_token: Tokens = None,
    user_principal: Users = None,
    pattern: Annotated[
        Pattern,
        typer.Option("--resource-pattern-type", help="match: every rule that applies to the name."),
    ] = Pattern.LITERAL,
    principal: Annotated[
        list[str] | None,
        typer.Option("--principal", metavar="User:NAME", help="Only rules for this principal."),
    ] = None,
) -> None:
    """List rules: all, or those about some resource or principal."""
    from penstock.client.admin import AclBindingFilter, PatternType

    named = _resources(
        topic, group, cluster, transactional_id, delegation_token, user_principal
    ).named()
    chosen = [AclBindingFilter(kind, name, PatternType[pattern.name]) for kind, name in named]
    chosen = chosen or [AclBindingFilter()]
    if principal:
        chosen = [item._replace(principal=entry) for item in chosen for entry in principal]
    with session.admin() as admin:
        result = {acl: None for item in chosen for acl in admin.describe_acls(item)}
    _print(session, list(result), empty="there are no such rules")


@command(app, "add")
def add(
    session: Session,
    topic: Topics = None,
    group: Groups = None,
    cluster: Cluster = False,
    transactional_id: Ids = None,
    delegation_token: Tokens = None,
    user_principal: Users = None,
    pattern: Annotated[
        RulePattern,
        typer.Option("--resource-pattern-type", help="prefixed: all names that begin like this."),
    ] = RulePattern.LITERAL,
    allow_principal: Allow = None,
    deny_principal: Deny = None,
    allow_host: AllowHosts = None,
    deny_host: DenyHosts = None,
    operation: Operations = None,
    producer: Producer = False,
    consumer: Consumer = False,
    idempotent: Idempotent = False,
) -> None:
    """Add rules."""
    from penstock.client.admin import PatternType

    new = bindings(
        _resources(topic, group, cluster, transactional_id, delegation_token, user_principal),
        PatternType[pattern.name],
        Who(allow_principal or (), deny_principal or (), allow_host or (), deny_host or ()),
        _operations(operation),
        Roles(producer, consumer, idempotent),
    )
    with session.admin() as admin:
        admin.create_acls(new)
    session.out.note(f"added {count_of(len(new), 'rule')}:")
    _print(session, new)


@command(app, "remove")
def remove(
    session: Session,
    topic: Topics = None,
    group: Groups = None,
    cluster: Cluster = False,
    transactional_id: Ids = None,
    delegation_token: Tokens = None,
    user_principal: Users = None,
    pattern: Annotated[
        Pattern,
        typer.Option("--resource-pattern-type", help="match: every rule that applies to the name."),
    ] = Pattern.LITERAL,
    allow_principal: Allow = None,
    deny_principal: Deny = None,
    allow_host: AllowHosts = None,
    deny_host: DenyHosts = None,
    operation: Operations = None,
    producer: Producer = False,
    consumer: Consumer = False,
    idempotent: Idempotent = False,
    yes: Yes = False,
) -> None:
    """Remove rules; those that fit are shown first."""
    from penstock.client.admin import PatternType

    chosen = filters(
        _resources(topic, group, cluster, transactional_id, delegation_token, user_principal),
        PatternType[pattern.name],
        Who(allow_principal or (), deny_principal or (), allow_host or (), deny_host or ()),
        _operations(operation),
        Roles(producer, consumer, idempotent),
    )
    with session.admin() as admin:
        result = {acl: None for item in chosen for acl in admin.describe_acls(item)}
        if result:
            _print(session, list(result), only_people=True)
            session.confirm(f"Remove {count_of(len(result), 'rule')}?", yes=yes)
            deleted = admin.delete_acls(chosen)
            gone = list(dict.fromkeys(item for some in deleted.values() for item in some))
            session.out.note(f"removed {count_of(len(gone), 'rule')}")
        else:
            gone = []
            session.out.note("no rule fits: nothing was removed")
    if session.out.as_json:
        _print(session, gone)


def _resources(
    topic: list[str] | None,
    group: list[str] | None,
    cluster: bool,
    transactional_id: list[str] | None,
    delegation_token: list[str] | None,
    user_principal: list[str] | None,
) -> Resources:
    return Resources(
        topic or (),
        group or (),
        cluster,
        transactional_id or (),
        delegation_token or (),
        user_principal or (),
    )


def _operations(chosen: list[Operation] | None) -> "list[AclOperation]":
    from penstock.client.admin import AclOperation

    return [AclOperation[item.name] for item in dict.fromkeys(chosen or ())]


def _print(
    session: Session,
    rules: "Sequence[AclBinding]",
    *,
    empty: str = "",
    only_people: bool = False,
) -> None:
    from penstock.client.admin import AclPermission

    if only_people and session.out.as_json:
        return
    styles = {AclPermission.ALLOW: "green", AclPermission.DENY: "red"}
    session.out.table(
        ["Resource", "Name", "Pattern", "Principal", "Host", "Operation", "Permission"],
        [
            (
                word(rule.resource_type),
                rule.resource_name,
                word(rule.pattern_type),
                rule.principal,
                rule.host,
                word(rule.operation),
                Marked(word(rule.permission), styles.get(rule.permission, "")),
            )
            for rule in rules
        ],
        empty=empty,
    )
