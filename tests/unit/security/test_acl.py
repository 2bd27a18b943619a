"""Resources, operations, and the ACLs and filters that requests carry (X3)."""

import pytest

from penstock.controller.metadata import AccessControlEntry, AclKey
from penstock.core.errors import ErrorCode, KafkaError
from penstock.security.acl import (
    SUPPORTED_OPERATIONS,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
    all_operations,
    new_binding,
)


def test_an_unknown_number_is_unknown() -> None:
    assert ResourceType.from_code(2) is ResourceType.TOPIC
    assert ResourceType.from_code(99) is ResourceType.UNKNOWN
    assert AclOperation.from_code(-1) is AclOperation.UNKNOWN
    assert AclOperation.from_code(15) is AclOperation.TWO_PHASE_COMMIT


@pytest.mark.parametrize(
    ("resource_type", "bits"),
    [
        (ResourceType.TOPIC, 0b1101_1111_1000),
        (ResourceType.GROUP, 0b1101_0100_1000),
        (ResourceType.CLUSTER, 0b1_1111_1010_0000),
        (ResourceType.TRANSACTIONAL_ID, 0b1000_0001_0001_0000),
        (ResourceType.DELEGATION_TOKEN, 0b1_0000_0000),
        (ResourceType.USER, 0b110_0000_0000_0000),
    ],
)
def test_all_operations_of_a_resource(resource_type: ResourceType, bits: int) -> None:
    """The operations that AclEntry of Kafka 4.3.1 lists, by their codes."""
    assert all_operations(resource_type) == bits


def test_only_real_resources_have_operations() -> None:
    assert set(SUPPORTED_OPERATIONS) == set(ResourceType) - {ResourceType.ANY, ResourceType.UNKNOWN}


def test_a_valid_binding_is_converted_to_metadata() -> None:
    pattern, entry = new_binding(2, "orders", 4, "User:ann", "*", 3, 3)
    assert AclKey(*pattern) == AclKey("TOPIC", "PREFIXED", "orders")
    assert AccessControlEntry(*entry) == AccessControlEntry("User:ann", "*", "READ", "ALLOW")
    assert new_binding(4, "kafka-cluster", 3, "User:*", "10.0.0.1", 2, 2).entry.operation == "ALL"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"resource_type": 4}, "kafka-cluster"),
        ({"resource_name": ""}, "resource name"),
        ({"resource_type": 0}, "resource type 0"),
        ({"resource_type": 1}, "resource type 1"),
        ({"resource_type": 50}, "resource type 50"),
        ({"pattern_type": 1}, "pattern type 1"),
        ({"pattern_type": 2}, "pattern type 2"),
        ({"pattern_type": 9}, "pattern type 9"),
        ({"operation": 0}, "operation 0"),
        ({"operation": 1}, "operation 1"),
        ({"operation": 16}, "operation 16"),
        ({"permission": 0}, "permission type 0"),
        ({"permission": 1}, "permission type 1"),
        ({"principal": "ann"}, "no colon"),
        ({"principal": ""}, "no colon"),
    ],
)
def test_a_bad_binding_is_refused(change: dict[str, int | str], reason: str) -> None:
    good: dict[str, int | str] = {
        "resource_type": 2,
        "resource_name": "orders",
        "pattern_type": 3,
        "principal": "User:ann",
        "host": "*",
        "operation": 3,
        "permission": 3,
    }
    with pytest.raises(KafkaError, match=reason) as raised:
        new_binding(**{**good, **change})  # type: ignore[arg-type]
    assert raised.value.code is ErrorCode.INVALID_REQUEST


PATTERNS = [
    AclKey("TOPIC", "LITERAL", "orders"),
    AclKey("TOPIC", "LITERAL", "*"),
    AclKey("TOPIC", "PREFIXED", "ord"),
    AclKey("TOPIC", "PREFIXED", "orders"),
    AclKey("TOPIC", "PREFIXED", "x"),
    AclKey("GROUP", "LITERAL", "orders"),
]


@pytest.mark.parametrize(
    ("resource_type", "pattern_type", "name", "matches"),
    [
        ("ANY", "ANY", None, [0, 1, 2, 3, 4, 5]),
        ("TOPIC", "ANY", None, [0, 1, 2, 3, 4]),
        ("TOPIC", "ANY", "orders", [0, 3]),
        ("TOPIC", "LITERAL", "orders", [0]),
        ("TOPIC", "LITERAL", "*", [1]),
        ("TOPIC", "LITERAL", None, [0, 1]),
        ("TOPIC", "PREFIXED", "ord", [2]),
        ("TOPIC", "PREFIXED", "o", []),
        ("TOPIC", "MATCH", "orders", [0, 1, 2, 3]),
        ("TOPIC", "MATCH", "ordeal", [1, 2]),
        ("TOPIC", "MATCH", "*", [1]),
        ("ANY", "MATCH", "orders", [0, 1, 2, 3, 5]),
        ("TOPIC", "MATCH", None, [0, 1, 2, 3, 4]),
        ("CLUSTER", "ANY", None, []),
    ],
)
def test_a_filter_matches_patterns(
    resource_type: str, pattern_type: str, name: str | None, matches: list[int]
) -> None:
    acl_filter = AclFilter(
        ResourceType[resource_type],
        name,
        PatternType[pattern_type],
        None,
        None,
        AclOperation.ANY,
        AclPermission.ANY,
    )
    assert [i for i, key in enumerate(PATTERNS) if acl_filter.matches_pattern(key)] == matches


@pytest.mark.parametrize(
    ("change", "matches"),
    [
        ({}, True),
        ({"principal": "User:ann", "host": "*", "operation": 3, "permission": 3}, True),
        ({"principal": "User:*"}, False),
        ({"host": "10.0.0.1"}, False),
        ({"operation": 2}, False),
        ({"permission": 2}, False),
    ],
)
def test_a_filter_matches_entries(change: dict[str, str | int], matches: bool) -> None:
    """Wildcards of entries are names here, not patterns."""
    fields: dict[str, str | int | None] = {
        "resource_type": 1,
        "name": None,
        "pattern_type": 1,
        "principal": None,
        "host": None,
        "operation": 1,
        "permission": 1,
    }
    acl_filter = AclFilter.of_codes(**{**fields, **change})  # type: ignore[arg-type]
    entry = AccessControlEntry("User:ann", "*", "READ", "ALLOW")
    assert acl_filter.matches_entry(entry) is matches


@pytest.mark.parametrize(
    ("codes", "reason"),
    [
        ((0, 1, 1, 1), "ResourceType 0"),
        ((1, 5, 1, 1), "PatternType 5"),
        ((1, 1, 77, 1), "AclOperation 77"),
        ((1, 1, 1, 4), "AclPermission 4"),
    ],
)
def test_a_filter_with_an_unknown_number_is_refused(
    codes: tuple[int, int, int, int], reason: str
) -> None:
    with pytest.raises(KafkaError, match=reason) as raised:
        AclFilter.of_codes(codes[0], None, codes[1], None, None, codes[2], codes[3])
    assert raised.value.code is ErrorCode.INVALID_REQUEST
