"""Connection rate quotas: delays of listeners and of closed connections (X4)."""

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.security.connection_quotas import ConnectionQuotas, protected_listener
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import DEFAULT_ENTITY, ConfigRecord, Put
from tests.support.clock import ManualClock

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


def test_without_limits_no_listener_waits() -> None:
    rates = rates_of(config_of())
    assert rates.limits == {}
    assert waits(rates, "OUT", 1000) == [0] * 1000
    assert rates.close_delay_ms("OUT", "10.0.0.1") == 0


def test_a_listener_waits_for_at_most_one_window() -> None:
    rates = rates_of(config_of(**{RATE: "2"}))
    assert waits(rates, "OUT", 2) == [0, 0]
    assert waits(rates, "OUT", 5)[-1] == 1000


def test_the_inter_broker_listener_has_a_separate_limit() -> None:
    """Its connections and those of clients do not delay each other."""
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


def test_the_longer_of_two_delays_applies() -> None:
    config = config_of(**{RATE: "1000", f"listener.name.out.{RATE}": "1"})
    rates = rates_of(config)
    assert rates.limits == {None: 1000, "IN": 1000, "OUT": 1}
    assert rates.accept_delay_ms("OUT") == 0
    assert rates.accept_delay_ms("OUT") == 1000
    assert waits(rates, "IN", 100) == [0] * 100


def test_a_rate_of_zero_delays_every_connection_by_one_window() -> None:
    assert waits(rates_of(config_of(**{RATE: "0"})), "OUT", 2) == [1000, 1000]


def test_connections_over_the_quota_of_their_address_do_not_count_for_the_listener() -> None:
    image = ClusterImage()
    image.apply([quota("10.0.0.1", "1")])
    rates = rates_of(config_of(**{RATE: "3"}), image)
    delays = []
    for _ in range(20):
        assert rates.accept_delay_ms("OUT") == 0
        delays.append(rates.close_delay_ms("OUT", "10.0.0.1"))
    assert delays[0] == 0
    assert set(delays[2:]) == {1000}
    assert rates.close_delay_ms("OUT", "10.0.0.2") == 0


def test_quotas_of_addresses_take_effect_immediately() -> None:
    image = ClusterImage()
    rates = rates_of(config_of(), image)
    assert {rates.close_delay_ms("OUT", "10.0.0.1") for _ in range(10)} == {0}
    image.apply([quota(DEFAULT_ENTITY, "1")])
    assert {rates.close_delay_ms("OUT", "10.0.0.1") for _ in range(10)} != {0}
    image.apply([quota("10.0.0.1", "1000")])
    assert {rates.close_delay_ms("OUT", "10.0.0.1") for _ in range(10)} == {0}
    assert {rates.close_delay_ms("OUT", "10.0.0.2") for _ in range(10)} != {0}
