"""Consumers with failing brokers, connections, logs and permissions (E3, E6)."""

import shutil
import socket
import threading
from pathlib import Path

import pytest

from penstock.client.consumer.consumer import Consumer
from penstock.client.consumer.positions import LogTruncationError
from penstock.client.errors import (
    AuthenticationError,
    AuthorizationError,
    ClientError,
    DisconnectError,
)
from penstock.core.errors import CorruptRecordError
from penstock.security.acl import AclOperation, ResourceType
from tests.support.broker.in_process import running_broker
from tests.support.broker.logins import AUTHORIZER, SASL_SETTINGS, logged_in
from tests.support.client.own_consumer import at, consumer_of, polled, until, values
from tests.support.protocol.admin import allow, create_topic
from tests.support.protocol.requests import make_topic, produce_values


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def test_a_consumer_continues_after_a_restart_of_the_broker(tmp_path: Path) -> None:
    """Every record is read once and in order."""
    settings = {"listeners": f"PLAINTEXT://127.0.0.1:{free_port()}"}
    with running_broker(tmp_path, settings) as broker, broker.connect() as client:
        make_topic(client, "t")
        produce_values(client, "t", b"0", b"1")
        where = broker.bootstrap_servers
        started = consumer_of(where, reconnect_backoff_max_ms=100)
    with started as consumer:
        consumer.assign([at("t")])
        assert consumer.poll(0.1) == []
        for number in range(2, 4):
            with running_broker(tmp_path, settings) as broker, broker.connect() as client:
                produce_values(client, "t", b"%d" % number)
                if number == 2:
                    assert values(polled(consumer, 3)) == [b"0", b"1", b"2"]
                else:
                    assert values(polled(consumer, 1)) == [b"3"]
            assert consumer.poll(0.05) == []


def test_a_consumer_continues_after_broken_connections(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker, broker.connect() as client:
        make_topic(client, "t")
        with consumer_of(broker) as consumer:
            consumer.assign([at("t")])
            for number in range(10):
                produce_values(client, "t", b"%d" % number)
                cut(consumer)
                assert values(polled(consumer, 1)) == [b"%d" % number]


def cut(consumer: Consumer) -> None:
    """Closes all connections of the consumer, on its event loop."""
    network = consumer._driver.network
    closed = threading.Event()

    def close() -> None:
        for connection in network._connections.values():
            if connection.channel is not None:
                connection.channel.close(DisconnectError("cut by the test"))
        closed.set()

    consumer._loop_thread.post(close)
    assert closed.wait(60)


def restore_shorter_log(directory: Path, where: dict[str, str]) -> None:
    """Restores a log without the last records, with a later leader epoch."""
    shutil.rmtree(directory / "data")
    shutil.copytree(directory / "before", directory / "data")
    for _ in range(2):
        with running_broker(directory, where):
            pass


@pytest.mark.parametrize("reset", ["earliest", "none"])
def test_a_truncated_log_is_detected(tmp_path: Path, reset: str) -> None:
    """KIP-320: the new leader lacks consumed records; the position is reset, or an error raised."""
    where = {"listeners": f"PLAINTEXT://127.0.0.1:{free_port()}"}
    with running_broker(tmp_path, where) as broker, broker.connect() as client:
        make_topic(client, "t")
        produce_values(client, "t", b"a", b"b")
        started = consumer_of(
            broker, auto_offset_reset=reset, reconnect_backoff_max_ms=100, metadata_max_age_ms=200
        )
    shutil.copytree(tmp_path / "data", tmp_path / "before")
    with started as consumer:
        consumer.assign([at("t")])
        consumer.seek(at("t"), 0)
        with running_broker(tmp_path, where) as broker, broker.connect() as client:
            produce_values(client, "t", b"lost", b"lost too")
            assert len(polled(consumer, 4)) == 4
        restore_shorter_log(tmp_path, where)
        with running_broker(tmp_path, where) as broker, broker.connect() as client:
            if reset == "none":
                with pytest.raises(LogTruncationError, match="t-0 at 4"):
                    until(lambda: False, lambda: consumer.poll(0.5))
                assert consumer.paused() == set()
                consumer.seek(at("t"), 2)
            else:
                until(lambda: consumer.position(at("t")) == 2, lambda: consumer.poll(0.05))
            produce_values(client, "t", b"other")
            assert values(polled(consumer, 1)) == [b"other"]


def test_a_corrupt_batch_raises_an_error(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker, broker.connect() as client:
        make_topic(client, "t")
        produce_values(client, "t", b"good")
        produce_values(client, "t", b"broken")
        produce_values(client, "t", b"good again")
        (segment,) = (tmp_path / "data" / "t-0").glob("*.log")
        content = segment.read_bytes()
        position = content.index(b"broken")
        with segment.open("r+b") as file:
            file.seek(position)
            file.write(b"BROKEN")
        with consumer_of(broker) as consumer:
            consumer.assign([at("t")])
            assert values(polled(consumer, 1)) == [b"good"]
            for _ in range(2):
                with pytest.raises(CorruptRecordError, match=r"t-0 cannot be read .*offset 1"):
                    polled(consumer, 1)
            assert consumer.position(at("t")) == 1
            consumer.seek(at("t"), 2)
            assert values(polled(consumer, 1)) == [b"good again"]
        with consumer_of(broker, check_crcs=False) as consumer:
            consumer.assign([at("t")])
            assert values(polled(consumer, 3)) == [b"good", b"BROKEN", b"good again"]


def test_authentication_and_authorization_errors(tmp_path: Path) -> None:
    """E3: a wrong password, a topic without DESCRIBE and one without READ."""
    settings = {**SASL_SETTINGS, "authorizer.class.name": AUTHORIZER, "super.users": "User:admin"}
    with running_broker(tmp_path, settings) as broker:
        with logged_in(broker, "admin") as admin:
            create_topic(admin, "seen")
            create_topic(admin, "hidden")
            allow(admin, "User:ann", AclOperation.DESCRIBE, ResourceType.TOPIC, "seen")
        address = next(
            address_item
            for address_item in broker.addresses
            if address_item.listener == "SASL_PLAINTEXT"
        )
        where = f"{address.host}:{address.port}"

        def as_ann(password: str) -> Consumer:
            return consumer_of(
                where,
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="PLAIN",
                sasl_plain_username="ann",
                sasl_plain_password=password,
            )

        with as_ann("wrong") as consumer:
            consumer.assign([at("seen")])
            with pytest.raises(AuthenticationError):
                polled(consumer, 1)
        with as_ann("ann-secret") as consumer:
            consumer.assign([at("hidden")])
            with pytest.raises(AuthorizationError, match="hidden"):
                polled(consumer, 1)
            consumer.unsubscribe()
            consumer.assign([at("seen")])
            with pytest.raises(AuthorizationError, match="may not read topic seen"):
                polled(consumer, 1)


def test_the_error_without_a_broker_has_a_remedy() -> None:
    """E6: a call raises an error with a remedy; poll continues to retry."""
    with consumer_of(f"127.0.0.1:{free_port()}") as consumer:
        consumer.assign([at("t")])
        assert consumer.poll(0.1) == []
        with pytest.raises(ClientError, match="check bootstrap_servers"):
            consumer.end_offsets([at("t")], timeout=0.3)
