"""How long listeners wait, and who is closed for connecting too often (X4)."""

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.security.connection_quotas import ConnectionQuotas, protected_listener
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import DEFAULT_ENTITY, ConfigRecord, Put
from penstock.core.clock import ManualClock

RATE = "max.connection.creation.rate"
TWO = "IN://127.0.0.1:0,OUT://127.0.0.1:0"


def config_of(**settings: str) -> BrokerConfig:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return BrokerConfig.from_properties(
        {
            "listeners": TWO,
            "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT",
            "inter.broker.listener.name": "IN",
            # Two windows, the current one included: a rate of 1 lets two in at once.
            "quota.window.num": "2",
            **named,
        }
    )


def rates_of(config: BrokerConfig, image: ClusterImage | None = None) -> ConnectionQuotas:
    return ConnectionQuotas(config, image or ClusterImage(), ManualClock())


def waits(rates: ConnectionQuotas, listener: str, times: int) -> list[int]:
    return [rates.accept_delay_ms(listener) for _ in range(times)]


def quota(address: str, rate: str) -> Put:
    return Put(ConfigRecord((("ips", address),), {"connection_creation_rate": rate}))


def test_without_limits_nobody_waits() -> None:
    rates = rates_of(config_of())
    assert rates.limits == {}
    assert waits(rates, "OUT", 1000) == [0] * 1000
    assert rates.close_delay_ms("OUT", "10.0.0.1") == 0


def test_a_listener_waits_for_a_window_at_most() -> None:
    rates = rates_of(config_of(**{RATE: "2"}))
    assert waits(rates, "OUT", 2) == [0, 0]
    assert waits(rates, "OUT", 5)[-1] == 1000


def test_the_listener_of_brokers_has_a_limit_of_its_own_only() -> None:
    """It neither waits for those of clients nor makes them wait."""
    config = config_of(**{RATE: "2"})
    assert protected_listener(config) == "IN"
    rates = rates_of(config)
    assert waits(rates, "IN", 2) == [0, 0]
    assert waits(rates, "OUT", 2) == [0, 0]
    assert rates.accept_delay_ms("IN") > 0
    assert rates.accept_delay_ms("OUT") > 0


def test_an_only_listener_is_not_protected() -> None:
    config = BrokerConfig.from_properties({"listeners": "PLAINTEXT://127.0.0.1:0"})
    assert protected_listener(config) is None


def test_the_longer_wait_counts() -> None:
    config = config_of(**{RATE: "1000", f"listener.name.out.{RATE}": "1"})
    rates = rates_of(config)
    assert rates.limits == {None: 1000, "IN": 1000, "OUT": 1}
    assert rates.accept_delay_ms("OUT") == 0
    assert rates.accept_delay_ms("OUT") == 1000
    assert waits(rates, "IN", 100) == [0] * 100


def test_a_rate_of_nothing_makes_everybody_wait_for_a_window() -> None:
    assert waits(rates_of(config_of(**{RATE: "0"})), "OUT", 2) == [1000, 1000]


def test_who_is_beyond_the_quota_of_its_address_does_not_count() -> None:
    image = ClusterImage()
    image.apply([quota("10.0.0.1", "1")])
    rates = rates_of(config_of(**{RATE: "3"}), image)
    kept = []
    for _ in range(20):
        assert rates.accept_delay_ms("OUT") == 0
        kept.append(rates.close_delay_ms("OUT", "10.0.0.1"))
    assert kept[0] == 0
    assert set(kept[2:]) == {1000}
    assert rates.close_delay_ms("OUT", "10.0.0.2") == 0


def test_quotas_of_addresses_change_at_once() -> None:
    image = ClusterImage()
    rates = rates_of(config_of(), image)
    assert {rates.close_delay_ms("OUT", "10.0.0.1") for _ in range(10)} == {0}
    image.apply([quota(DEFAULT_ENTITY, "1")])
    assert {rates.close_delay_ms("OUT", "10.0.0.1") for _ in range(10)} != {0}
    image.apply([quota("10.0.0.1", "1000")])
    assert {rates.close_delay_ms("OUT", "10.0.0.1") for _ in range(10)} == {0}
    assert {rates.close_delay_ms("OUT", "10.0.0.2") for _ in range(10)} != {0}
