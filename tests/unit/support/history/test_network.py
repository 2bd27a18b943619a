"""The relays between processes hold bytes back in the directions that are cut, and in no other."""

import socket
import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.support.history.network import (
    BROKER_PORT,
    CLIENT_PORT,
    CLIENTS,
    ZOOKEEPER,
    ZOOKEEPER_PORT,
    Network,
    broker_name,
)

TIMEOUT_S = 20.0
SILENCE_S = 0.1


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while data := self.request.recv(4096):
            self.request.sendall(data)


@pytest.fixture
def network() -> Iterator[Network]:
    """Three brokers and a ZooKeeper that send back what they receive."""
    with ExitStack() as stack:
        zookeeper = start_echo(stack, ("127.0.0.1", 0))
        network = stack.enter_context(Network((1, 2, 3), zookeeper))
        for number in (1, 2, 3):
            for port in (CLIENT_PORT, BROKER_PORT):
                start_echo(stack, (network.address(number), port))
        yield network


def start_echo(stack: ExitStack, address: tuple[str, int]) -> tuple[str, int]:
    server = stack.enter_context(socketserver.ThreadingTCPServer(address, Echo))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    stack.callback(server.shutdown)
    host, port = server.server_address[:2]
    return str(host), port


def request_of(client_id: bytes) -> bytes:
    body = struct.pack(">hhih", 18, 3, 1, len(client_id)) + client_id
    return struct.pack(">i", len(body)) + body


def connect(network: Network, broker_id: int, port: int) -> socket.socket:
    return socket.create_connection((network.relay_address(broker_id), port), TIMEOUT_S)


def is_answered(connection: socket.socket, request: bytes, timeout_s: float = TIMEOUT_S) -> bool:
    connection.sendall(request)
    return receives(connection, request, timeout_s)


def receives(connection: socket.socket, expected: bytes, timeout_s: float) -> bool:
    connection.settimeout(timeout_s)
    received = b""
    try:
        while len(received) < len(expected):
            received += connection.recv(4096)
    except TimeoutError:
        return False
    assert received == expected
    return True


@pytest.mark.parametrize("client_id", [b"1", b"broker-1-fetcher-0"])
def test_a_cut_holds_back_two_brokers_and_no_others(network: Network, client_id: bytes) -> None:
    request = request_of(client_id)
    with (
        connect(network, 2, BROKER_PORT) as cut_off,
        connect(network, 3, BROKER_PORT) as other,
        connect(network, 2, CLIENT_PORT) as client,
    ):
        assert is_answered(cut_off, request)
        network.cut(broker_name(1), broker_name(2))
        assert not is_answered(cut_off, request, SILENCE_S)
        assert is_answered(other, request)
        assert is_answered(client, b"of a client")
        with connect(network, 2, BROKER_PORT) as late:
            assert not is_answered(late, request, SILENCE_S)
            network.heal(broker_name(2), broker_name(1))
            assert receives(late, request, TIMEOUT_S)
        assert receives(cut_off, request, TIMEOUT_S), "the bytes arrive late"


def test_a_cut_in_one_direction(network: Network) -> None:
    """Responses are held back, wherever the request comes from."""
    with connect(network, 1, ZOOKEEPER_PORT) as connection:
        assert is_answered(connection, b"one")
        network.cut(ZOOKEEPER, broker_name(1), one_way=True)
        assert not is_answered(connection, b"two", SILENCE_S)
        network.heal_all()
        assert receives(connection, b"two", TIMEOUT_S)
    with connect(network, 2, ZOOKEEPER_PORT) as connection:
        assert is_answered(connection, b"three")


def test_connections_are_reset(network: Network) -> None:
    with connect(network, 1, CLIENT_PORT) as connection:
        assert is_answered(connection, b"one")
        network.cut(CLIENTS, broker_name(1), resets=True)
        with pytest.raises(ConnectionResetError):
            connection.recv(100)
        network.heal(CLIENTS, broker_name(1), resets=True)
    with connect(network, 1, CLIENT_PORT) as connection:
        assert is_answered(connection, b"two")
