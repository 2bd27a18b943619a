"""Listeners: names, addresses, protocols and advertised listeners (X1, E6)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.listeners import ListenerSpec, protocol_map
from penstock.broker.config.settings import ConfigError
from penstock.controller.metadata import Endpoint, SecurityProtocol

PLAINTEXT = SecurityProtocol.PLAINTEXT


def config(**settings: str) -> BrokerConfig:
    """`inter_broker_listener_name` is the setting `inter.broker.listener.name`."""
    texts = {name.replace("_", "."): text for name, text in settings.items()}
    return BrokerConfig.from_properties(texts, hostname="machine.example")


def refusal(**settings: str) -> str:
    with pytest.raises(ConfigError) as refused:
        config(**settings)
    return refused.value.message


def test_the_default_listener_is_on_the_loopback_address() -> None:
    default_config = config()
    assert default_config.listeners == [ListenerSpec("PLAINTEXT", "127.0.0.1", 9092, PLAINTEXT)]
    assert default_config.advertised == default_config.listeners
    assert default_config.inter_broker_listener == "PLAINTEXT"


def test_several_listeners() -> None:
    """X1: all four protocols, custom names, and an inter-broker listener."""
    several = config(
        listeners="internal://10.0.0.1:1, PLAINTEXT://:2,SSL://[::1]:3,Out-side://h:4,SASL_SSL://:5",
        listener_security_protocol_map="INTERNAL:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:ssl,"
        "out-side:SASL_SSL,SASL_SSL:SASL_SSL",
        sasl_enabled_mechanisms="PLAIN",
        inter_broker_listener_name="Internal",
    )
    assert several.listeners == [
        ListenerSpec("INTERNAL", "10.0.0.1", 1, SecurityProtocol.SASL_PLAINTEXT),
        ListenerSpec("PLAINTEXT", "", 2, PLAINTEXT),
        ListenerSpec("SSL", "::1", 3, SecurityProtocol.SSL),
        ListenerSpec("OUT-SIDE", "h", 4, SecurityProtocol.SASL_SSL),
        ListenerSpec("SASL_SSL", "", 5, SecurityProtocol.SASL_SSL),
    ]
    assert several.inter_broker_listener == "INTERNAL"
    assert [str(spec) for spec in several.listeners[:3]] == [
        "INTERNAL://10.0.0.1:1",
        "PLAINTEXT://:2",
        "SSL://[::1]:3",
    ]


@pytest.mark.parametrize("wildcard", ["", "0.0.0.0", "[::]"])
def test_a_wildcard_listener_is_advertised_with_the_host_name(
    wildcard: str,
) -> None:
    """E6: the advertised host must be an address that clients can connect to."""
    bound = config(listeners=f"PLAINTEXT://{wildcard}:9092")
    assert [str(spec) for spec in bound.advertised] == ["PLAINTEXT://machine.example:9092"]
    assert bound.listeners[0].host == wildcard.strip("[]")


@pytest.mark.parametrize("wildcard", ["0.0.0.0", "[::]"])
def test_a_wildcard_cannot_be_advertised(wildcard: str) -> None:
    """E6: the message says what to set."""
    message = refusal(advertised_listeners=f"PLAINTEXT://{wildcard}:9092")
    assert "no client can connect to" in message
    assert "such as PLAINTEXT://machine.example:9092" in message


def test_advertised_addresses_may_differ_from_bound_addresses() -> None:
    advertising = config(
        listeners="PLAINTEXT://:9092,SSL://:9093",
        advertised_listeners="SSL://b.example:19093,PLAINTEXT://:9092",
    )
    assert [str(spec) for spec in advertising.advertised] == [
        "SSL://b.example:19093",
        "PLAINTEXT://machine.example:9092",
    ]
    assert advertising.advertised[0].protocol is SecurityProtocol.SSL


def test_an_ephemeral_port_is_advertised_after_binding() -> None:
    free = config(listeners="PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0")
    assert free.advertised_endpoints({"PLAINTEXT": 40001, "SSL": 40002}) == [
        Endpoint("PLAINTEXT", "127.0.0.1", 40001, PLAINTEXT),
        Endpoint("SSL", "127.0.0.1", 40002, SecurityProtocol.SSL),
    ]


def test_listeners_of_a_kraft_controller_are_dropped() -> None:
    combined = config(
        listeners="PLAINTEXT://:9092,CONTROLLER://:9093",
        advertised_listeners="PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        controller_listener_names="CONTROLLER",
    )
    assert [spec.name for spec in combined.listeners] == ["PLAINTEXT"]
    assert [str(spec) for spec in combined.advertised] == ["PLAINTEXT://localhost:9092"]
    assert "add one for clients" in refusal(
        listeners="CONTROLLER://:9093", controller_listener_names="CONTROLLER"
    )


def test_a_port_may_be_shared_by_ipv4_and_ipv6_only() -> None:
    combined = config(listeners="PLAINTEXT://127.0.0.1:9092,SSL://[::1]:9092")
    assert [spec.port for spec in combined.listeners] == [9092, 9092]
    for second in ("127.0.0.2:9092", "h:9092", ":9092"):
        message = refusal(listeners=f"PLAINTEXT://127.0.0.1:9092,SSL://{second}")
        assert "2 listeners use port 9092" in message


@pytest.mark.parametrize(
    ("listeners", "expected_error"),
    [
        ("PLAINTEXT://:9092,plaintext://:9093", "two listeners have the name PLAINTEXT"),
        ("CLIENT://:9092", "add CLIENT:PLAINTEXT (or SSL"),
        ("PLAINTEX://:9092", "did you mean PLAINTEXT?"),
        ("localhost:9092", "must be NAME://host:port"),
        ("PLAINTEXT://localhost", "must be NAME://host:port"),
        ("://localhost:1", "must be NAME://host:port"),
        ("PLAINTEXT://localhost:65536", "use 0 to 65535"),
        ("PLAINTEXT://localhost:-1", "use 0 to 65535"),
        ("", "must not be empty"),
    ],
)
def test_invalid_listeners_are_refused(listeners: str, expected_error: str) -> None:
    message = refusal(listeners=listeners)
    assert message.startswith("listeners: ")
    assert expected_error in message


@pytest.mark.parametrize(
    ("advertised", "expected_error"),
    [
        ("SSL://h:1", "SSL is not in listeners; use one of PLAINTEXT"),
        ("PLAINTEXT://h:1,PLAINTEXT://i:1", "two listeners have the name PLAINTEXT"),
        ("h:1", "must be NAME://host:port"),
    ],
)
def test_invalid_advertised_listeners_are_refused(advertised: str, expected_error: str) -> None:
    assert expected_error in refusal(advertised_listeners=advertised)


def test_an_advertised_listener_for_clients_is_required() -> None:
    assert "has no listener for clients" in refusal(
        listeners="PLAINTEXT://:9092,CONTROLLER://:9093",
        advertised_listeners="CONTROLLER://h:9093",
        controller_listener_names="CONTROLLER",
    )


@pytest.mark.parametrize(
    ("text", "expected_error"),
    [
        ("CLIENT", "must be NAME:PROTOCOL"),
        ("CLIENT:TLS", "not a security protocol; use one of PLAINTEXT, SSL"),
        ("A:SSL,a:PLAINTEXT", "a occurs twice"),
    ],
)
def test_invalid_protocol_maps_are_refused(text: str, expected_error: str) -> None:
    with pytest.raises(ConfigError, match=r"listener\.security\.protocol\.map: ") as refused:
        protocol_map(text)
    assert expected_error in refused.value.message


def test_the_inter_broker_listener() -> None:
    """X1: by name, by protocol, PLAINTEXT, or the first listener."""
    two = "SSL://:1,PLAINTEXT://:2"
    assert config(listeners=two).inter_broker_listener == "PLAINTEXT"
    by_protocol = config(listeners=two, security_inter_broker_protocol="SSL")
    assert by_protocol.inter_broker_listener == "SSL"
    assert config(listeners="SSL://:1").inter_broker_listener == "SSL"
    assert "use one of SSL, PLAINTEXT" in refusal(listeners=two, inter_broker_listener_name="X")
    assert "set inter.broker.listener.name to one of SSL" in refusal(
        listeners="SSL://:1", security_inter_broker_protocol="PLAINTEXT"
    )
    assert "remove one of them" in refusal(
        listeners=two, inter_broker_listener_name="SSL", security_inter_broker_protocol="SSL"
    )


def test_mechanisms_of_one_listener() -> None:
    own = BrokerConfig.from_properties(
        {
            "listeners": "SASL_PLAINTEXT://:1,SASL_SSL://:2",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_ssl.sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
        }
    )
    assert own.sasl_mechanisms("SASL_PLAINTEXT") == ["PLAIN"]
    assert own.sasl_mechanisms("SASL_SSL") == ["SCRAM-SHA-512", "PLAIN"]


@pytest.mark.parametrize(
    ("mechanisms", "expected_error"),
    [
        ("GSSAPI,DIGEST-MD5", "'DIGEST-MD5' is not a SASL mechanism; use PLAIN"),
        ("", "an empty list is not supported"),
        ("SCRAM-SHA-265", "did you mean SCRAM-SHA-256?"),
    ],
)
def test_invalid_mechanisms_are_refused(mechanisms: str, expected_error: str) -> None:
    message = refusal(listeners="SASL_PLAINTEXT://:9092", sasl_enabled_mechanisms=mechanisms)
    assert message.startswith("sasl.enabled.mechanisms: ")
    assert expected_error in message


def test_mechanisms_do_not_matter_without_sasl() -> None:
    (warning,) = config(sasl_enabled_mechanisms="GSSAPI").warnings()
    assert warning.startswith("sasl.enabled.mechanisms: has no effect")


@given(st.text(alphabet="PLAINTEXTSSL:/.[]0192,h- ", max_size=40))
def test_any_text_is_accepted_or_refused_with_a_one_line_message(text: str) -> None:
    message = ""
    try:
        accepted = config(listeners=text, advertised_listeners=text)
        assert len(accepted.advertised) == len(accepted.listeners) > 0
    except ConfigError as refused:
        message = refused.message
    assert "\n" not in message


def test_the_control_plane_listener() -> None:
    two = "SSL://:1,PLAINTEXT://:2"
    assert config(listeners=two).control_plane_listener == "PLAINTEXT"
    chosen = config(listeners=two, control_plane_listener_name="ssl")
    assert (chosen.control_plane_listener, chosen.inter_broker_listener) == ("SSL", "PLAINTEXT")
    assert "use one of SSL" in refusal(listeners=two, control_plane_listener_name="X")
    same = refusal(listeners=two, control_plane_listener_name="PLAINTEXT")
    assert "PLAINTEXT is the inter-broker listener" in same
