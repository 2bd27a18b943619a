"""The ACLs and filters that options stand for (X3)."""

import pytest

from penstock.cli.admin.acl_options import Principals, Resources, Roles, bindings, filters
from penstock.cli.output import UsageError
from penstock.client.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)

LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
ANN = Principals(allow=["User:ann"])
NO_ROLES = Roles()


def pairs(result: list[AclBinding]) -> set[tuple[str, str, str, str]]:
    return {
        (item.resource_type.name, item.resource_name, item.pattern_type.name, item.operation.name)
        for item in result
    }


def test_every_principal_host_and_operation() -> None:
    principals = Principals(["User:a", "User:b"], ["User:c"], ["10.0.0.1"], [])
    result = bindings(Resources(topics=["t"]), LITERAL, principals, [READ, WRITE], NO_ROLES)
    assert len(result) == 6
    assert AclBinding(TOPIC, "t", LITERAL, "User:a", "10.0.0.1", READ, ALLOW) in result
    assert AclBinding(TOPIC, "t", LITERAL, "User:c", "*", WRITE, DENY) in result


def test_without_operations_all_are_meant() -> None:
    result = bindings(Resources(groups=["g"]), PREFIXED, ANN, [], NO_ROLES)
    assert pairs(result) == {("GROUP", "g", "PREFIXED", "ALL")}


def test_what_a_producer_needs() -> None:
    resources = Resources(topics=["t"], transactional_ids=["x"])
    result = bindings(resources, PREFIXED, ANN, [], Roles(producer=True, idempotent=True))
    assert pairs(result) == {
        ("TOPIC", "t", "PREFIXED", "WRITE"),
        ("TOPIC", "t", "PREFIXED", "DESCRIBE"),
        ("TOPIC", "t", "PREFIXED", "CREATE"),
        ("TRANSACTIONAL_ID", "x", "PREFIXED", "WRITE"),
        ("TRANSACTIONAL_ID", "x", "PREFIXED", "DESCRIBE"),
        ("CLUSTER", "kafka-cluster", "LITERAL", "IDEMPOTENT_WRITE"),
    }


def test_what_a_consumer_needs_and_both() -> None:
    resources = Resources(topics=["t"], groups=["*"])
    result = bindings(resources, PREFIXED, ANN, [], Roles(consumer=True))
    consumer = {
        ("TOPIC", "t", "PREFIXED", "READ"),
        ("TOPIC", "t", "PREFIXED", "DESCRIBE"),
        ("GROUP", "*", "LITERAL", "READ"),
    }
    assert pairs(result) == consumer
    both = bindings(resources, PREFIXED, ANN, [], Roles(producer=True, consumer=True))
    assert len(both) == len(pairs(both)) == 5
    assert consumer < pairs(both)


@pytest.mark.parametrize(
    ("resources", "principals", "operations", "roles", "reason"),
    [
        (
            Resources(topics=["t"]),
            Principals(),
            [],
            NO_ROLES,
            "--allow-principal or --deny-principal",
        ),
        (Resources(), ANN, [], NO_ROLES, "name a resource"),
        (Resources(topics=["t"]), Principals(allow=["ann"]), [], NO_ROLES, "write User:ann"),
        (
            Resources(topics=["t"]),
            Principals(deny=["User:a"], allow_hosts=["h"]),
            [],
            NO_ROLES,
            "needs",
        ),
        (Resources(groups=["g"]), ANN, [WRITE], NO_ROLES, "a group has no operation write: it has"),
        (Resources(topics=["t"]), ANN, [], Roles(idempotent=True), "goes with --producer"),
        (Resources(topics=["t"]), ANN, [READ], Roles(producer=True), "leave out --operation"),
        (Resources(groups=["g"]), ANN, [], Roles(producer=True), "--producer needs --topic"),
        (Resources(topics=["t"]), ANN, [], Roles(consumer=True), "needs --topic and --group"),
        (Resources(cluster=True), ANN, [], Roles(producer=True), "go with --topic"),
    ],
)
def test_options_that_make_no_acl(
    resources: Resources,
    principals: Principals,
    operations: list[AclOperation],
    roles: Roles,
    reason: str,
) -> None:
    with pytest.raises(UsageError, match=reason):
        bindings(resources, LITERAL, principals, operations, roles)


def test_an_acl_needs_a_name_or_the_beginning_of_one() -> None:
    with pytest.raises(UsageError, match="literal or a prefixed name"):
        bindings(Resources(topics=["t"]), PatternType.MATCH, ANN, [], NO_ROLES)


def test_filters_leave_open_what_is_not_said() -> None:
    nobody = Principals()
    assert filters(Resources(topics=["t"]), LITERAL, nobody, [], NO_ROLES) == [
        AclBindingFilter(TOPIC, "t", LITERAL)
    ]
    assert filters(Resources(topics=["t"]), PatternType.MATCH, ANN, [READ], NO_ROLES) == [
        AclBindingFilter(TOPIC, "t", PatternType.MATCH, "User:ann", "*", READ, ALLOW)
    ]
    assert filters(Resources(), LITERAL, ANN, [], NO_ROLES) == [
        AclBindingFilter(principal="User:ann", host="*", permission=ALLOW)
    ]
    assert filters(Resources(), LITERAL, nobody, [READ], NO_ROLES) == [
        AclBindingFilter(operation=READ)
    ]
    assert filters(
        Resources(topics=["t"], groups=["*"]), PREFIXED, nobody, [], Roles(consumer=True)
    ) == [
        AclBindingFilter(TOPIC, "t", PREFIXED, operation=READ),
        AclBindingFilter(TOPIC, "t", PREFIXED, operation=DESCRIBE),
        AclBindingFilter(GROUP, "*", LITERAL, operation=READ),
    ]
    with pytest.raises(UsageError, match="name the ACLs"):
        filters(Resources(), LITERAL, nobody, [], NO_ROLES)
