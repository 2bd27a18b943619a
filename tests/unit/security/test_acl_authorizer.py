"""The authorizer (X3): single rules, and random ACLs against a simple model.

`authorize`, `authorize_by_resource_type` and `acls` were compared with StandardAuthorizer of Kafka
4.3.1 on random ACLs. They differ in one case only: a longer name that starts with `*` is for
Kafka not under the wildcard pattern.
"""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.controller.metadata import AccessControlEntry, AclKey
from penstock.core.errors import KafkaError
from penstock.security import acl_authorizer as authorizer_module
from penstock.security.acl import (
    AclFilter,
    AclOperation,
    AclPermission,
    Entry,
    PatternKey,
    PatternType,
    ResourceType,
)
from penstock.security.acl_authorizer import AclAuthorizer, parse_super_users
from penstock.security.principal import Principal

ANN = Principal("User", "ann")
HOST = "10.0.0.1"
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP


def entry(
    operation: str = "READ", permission: str = "ALLOW", principal: str = "User:ann", host: str = "*"
) -> AccessControlEntry:
    return AccessControlEntry(principal, host, operation, permission)


def may(authorizer: AclAuthorizer, operation: AclOperation = READ, name: str = "orders") -> bool:
    return authorizer.authorize(ANN, HOST, operation, TOPIC, name)


def with_acls(*acls: tuple[str, str, AccessControlEntry], everyone: bool = False) -> AclAuthorizer:
    authorizer = AclAuthorizer(allow_everyone_if_no_acl_found=everyone)
    keys = {AclKey("TOPIC", pattern_type, name) for pattern_type, name, _ in acls}
    for key in keys:
        authorizer.put(key, [e for *pattern, e in acls if tuple(pattern) == key[1:]])
    return authorizer


def test_without_acls_the_setting_decides() -> None:
    assert not may(AclAuthorizer())
    assert may(AclAuthorizer(allow_everyone_if_no_acl_found=True))


def test_the_setting_is_only_for_resources_without_acls() -> None:
    authorizer = with_acls(("PREFIXED", "ord", entry(principal="User:bob")), everyone=True)
    assert not may(authorizer)
    assert may(authorizer, name="other")


def test_super_users_may_do_everything() -> None:
    authorizer = AclAuthorizer(parse_super_users(" User:bob;User:ann ; "))
    authorizer.put(AclKey("TOPIC", "LITERAL", "*"), [entry("ALL", "DENY")])
    assert may(authorizer)
    assert not authorizer.authorize(Principal("Group", "ann"), HOST, READ, TOPIC, "orders")
    with pytest.raises(KafkaError, match="no colon"):
        parse_super_users("ann")


@pytest.mark.parametrize(
    ("pattern_type", "name", "applies"),
    [
        ("LITERAL", "orders", True),
        ("LITERAL", "order", False),
        ("LITERAL", "*", True),
        ("PREFIXED", "orders", True),
        ("PREFIXED", "o", True),
        ("PREFIXED", "orders2", False),
        ("PREFIXED", "*", False),
    ],
)
def test_matching_patterns_apply(pattern_type: str, name: str, applies: bool) -> None:
    assert may(with_acls((pattern_type, name, entry()))) is applies


@pytest.mark.parametrize(
    ("principal", "host", "applies"),
    [
        ("User:ann", HOST, True),
        ("User:*", "*", True),
        ("User:ann", "10.0.0.2", False),
        ("User:bob", "*", False),
        ("Group:*", "*", False),
    ],
)
def test_entries_apply_by_principal_and_host(principal: str, host: str, applies: bool) -> None:
    acl = entry(principal=principal, host=host)
    assert may(with_acls(("LITERAL", "orders", acl))) is applies


def test_deny_wins_in_any_matching_pattern() -> None:
    for pattern in (("LITERAL", "*"), ("PREFIXED", "o"), ("LITERAL", "orders")):
        allow = ("LITERAL", "orders", entry("ALL"))
        deny = (*pattern, entry("READ", "DENY", "User:*"))
        authorizer = with_acls(allow, deny)
        assert not may(authorizer)
        assert may(authorizer, WRITE)


@pytest.mark.parametrize("operation", ["READ", "WRITE", "DELETE", "ALTER", "ALL", "DESCRIBE"])
def test_operations_that_imply_describe(operation: str) -> None:
    assert may(with_acls(("LITERAL", "orders", entry(operation))), DESCRIBE)
    denied = with_acls(
        ("LITERAL", "orders", entry("DESCRIBE")), ("LITERAL", "*", entry(operation, "DENY"))
    )
    assert may(denied, DESCRIBE) is (operation not in ("ALL", "DESCRIBE"))


def test_operations_that_imply_no_other() -> None:
    for operation in ("CREATE", "ALTER_CONFIGS", "DESCRIBE_CONFIGS", "CLUSTER_ACTION"):
        assert not may(with_acls(("LITERAL", "orders", entry(operation))), DESCRIBE)
    alters = with_acls(("LITERAL", "orders", entry("ALTER_CONFIGS")))
    assert may(alters, AclOperation.DESCRIBE_CONFIGS)
    assert not may(with_acls(("LITERAL", "orders", entry("DESCRIBE"))), READ)


def test_decisions_follow_the_acls() -> None:
    """Cached decisions are dropped when an ACL changes."""
    authorizer = AclAuthorizer()
    key = AclKey("TOPIC", "PREFIXED", "ord")
    assert not may(authorizer)
    authorizer.put(key, [entry()])
    assert may(authorizer)
    authorizer.put(key, [entry("WRITE")])
    assert not may(authorizer)
    authorizer.put(key, [entry(), entry("WRITE")])
    assert may(authorizer)
    authorizer.put(key, [])
    assert not may(authorizer)
    authorizer.put(key, [entry()])
    authorizer.delete(key)
    authorizer.delete(key)
    authorizer.delete(AclKey("GROUP", "LITERAL", "nothing"))
    assert not may(authorizer)


def test_the_cache_of_decisions_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorizer_module, "CACHE_LIMIT", 10)
    authorizer = with_acls(("PREFIXED", "ord", entry()))
    assert [may(authorizer, name=f"orders{i}") for i in range(25)] == [True] * 25
    assert len(authorizer._decisions) <= 10


def test_authorized_operations() -> None:
    authorizer = with_acls(("LITERAL", "orders", entry("READ")), ("LITERAL", "*", entry("CREATE")))
    bits = authorizer.authorized_operations(ANN, HOST, TOPIC, "orders")
    assert bits == 1 << READ | 1 << DESCRIBE | 1 << AclOperation.CREATE
    assert authorizer.authorized_operations(ANN, HOST, GROUP, "orders") == 0


@pytest.mark.parametrize(
    ("acls", "allowed"),
    [
        ([], False),
        ([("LITERAL", "t", entry("WRITE"))], True),
        ([("LITERAL", "t", entry("ALL"))], True),
        ([("LITERAL", "*", entry("WRITE"))], True),
        ([("LITERAL", "t", entry("READ"))], False),
        ([("PREFIXED", "t", entry("WRITE"))], True),
        ([("LITERAL", "t", entry("WRITE")), ("LITERAL", "t", entry("WRITE", "DENY"))], False),
        ([("LITERAL", "tt", entry("WRITE")), ("PREFIXED", "t", entry("ALL", "DENY"))], False),
        ([("PREFIXED", "t", entry("WRITE")), ("PREFIXED", "tt", entry("WRITE", "DENY"))], True),
        ([("PREFIXED", "t", entry("WRITE")), ("LITERAL", "t", entry("WRITE", "DENY"))], True),
        ([("PREFIXED", "t", entry("WRITE")), ("LITERAL", "*", entry("WRITE", "DENY"))], False),
        ([("LITERAL", "*", entry("WRITE")), ("PREFIXED", "t", entry("WRITE", "DENY"))], True),
    ],
)
def test_idempotent_writing_needs_one_topic(
    acls: list[tuple[str, str, AccessControlEntry]], allowed: bool
) -> None:
    """P3: a principal that may write to some topic may produce idempotently (KIP-679)."""
    authorizer = with_acls(*acls)
    for _ in range(2):
        assert authorizer.authorize_by_resource_type(ANN, HOST, WRITE, TOPIC) is allowed


# --- against an oracle

NAMES = st.sampled_from(["a", "ab", "abc", "b", "ba", "*", "hardcode", "hard"])
PRINCIPALS = ["User:ann", "User:bob", "User:*", "Group:ann"]
HOSTS = ["10.0.0.1", "10.0.0.2"]
KEYS = st.builds(
    AclKey, st.sampled_from(["TOPIC", "GROUP"]), st.sampled_from(["LITERAL", "PREFIXED"]), NAMES
)
OPERATIONS = ["READ", "WRITE", "ALTER", "DESCRIBE", "ALTER_CONFIGS", "DESCRIBE_CONFIGS"]
ENTRIES = st.builds(
    AccessControlEntry,
    st.sampled_from(PRINCIPALS),
    st.sampled_from([*HOSTS, "*"]),
    st.sampled_from([*OPERATIONS, "ALL"]),
    st.sampled_from(["ALLOW", "DENY"]),
)
ACLS = st.dictionaries(KEYS, st.frozensets(ENTRIES, min_size=1, max_size=4), max_size=8)
Acls = dict[AclKey, frozenset[AccessControlEntry]]


def applies(key: PatternKey, resource_type: str, name: str) -> bool:
    if key[0] != resource_type:
        return False
    if key[1] == "PREFIXED":
        return name.startswith(key[2])
    return key[2] in (name, "*")


def concerns(acl: Entry, principal: str, host: str) -> bool:
    return acl[0] in (principal, "User:*") and acl[1] in (host, "*")


def oracle(
    acls: Acls, everyone: bool, principal: str, host: str, operation: str, kind: str, name: str
) -> bool:
    result = [e for key, entries in acls.items() if applies(key, kind, name) for e in entries]
    if not result:
        return everyone
    matching = [e for e in result if concerns(e, principal, host)]
    if any(e.permission == "DENY" and e.operation in (operation, "ALL") for e in matching):
        return False
    enough = {operation, "ALL"}
    if operation == "DESCRIBE":
        enough |= {"READ", "WRITE", "DELETE", "ALTER"}
    if operation == "DESCRIBE_CONFIGS":
        enough |= {"ALTER_CONFIGS"}
    return any(e.permission == "ALLOW" and e.operation in enough for e in matching)


@given(
    ACLS,
    st.booleans(),
    st.lists(
        st.tuples(
            st.sampled_from(PRINCIPALS),
            st.sampled_from(HOSTS),
            st.sampled_from(OPERATIONS),
            st.sampled_from(["TOPIC", "GROUP", "CLUSTER"]),
            NAMES | st.text("ab", max_size=4),
        ),
        min_size=10,
        max_size=40,
    ),
)
def test_decisions_agree_with_a_simple_model(
    acls: Acls, everyone: bool, questions: list[tuple[str, str, str, str, str]]
) -> None:
    authorizer = AclAuthorizer(allow_everyone_if_no_acl_found=everyone)
    for key, entries in acls.items():
        authorizer.put(key, entries)
    for principal, host, operation, kind, name in questions * 2:
        decision = authorizer.authorize(
            Principal.parse(principal), host, AclOperation[operation], ResourceType[kind], name
        )
        assert decision is oracle(acls, everyone, principal, host, operation, kind, name)


def test_a_long_history_of_changes() -> None:
    """Puts and deletes in any order leave the same decisions as the ACLs that remain."""
    random = Random(11)
    names = ["".join(random.choices("abc", k=random.randint(1, 5))) for _ in range(60)] + ["*"]
    authorizer = AclAuthorizer()
    acls: Acls = {}
    for _ in range(3000):
        key = AclKey("TOPIC", random.choice(["LITERAL", "PREFIXED"]), random.choice(names))
        if random.random() < 0.4:
            authorizer.delete(key)
            acls.pop(key, None)
        else:
            acls[key] = frozenset(
                AccessControlEntry(
                    random.choice(PRINCIPALS),
                    random.choice([*HOSTS, "*"]),
                    random.choice(OPERATIONS),
                    random.choice(["ALLOW", "ALLOW", "DENY"]),
                )
                for _ in range(random.randint(1, 3))
            )
            authorizer.put(key, acls[key])
        question = (random.choice(PRINCIPALS), random.choice(HOSTS), random.choice(OPERATIONS))
        name = random.choice(names) + random.choice(["", "a"])
        decision = authorizer.authorize(
            Principal.parse(question[0]), question[1], AclOperation[question[2]], TOPIC, name
        )
        assert decision is oracle(acls, False, *question, "TOPIC", name)
    remaining_acls = {k: frozenset(result) for k, result in authorizer.acls(EVERYTHING)}
    assert remaining_acls == acls


EVERYTHING = AclFilter(
    ResourceType.ANY, None, PatternType.ANY, None, None, AclOperation.ANY, AclPermission.ANY
)


@given(ACLS, NAMES, st.sampled_from(list(PatternType)[1:]), st.sampled_from([None, *PRINCIPALS]))
def test_a_filter_returns_the_matching_acls(
    acls: Acls, name: str, pattern_type: PatternType, principal: str | None
) -> None:
    authorizer = AclAuthorizer()
    for key, entries in acls.items():
        authorizer.put(key, entries)
    acl_filter = EVERYTHING._replace(name=name, pattern_type=pattern_type, principal=principal)
    result = {(key, e) for key, entries in authorizer.acls(acl_filter) for e in entries}
    assert result == {
        (key, e)
        for key, entries in acls.items()
        for e in entries
        if acl_filter.matches_pattern(key) and acl_filter.matches_entry(e)
    }
