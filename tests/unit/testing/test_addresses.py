"""The listeners and ports of a broker for tests (X1)."""

import socket

import pytest

from penstock.testing.addresses import Listener, Ports, parse_listeners, protocol_of
from penstock.testing.errors import BrokerError


def test_listeners() -> None:
    text = "PLAINTEXT://127.0.0.1:0, INSIDE://:9093,SSL://[::1]:9094"
    listeners = parse_listeners(text)
    assert listeners == [
        Listener("PLAINTEXT", "127.0.0.1", 0),
        Listener("INSIDE", "", 9093),
        Listener("SSL", "::1", 9094),
    ]
    assert ",".join(map(str, listeners)) == text.replace(" ", "")
    assert [listener.reachable().address for listener in listeners] == [
        "127.0.0.1:0",
        "localhost:9093",
        "[::1]:9094",
    ]


@pytest.mark.parametrize("text", ["", "127.0.0.1:9092", "PLAINTEXT://host", "A://h:1,,B://h:2"])
def test_invalid_listeners(text: str) -> None:
    with pytest.raises(BrokerError, match="write NAME://host:port"):
        parse_listeners(text)


def test_protocols() -> None:
    settings = {"listener.security.protocol.map": "INSIDE:PLAINTEXT, OUTSIDE:SASL_SSL"}
    assert protocol_of(Listener("INSIDE", "", 1), settings) == "PLAINTEXT"
    assert protocol_of(Listener("OUTSIDE", "", 1), settings) == "SASL_SSL"
    assert protocol_of(Listener("SSL", "", 1), settings) == "SSL"
    assert protocol_of(Listener("PLAINTEXT", "", 1), {}) == "PLAINTEXT"


def test_a_reserved_port() -> None:
    """Connections are refused, the port is not given to others, and it can be listened on."""
    ports = Ports()
    try:
        held = ports.reserve(Listener("PLAINTEXT", "127.0.0.1", 0))
        assert ports.reserve(held) == held
        address = held.host, held.port
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
        for _ in range(2):  # over a restart
            with socket.socket() as listening:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listening.bind(address)
                listening.listen()
                with socket.create_connection(address), listening.accept()[0]:
                    pass
    finally:
        ports.close()


def test_a_host_of_another_machine() -> None:
    with pytest.raises(BrokerError, match="choose another host"):
        Ports().reserve(Listener("PLAINTEXT", "192.0.2.1", 0))
