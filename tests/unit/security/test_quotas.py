"""Client quotas (X4): the quota that applies, throttling, and removal of idle clients."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ErrorCode, KafkaError
from penstock.security.quota_entities import DEFAULT_NAME, Entity
from penstock.security.quotas import ClientQuotas

NOW = 1_700_000_000_000

LEVELS: list[Entity] = [
    (("users", "ann"), ("clients", "app")),
    (("users", "ann"), ("clients", DEFAULT_NAME)),
    (("users", "ann"),),
    (("users", DEFAULT_NAME), ("clients", "app")),
    (("users", DEFAULT_NAME), ("clients", DEFAULT_NAME)),
    (("users", DEFAULT_NAME),),
    (("clients", "app"),),
    (("clients", DEFAULT_NAME),),
]
"""From the one that counts most."""


def quotas_of(
    *entities: Entity, key: str = "producer_byte_rate", value: str = "500"
) -> ClientQuotas:
    quotas = ClientQuotas()
    for entity in entities:
        quotas.put(entity, {key: value})
    return quotas


def test_without_quotas_no_client_is_throttled() -> None:
    quotas = ClientQuotas()
    assert not quotas.enabled
    assert quotas.record_produce("ann", "app", 10**12, NOW) == 0
    assert quotas.record_fetch("ann", "app", 10**12, NOW) == 0
    quotas.unrecord_fetch("ann", "app", 10**12, NOW)
    assert quotas.record_request("ann", "app", 100, NOW) == 0
    assert quotas.record_connection("10.0.0.1", NOW) == 0
    assert quotas.max_fetch_bytes("ann", "app") == float("inf")
    mutations = quotas.mutation_quota("ann", "app", True, NOW)
    mutations.record(10**9, NOW)
    assert mutations.throttle_ms(NOW) == 0


@given(st.sets(st.integers(0, 7), min_size=1))
def test_the_most_specific_quota_applies(present: set[int]) -> None:
    quotas = ClientQuotas()
    for level in present:
        quotas.put(LEVELS[level], {"consumer_byte_rate": str(level + 1)})
    assert quotas.max_fetch_bytes("ann", "app") == (min(present) + 1) * 10
    user_levels = {2, 5} & present
    expected = (min(user_levels) + 1) * 10 if user_levels else float("inf")
    assert quotas.max_fetch_bytes("ann", "") == expected  # no id: no quota of clients


def test_clients_that_share_a_quota() -> None:
    """A quota of a user is shared by its clients; a default applies to each entity separately."""
    clients = list(product(("ann", "bob"), ("app", "web")))

    def waits(entity: Entity) -> list[int]:
        quotas = quotas_of(entity)
        return [quotas.record_produce(*client, 3000, NOW) for client in clients]

    assert waits((("users", "ann"),)) == [0, 2000, 0, 0]
    assert waits((("users", DEFAULT_NAME),)) == [0, 2000, 0, 2000]
    assert waits((("clients", "app"),)) == [0, 0, 2000, 0]
    assert waits((("clients", DEFAULT_NAME),)) == [0, 0, 2000, 2000]
    assert waits((("users", DEFAULT_NAME), ("clients", DEFAULT_NAME))) == [0, 0, 0, 0]


def test_produce_and_fetch_have_separate_quotas() -> None:
    quotas = ClientQuotas()
    quotas.put(LEVELS[2], {"producer_byte_rate": "500", "consumer_byte_rate": "1000"})
    assert quotas.record_produce("ann", "app", 6000, NOW) == 2000
    assert quotas.record_fetch("ann", "app", 6000, NOW) == 0
    assert quotas.record_fetch("ann", "app", 6000, NOW) == 2000
    assert quotas.record_request("ann", "app", 10, NOW) == 0


def test_a_fetch_that_is_not_sent_does_not_count() -> None:
    quotas = quotas_of(LEVELS[2], key="consumer_byte_rate")
    for _ in range(3):
        assert quotas.record_fetch("ann", "app", 6000, NOW) == 2000
        quotas.unrecord_fetch("ann", "app", 6000, NOW)
    assert quotas.record_fetch("ann", "app", 5000, NOW) == 0
    quotas.unrecord_fetch("bob", "app", 5000, NOW)
    assert quotas.record_fetch("bob", "app", 5000, NOW) == 0


def test_a_request_is_throttled_for_at_most_one_window() -> None:
    """1 s in 10 s is 10 %: nine times too much for 1 %, but the wait is cut to one window."""
    quotas = quotas_of(LEVELS[2], key="request_percentage", value="1.0")
    assert quotas.record_request("ann", "app", 0.1, NOW) == 0
    assert quotas.record_request("ann", "app", 0.005, NOW) == 500
    assert quotas.record_request("ann", "app", 0.9, NOW) == 1000


def test_connections_of_an_address() -> None:
    quotas = quotas_of((("ips", "10.0.0.1"),), key="connection_creation_rate", value="2")
    assert [quotas.record_connection("10.0.0.1", NOW) for _ in range(22)] == [0] * 20 + [500, 500]
    assert quotas.record_connection("10.0.0.2", NOW) == 0
    quotas.put((("ips", DEFAULT_NAME),), {"connection_creation_rate": "1"})
    waits = [quotas.record_connection("10.0.0.2", NOW) for _ in range(12)]
    assert waits == [0] * 10 + [1000, 1000]


def test_an_address_may_have_any_notation() -> None:
    quotas = quotas_of((("ips", "2001:DB8:0::1"),), key="connection_creation_rate", value="1")
    assert [quotas.record_connection("2001:db8::1", NOW) for _ in range(11)] == [0] * 10 + [1000]
    quotas.put((("ips", "some-host"),), {"connection_creation_rate": "1"})
    assert quotas.record_connection("10.0.0.1", NOW) == 0


def test_strict_mutations_are_refused_once_the_quota_is_used_up() -> None:
    quotas = quotas_of(LEVELS[2], key="controller_mutation_rate", value="10")
    first = quotas.mutation_quota("ann", "app", True, NOW)
    first.record(120, NOW)  # 110 were there
    assert first.throttle_ms(NOW) == 0
    second = quotas.mutation_quota("ann", "web", True, NOW + 400)
    with pytest.raises(KafkaError, match="try again in 600 ms") as raised:
        second.record(1, NOW + 400)
    assert raised.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert second.throttle_ms(NOW + 500) == 500
    assert second.throttle_ms(NOW + 5000) == 0
    quotas.mutation_quota("ann", "app", True, NOW + 1000).record(1, NOW + 1000)


def test_other_mutations_are_only_throttled() -> None:
    quotas = quotas_of(LEVELS[2], key="controller_mutation_rate", value="10")
    quota = quotas.mutation_quota("ann", "app", False, NOW)
    quota.record(110, NOW)
    assert quota.throttle_ms(NOW) == 0
    quota.record(20, NOW)
    assert quota.throttle_ms(NOW) == 2000
    quota.record(10, NOW + 1000)
    assert quota.throttle_ms(NOW + 1000) == 2000


def test_a_debt_of_mutations_is_never_forgotten() -> None:
    quotas = quotas_of(LEVELS[5], key="controller_mutation_rate", value="1")
    quotas.mutation_quota("ann", "app", True, NOW).record(1011, NOW)
    for second in range(0, 990, 10):
        quotas.mutation_quota("bob", "app", True, NOW + second * 1000)
    late = NOW + 990_000
    quota = quotas.mutation_quota("ann", "app", False, late)
    quota.record(0, late)
    assert quota.throttle_ms(late) == 10_000


def test_quotas_change_while_they_are_used() -> None:
    quotas = quotas_of(LEVELS[2])
    assert quotas.enabled
    assert quotas.record_produce("ann", "app", 6000, NOW) == 2000
    quotas.put(LEVELS[2], {"producer_byte_rate": "300"})
    assert quotas.record_produce("ann", "app", 0, NOW) == 10_000
    quotas.put(LEVELS[2], {"SCRAM-SHA-256": "salt=", "consumer_byte_rate": "5"})
    assert quotas.record_produce("ann", "app", 6000, NOW) == 0
    quotas.delete(LEVELS[2])
    assert not quotas.enabled
    assert quotas.record_fetch("ann", "app", 10**9, NOW) == 0


def test_mutation_quotas_change_while_they_are_used() -> None:
    quotas = quotas_of(LEVELS[2], key="controller_mutation_rate", value="1")
    quotas.mutation_quota("ann", "app", False, NOW).record(31, NOW)
    quotas.put(LEVELS[2], {"controller_mutation_rate": "4"})
    quota = quotas.mutation_quota("ann", "app", False, NOW)
    quota.record(0, NOW)
    assert quota.throttle_ms(NOW) == 5000


def test_settings_of_other_entities_do_not_matter() -> None:
    quotas = quotas_of((("topics", "t"),), (("users", "ann"), ("topics", "t")), ())
    assert not quotas.enabled


def test_a_stored_quota_that_is_no_number_is_named() -> None:
    with pytest.raises(KafkaError, match="producer_byte_rate is stored as 'many'"):
        quotas_of(LEVELS[0], value="many")


def test_idle_clients_are_removed() -> None:
    """Only client ids of the last windows are kept."""
    quotas = quotas_of(LEVELS[7])
    for i in range(30_000):
        quotas.record_produce("ann", f"client-{i}", 1, NOW + i * 10)
    meters = quotas._produce.meters
    assert len(meters) <= 2 * 11_000 / 10
    assert len(quotas._produce.limits._cache) <= 10_000
    quotas.delete(LEVELS[7])
    assert len(meters) == 0


@given(st.lists(st.tuples(st.integers(0, 30_000), st.integers(0, 20_000)), max_size=30))
def test_forgetting_changes_no_wait(steps: list[tuple[int, int]]) -> None:
    """A client that shares the quotas with a busy one waits as long as if it were alone."""
    alone, shared = quotas_of(LEVELS[7]), quotas_of(LEVELS[7])
    now = NOW
    for pause, size in steps:
        for moment in range(now, now + pause, 1500):
            shared.record_produce("bob", "busy", 1, moment)
        now += pause
        expected = alone._produce.meters.get(("", "app"), 500, NOW)
        expected.record(size, now)
        wait = shared.record_produce("ann", "app", size, now)
        assert wait == expected.throttle_ms(500, now)
