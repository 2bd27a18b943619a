"""The faults of `penstock.testing.Broker`, as clients see them."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
from confluent_kafka import Producer

from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.messages.metadata import MetadataRequest
from penstock.testing import ApiKey, Broker, BrokerError
from tests.support.broker.in_process import WireClient
from tests.support.broker.outside import connect, write
from tests.support.coordinator.transaction_client import latest
from tests.support.kafka.broker import wait_until
from tests.support.protocol.requests import batch_of, fetch_request, produce_request, produce_values

TOPIC = "topic"
REQUEST = ApiVersionsRequest()
SILENCE = 0.1


@pytest.fixture(scope="module")
def shared() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def broker(shared: Broker) -> Iterator[Broker]:
    shared.create_topic(TOPIC)
    yield shared
    shared.delete_topic(TOPIC)


def responds(client: WireClient) -> bool:
    client.send(REQUEST, 0)
    return receives(client)


def receives(client: WireClient) -> bool:
    response = client.receive(REQUEST, 0)
    assert isinstance(response, ApiVersionsResponse)
    return response.error_code == 0


def says_nothing(client: WireClient) -> bool:
    client.sock.settimeout(SILENCE)
    try:
        client.sock.recv(1)
    except TimeoutError:
        return True
    finally:
        client.sock.settimeout(20)
    return False


def test_refused(broker: Broker) -> None:
    with connect(broker) as client:
        assert responds(client)
        with broker.refused():
            assert client.is_closed()
            with pytest.raises(ConnectionRefusedError):
                connect(broker)
            assert broker.is_running
        assert write(broker, TOPIC, b"value") == 0


def test_cut(broker: Broker) -> None:
    with connect(broker) as client:
        assert responds(client)
        broker.cut()
        with pytest.raises(ConnectionResetError):
            client.sock.recv(1)
        assert write(broker, TOPIC, b"value") == 0


def test_paused(broker: Broker) -> None:
    with connect(broker) as before:
        assert responds(before)
        with broker.paused():
            before.send(REQUEST, 0)
            with connect(broker) as during:
                during.send(REQUEST, 0)
                assert says_nothing(before)
                assert says_nothing(during)
        assert receives(before)


def test_latency(broker: Broker) -> None:
    with connect(broker) as client, broker.slow(latency_ms=100):
        began = time.monotonic()
        assert responds(client)
        assert time.monotonic() - began >= 0.1


def test_throughput(broker: Broker) -> None:
    """In both directions, and everything arrives as it was sent."""
    values = [bytes([number]) * 10_000 for number in range(5)]
    with connect(broker) as client, broker.slow(bytes_per_second=200_000):
        began = time.monotonic()
        assert produce_values(client, TOPIC, *values) == 0
        assert time.monotonic() - began >= 0.25
        began = time.monotonic()
        response = client.request(fetch_request({TOPIC: {0: 0}}), 12)
        assert time.monotonic() - began >= 0.25
        records = bytes(response.responses[0].partitions[0].records)
        assert all(value in records for value in values)


def test_delayed_bytes_are_delivered_at_the_end(broker: Broker) -> None:
    with connect(broker) as client:
        with broker.slow(latency_ms=3_600_000, bytes_per_second=1):
            client.send(REQUEST, 0)
            assert says_nothing(client)
        assert receives(client)


def test_the_last_requests_of_a_closed_connection_arrive(broker: Broker) -> None:
    """P2: requests that were sent without waiting for a response arrive later."""
    with broker.slow(latency_ms=50), connect(broker) as client:
        client.send(produce_request(TOPIC, batch_of(b"value"), acks=0), 9)
    with connect(broker) as client:
        wait_until(lambda: latest(client, TOPIC, 0) == 1, "the record")


def test_slow_needs_an_argument(broker: Broker) -> None:
    with pytest.raises(ValueError, match="latency_ms"), broker.slow():
        pass


def test_a_response_is_lost(broker: Broker) -> None:
    """P3: the request is handled, and its connection is reset."""
    with connect(broker) as client, broker.losing_replies(ApiKey.PRODUCE) as lost:
        assert responds(client)
        assert lost.count == 0
        client.send(produce_request(TOPIC, batch_of(b"lost")), 9)
        assert client.is_closed()
        assert lost.count == 1
    assert lost.count == 1
    assert write(broker, TOPIC, b"next") == 1


def test_earlier_responses_arrive(broker: Broker) -> None:
    with connect(broker) as client, broker.losing_replies(ApiKey.PRODUCE):
        client.send(REQUEST, 0)
        client.send(produce_request(TOPIC, batch_of(b"lost")), 9)
        assert receives(client)
        assert client.is_closed()


def test_a_response_is_lost_silently(broker: Broker) -> None:
    """The client waits until the end of the fault."""
    with connect(broker) as client:
        with broker.losing_replies(silently=True) as lost:
            client.send(produce_request(TOPIC, batch_of(b"lost")), 9)
            wait_until(lambda: lost.count == 1, "the response that is lost")
            assert says_nothing(client)
        assert client.is_closed()
    assert write(broker, TOPIC, b"next") == 1


def test_the_number_of_lost_responses_is_limited(broker: Broker) -> None:
    """The limit is per API."""
    with broker.losing_replies(ApiKey.PRODUCE, ApiKey.METADATA, times=1) as lost:
        for request in (produce_request(TOPIC, batch_of(b"lost")), MetadataRequest()):
            with connect(broker) as client:
                client.send(request, 9)
                assert client.is_closed()
            assert write(broker, TOPIC, b"next") >= 1
    assert lost.count == 2


def test_nested_faults(broker: Broker) -> None:
    """Each ends with its own block."""
    with connect(broker) as client, broker.slow(latency_ms=20):
        with broker.losing_replies(ApiKey.PRODUCE):
            assert responds(client)
        began = time.monotonic()
        assert responds(client)
        assert time.monotonic() - began >= 0.02
        with broker.refused():
            assert client.is_closed()
        assert write(broker, TOPIC, b"value") == 0


def test_a_restart_during_faults(broker: Broker) -> None:
    with broker.refused():
        broker.restart()
        with pytest.raises(ConnectionRefusedError):
            connect(broker)
    assert write(broker, TOPIC, b"value") == 0


def test_a_paused_broker_stops_and_heals(broker: Broker) -> None:
    with broker.paused():
        broker.stop()
    broker.heal()
    with broker.paused():
        broker.heal()
        assert write(broker, TOPIC, b"value") == 0
    with broker.refused(), broker.slow(latency_ms=3_600_000):
        broker.heal()
        assert write(broker, TOPIC, b"another") == 1


def test_other_protocols_are_passed_to_the_broker(broker: Broker) -> None:
    """The broker closes the connection."""
    with connect(broker) as client:
        client.sock.sendall(b"\xff\xff\xff\xffGET / HTTP/1.1\r\n\r\n")
        assert client.is_closed()
    with connect(broker) as client:
        client.sock.sendall(b"\0\0")
        client.sock.shutdown(socket.SHUT_WR)
        assert client.is_closed()


@pytest.mark.parametrize(
    "fault",
    [
        lambda broker: broker.refused(),
        lambda broker: broker.slow(latency_ms=1),
        lambda broker: broker.losing_replies(),
    ],
)
def test_without_the_relay(fault: Callable[[Broker], AbstractContextManager[object]]) -> None:
    with (
        Broker(faults=False) as broker,
        pytest.raises(BrokerError, match=r"Broker\(faults=False\)"),
        fault(broker),
    ):
        pass


def test_librdkafka_with_all_faults(broker: Broker) -> None:
    """P3: an idempotent producer loses and duplicates nothing."""
    outcomes: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "enable.idempotence": True,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
            "retry.backoff.ms": 10,
            "linger.ms": 0,
            "log_level": 0,
        }
    )

    def send(count: int) -> None:
        for _ in range(count):
            producer.produce(TOPIC, b"value", on_delivery=lambda error, _: outcomes.append(error))

    send(10)
    assert producer.flush(30) == 0
    with broker.losing_replies(ApiKey.PRODUCE, times=2) as lost:
        send(10)
        assert producer.flush(30) == 0
    assert lost.count == 2
    with broker.slow(latency_ms=20):
        send(10)
        broker.cut()
        assert producer.flush(30) == 0
    send(10)
    broker.kill()
    send(10)
    broker.start()
    assert producer.flush(30) == 0
    assert outcomes == [None] * 50
    assert write(broker, TOPIC, b"last") == 50
