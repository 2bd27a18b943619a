"""Quotas as requests name them (X4)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ErrorCode, KafkaError
from penstock.security.quota_entities import (
    DEFAULT_NAME,
    Entity,
    QuotaFilter,
    altered_values,
    entity_of_wire,
    entity_to_wire,
    quota_values,
)

ANN: Entity = (("users", "ann"),)
IP: Entity = (("ips", "10.0.0.1"),)


@pytest.mark.parametrize(
    ("wire", "entity"),
    [
        ([("user", "ann")], ANN),
        ([("user", None)], (("users", DEFAULT_NAME),)),
        ([("client-id", "x"), ("user", "ann")], (("users", "ann"), ("clients", "x"))),
        ([("client-id", None), ("user", "a")], (("users", "a"), ("clients", DEFAULT_NAME))),
        ([("ip", "10.0.0.1")], IP),
        ([("ip", "2001:DB8::0:1")], (("ips", "2001:db8::1"),)),
        ([("ip", None)], (("ips", DEFAULT_NAME),)),
    ],
)
def test_entities(wire: list[tuple[str, str | None]], entity: Entity) -> None:
    assert entity_of_wire(wire) == entity
    assert entity_of_wire(entity_to_wire(entity)) == entity


@pytest.mark.parametrize(
    ("wire", "reason"),
    [
        ([], "empty"),
        ([("topic", "t")], "'topic' has no quotas"),
        ([("user", "a"), ("user", "b")], "user twice"),
        ([("user", "")], "must not be empty"),
        ([("user", DEFAULT_NAME)], "send null"),
        ([("ip", "10.0.0.1"), ("user", "a")], "cannot be combined"),
        ([("client-id", None), ("ip", None)], "cannot be combined"),
        ([("ip", "some-host")], "not an IP address"),
    ],
)
def test_invalid_entities_are_refused(wire: list[tuple[str, str | None]], reason: str) -> None:
    with pytest.raises(KafkaError, match=reason) as raised:
        entity_of_wire(wire)
    assert raised.value.code is ErrorCode.INVALID_REQUEST


def test_quotas_are_stored_as_kafka_stores_them() -> None:
    values = altered_values(
        ANN,
        {"SCRAM-SHA-256": "salt=", "consumer_byte_rate": "7", "controller_mutation_rate": "1.0"},
        [
            ("producer_byte_rate", 1024.0),
            ("request_percentage", 50),
            ("controller_mutation_rate", None),
            ("SCRAM-SHA-256", None),
            ("nonsense", None),
        ],
    )
    assert values == {
        "SCRAM-SHA-256": "salt=",
        "consumer_byte_rate": "7",
        "producer_byte_rate": "1024",
        "request_percentage": "50.0",
    }
    assert quota_values(values) == {
        "consumer_byte_rate": 7,
        "producer_byte_rate": 1024,
        "request_percentage": 50,
    }
    assert altered_values(IP, {}, [("connection_creation_rate", 10)]) == {
        "connection_creation_rate": "10"
    }


def test_the_largest_rate_fits() -> None:
    values = altered_values(ANN, {}, [("producer_byte_rate", float(2**63 - 1))])
    assert values == {"producer_byte_rate": str(2**63 - 1)}


@pytest.mark.parametrize(
    ("entity", "key", "value", "reason"),
    [
        (ANN, "nonsense", 1, "no quota 'nonsense'"),
        (ANN, "SCRAM-SHA-256", 1, "no quota 'SCRAM-SHA-256'"),
        (ANN, "connection_creation_rate", 1, "no quota"),
        (IP, "producer_byte_rate", 1, "no quota"),
        (ANN, "producer_byte_rate", 0, "greater than 0"),
        (ANN, "request_percentage", -1, "greater than 0"),
        (ANN, "request_percentage", float("nan"), "greater than 0"),
        (ANN, "producer_byte_rate", 1.5, "whole number"),
        (ANN, "producer_byte_rate", 1e19, "larger than"),
        (ANN, "producer_byte_rate", float("inf"), "larger than"),
        (IP, "connection_creation_rate", 2**31, "larger than 2147483647"),
        (IP, "connection_creation_rate", 0.5, "whole number"),
    ],
)
def test_invalid_quotas_are_refused(entity: Entity, key: str, value: float, reason: str) -> None:
    with pytest.raises(KafkaError, match=reason) as raised:
        altered_values(entity, {}, [(key, value)])
    assert raised.value.code is ErrorCode.INVALID_REQUEST


def test_a_quota_may_be_set_once_per_request() -> None:
    with pytest.raises(KafkaError, match="given twice"):
        altered_values(ANN, {}, [("producer_byte_rate", 1), ("producer_byte_rate", None)])


@given(st.floats(min_value=1e-300, max_value=1e300))
def test_fractions_keep_their_value(value: float) -> None:
    values = altered_values(ANN, {}, [("request_percentage", value)])
    assert quota_values(values) == {"request_percentage": value}


ENTITIES: list[Entity] = [
    (("users", "ann"),),
    (("users", DEFAULT_NAME),),
    (("users", "ann"), ("clients", "x")),
    (("users", DEFAULT_NAME), ("clients", DEFAULT_NAME)),
    (("clients", "x"),),
    (("ips", "10.0.0.1"),),
    (("topics", "ann"),),
]


@pytest.mark.parametrize(
    ("components", "loose", "strict"),
    [
        ([], [0, 1, 2, 3, 4, 5], []),
        ([("user", 0, "ann")], [0, 2], [0]),
        ([("user", 1, None)], [1, 3], [1]),
        ([("user", 2, None)], [0, 1, 2, 3], [0, 1]),
        ([("user", 2, None), ("client-id", 2, None)], [2, 3], [2, 3]),
        ([("user", 1, None), ("client-id", 2, None)], [3], [3]),
        ([("user", 0, "ann"), ("client-id", 0, "x")], [2], [2]),
        ([("client-id", 0, "x")], [2, 4], [4]),
        ([("ip", 2, None)], [5], [5]),
        ([("user", 0, DEFAULT_NAME)], [], []),
    ],
)
def test_a_filter_returns_the_matching_entities(
    components: list[tuple[str, int, str | None]], loose: list[int], strict: list[int]
) -> None:
    for is_strict, expected in ((False, loose), (True, strict)):
        quota_filter = QuotaFilter.of_wire(components, is_strict)
        result = [i for i, entity in enumerate(ENTITIES) if quota_filter.matches(entity)]
        assert result == expected


@pytest.mark.parametrize(
    ("components", "reason", "code"),
    [
        ([("", 2, None)], "empty entity type", ErrorCode.INVALID_REQUEST),
        ([("user", 2, None), ("user", 1, None)], "appears twice", ErrorCode.INVALID_REQUEST),
        ([("topic", 2, None)], "not known", ErrorCode.UNSUPPORTED_VERSION),
        ([("user", 0, None)], "needs a name", ErrorCode.INVALID_REQUEST),
        ([("user", 1, "x")], "takes no name", ErrorCode.INVALID_REQUEST),
        ([("user", 2, "x")], "takes no name", ErrorCode.INVALID_REQUEST),
        ([("user", 3, None)], "match type 3", ErrorCode.INVALID_REQUEST),
        ([("user", 2, None), ("ip", 2, None)], "cannot combine", ErrorCode.INVALID_REQUEST),
    ],
)
def test_invalid_filters_are_refused(
    components: list[tuple[str, int, str | None]], reason: str, code: ErrorCode
) -> None:
    with pytest.raises(KafkaError, match=reason) as raised:
        QuotaFilter.of_wire(components, False)
    assert raised.value.code is code
