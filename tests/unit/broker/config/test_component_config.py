"""The configuration that each component gets from the broker's settings."""

import pytest

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.component_config import set_limits
from penstock.net.server.limits import UNLIMITED, Limits


def limits_of(**settings: str) -> Limits:
    config = BrokerConfig.from_properties(
        {name.replace("_", "."): value for name, value in settings.items()}
    )
    limits = Limits()
    set_limits(limits, config)
    return limits


def test_socket_buffers_are_the_systems_unless_they_are_set() -> None:
    """A fixed size, even Kafka's default, keeps the kernel from fitting them to the load."""
    assert (limits_of().send_buffer, limits_of().receive_buffer) == (-1, -1)
    limits = limits_of(socket_send_buffer_bytes="65536", socket_receive_buffer_bytes="102400")
    assert (limits.send_buffer, limits.receive_buffer) == (65536, 102400)


def test_limits_have_kafkas_defaults() -> None:
    limits = limits_of()
    assert limits.max_frame == 100 * 1024 * 1024
    assert limits.max_frame_before_login == 512 * 1024
    assert limits.max_connections == limits.max_connections_per_ip == UNLIMITED
    assert limits.idle_ms == 600_000
    assert limits.queued_max_requests == 500


@pytest.mark.parametrize(
    ("setting", "value", "name", "expected"),
    [
        ("socket_request_max_bytes", "5000", "max_frame", 5000),
        ("socket_request_max_bytes", "5000", "max_frame_before_login", 5000),
        ("max_connections", "7", "max_connections", 7),
        ("max_connections_per_ip", "3", "max_connections_per_ip", 3),
        ("connections_max_idle_ms", "1000", "idle_ms", 1000),
        ("queued_max_requests", "9", "queued_max_requests", 9),
    ],
)
def test_a_setting_becomes_a_limit(setting: str, value: str, name: str, expected: int) -> None:
    assert getattr(limits_of(**{setting: value}), name) == expected


def test_hosts_with_limits_are_addresses_or_names_that_the_server_looks_up() -> None:
    """Looking them up here would hold up the event loop."""
    limits = limits_of(max_connections_per_ip_overrides="10.0.0.1:5, [::0001]:6,no-such.invalid:7")
    assert limits.per_ip_overrides == {"10.0.0.1": 5, "::1": 6, "no-such.invalid": 7}
