"""P5: settings of a producer that contradict each other, as in Kafka."""

import pytest

from penstock.client.errors import ConfigError
from penstock.client.producer.options import producer_settings


def settings_of(**options: object) -> dict[str, object]:
    return dict(producer_settings({"bootstrap_servers": "x:1", **options}))


def test_the_defaults_are_kafkas() -> None:
    settings = settings_of()
    assert settings["acks"] == -1
    assert settings["enable_idempotence"] is True
    assert (settings["batch_size"], settings["linger_ms"]) == (16_384, 5)
    assert (settings["buffer_memory"], settings["max_request_size"]) == (33_554_432, 1_048_576)
    assert (settings["delivery_timeout_ms"], settings["max_block_ms"]) == (120_000, 60_000)


@pytest.mark.parametrize(
    ("value", "expected"), [("all", -1), ("-1", -1), (-1, -1), ("1", 1), (1, 1), ("0", 0), (0, 0)]
)
def test_acks(value: object, expected: int) -> None:
    settings = settings_of(acks=value)
    assert settings["acks"] == expected
    assert settings["enable_idempotence"] is (expected == -1)


@pytest.mark.parametrize("value", ["some", 2, "-2"])
def test_other_values_of_acks_are_rejected(value: object) -> None:
    with pytest.raises(ConfigError, match="acks"):
        settings_of(acks=value)


@pytest.mark.parametrize("setting", [{"acks": 1}, {"retries": 0}])
def test_idempotence_is_switched_off_unless_it_is_explicit(setting: dict[str, object]) -> None:
    assert settings_of(**setting)["enable_idempotence"] is False
    for option in ({"enable_idempotence": True}, {"transactional_id": "x"}):
        with pytest.raises(ConfigError, match=next(iter(setting))):
            settings_of(**setting, **option)


def test_more_than_five_in_flight_need_idempotence_off() -> None:
    with pytest.raises(ConfigError, match="at most 5"):
        settings_of(max_in_flight_requests_per_connection=6)
    settings_of(max_in_flight_requests_per_connection=6, enable_idempotence=False)


def test_transactions_need_idempotence() -> None:
    with pytest.raises(ConfigError, match="transactional_id"):
        settings_of(transactional_id="x", enable_idempotence=False)


def test_a_delivery_takes_at_least_its_linger_and_one_request() -> None:
    with pytest.raises(ConfigError, match="30005"):
        settings_of(delivery_timeout_ms=30_000)
    assert settings_of(request_timeout_ms=200_000)["delivery_timeout_ms"] == 200_005


def test_every_producer_has_a_name() -> None:
    first, second = settings_of()["client_id"], settings_of()["client_id"]
    assert first != second
    assert str(first).startswith("producer-")
    assert settings_of(transactional_id="orders")["client_id"] == "producer-orders"
    assert settings_of(client_id="mine")["client_id"] == "mine"
