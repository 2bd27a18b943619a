"""A broker with a listener for brokers and one for clients, and limits on connections (X4)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.broker.broker import Broker
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from tests.support.broker.in_process import RunningBroker, WireClient, running_broker
from tests.support.protocol.admin import BROKER, alter

SETTINGS = {
    "listeners": "IN://127.0.0.1:0,OUT://127.0.0.1:0",
    "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT",
    "inter.broker.listener.name": "IN",
    "quota.window.num": "2",  # so that a rate of 1 allows two connections at once
}
ANY_REQUEST = ApiVersionsRequest("x", "1")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with running_broker(tmp_path, SETTINGS) as running:
        yield running


@pytest.fixture
def inside(broker: RunningBroker) -> Iterator[WireClient]:
    with broker.connect("IN") as wire_client:
        yield wire_client


def is_served(client: WireClient) -> bool:
    return bool(client.request(ANY_REQUEST, 3).error_code == 0)


def test_connections_of_brokers_replace_those_of_clients(
    broker: RunningBroker, inside: WireClient
) -> None:
    with broker.connect("OUT") as client:
        assert is_served(client)
        assert is_served(inside)
        alter(inside, BROKER, "", {"max.connections": "2"})
        with broker.connect("OUT") as waiting, broker.connect("IN") as second_inside:
            waiting.send(ANY_REQUEST, 3)
            assert is_served(second_inside)
            assert client.is_closed()
            assert is_served(inside)
            second_inside.close()
            assert waiting.receive_frame()


def test_the_connection_rate_of_clients_does_not_affect_brokers(
    broker: RunningBroker, inside: WireClient
) -> None:
    alter(
        inside,
        BROKER,
        "",
        {"max.connection.creation.rate": "1", "listener.name.in.max.connection.creation.rate": "9"},
    )
    clients = [broker.connect("OUT") for _ in range(3)]
    try:
        clients[-1].send(ANY_REQUEST, 3)
        clients[-1].sock.settimeout(0.3)
        with pytest.raises(TimeoutError):
            clients[-1].receive_frame()
        with broker.connect("IN") as second_inside:
            assert is_served(second_inside)
        clients[-1].sock.settimeout(20)
        assert clients[-1].receive_frame()
    finally:
        for client in clients:
            client.close()


def test_connections_are_limited_by_host_name(broker: RunningBroker, inside: WireClient) -> None:
    setting = "max.connections.per.ip.overrides"

    def resolved_overrides(_: Broker) -> dict[str, int]:
        return dict(broker.app.parts.server.admission.named_overrides)

    alter(inside, BROKER, "", {setting: "localhost:1,10.0.0.1:5"})
    while broker.call(resolved_overrides) != {"127.0.0.1": 1}:
        pass
    with broker.connect("OUT") as second:
        assert second.is_closed()
    alter(inside, BROKER, "", {setting: None})
    while broker.call(resolved_overrides):
        pass
    with broker.connect("OUT") as second:
        assert is_served(second)
