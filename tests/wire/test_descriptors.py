"""A broker with few descriptors (X5): connections and partitions beyond them do no harm."""

import os
import socket
import time
from contextlib import ExitStack
from pathlib import Path

from penstock.core.errors import ErrorCode
from penstock.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.support.broker.in_process import WireClient
from tests.support.broker.process import PenstockBroker
from tests.support.protocol.requests import (
    batch_of,
    fetch_partition,
    make_topic,
    produce_values,
    send_batch,
    values_in,
)

LIMIT = 300


def connect(broker: PenstockBroker) -> WireClient:
    host, port = broker.bootstrap.rsplit(":", 1)
    return WireClient((host, int(port)))


def open_files(broker: PenstockBroker) -> int:
    return len(os.listdir(f"/proc/{broker.pid}/fd"))


def test_strangers_cannot_take_the_descriptors_of_files(tmp_path: Path) -> None:
    """Segments are rolled, topics created, and clients served, while strangers fill the table."""
    with (
        PenstockBroker(tmp_path, max_open_files=LIMIT) as broker,
        connect(broker) as client,
        ExitStack() as strangers,
    ):
        make_topic(client, "orders", 3, {"segment.bytes": "1048576"})
        host, port = broker.bootstrap.rsplit(":", 1)
        refused = 0
        for _ in range(2 * LIMIT):
            sock = strangers.enter_context(socket.create_connection((host, int(port))))
            sock.settimeout(0.001)
            try:
                refused += sock.recv(1) == b""
            except TimeoutError:
                continue
            except ConnectionError:
                refused += 1
        assert refused > LIMIT
        for n in range(30):
            assert produce_values(client, "orders", bytes(300_000), partition=n % 3) == n // 3
        make_topic(client, "more", 50)
        for n in range(50):
            produce_values(client, "more", b"a", partition=n)
        assert open_files(broker) < LIMIT
        assert len(list((tmp_path / "data" / "orders-0").glob("*.log"))) > 2
        strangers.close()
        deadline = time.monotonic() + 10
        while True:
            try:
                with connect(broker) as late:
                    produce_values(late, "orders", b"late")
                break
            except ConnectionError:
                assert time.monotonic() < deadline
    log = broker.log.read_text(encoding="utf-8")
    assert log.count("descriptors for connections are in use") <= 10
    assert "LimitNOFILE=" in log
    assert "offline" not in log


def test_more_partitions_than_descriptors(tmp_path: Path) -> None:
    """Each partition takes records, is read, and survives a restart."""
    count = 2 * LIMIT
    with PenstockBroker(tmp_path, max_open_files=LIMIT) as broker:
        with connect(broker) as client:
            topics = [CreatableTopic(f"t{n}", 30, 1) for n in range(count // 30)]
            for topic in topics:
                request = CreateTopicsRequest([topic], timeout_ms=30_000)
                assert client.request(request, 7).topics[0].error_code == 0
            refused = 0
            for n in range(count):
                deadline = time.monotonic() + 20
                while True:
                    response = send_batch(
                        client, f"t{n // 30}", batch_of(b"%d" % n), partition=n % 30
                    )
                    if response.error_code == 0:
                        break
                    assert response.error_code == ErrorCode.KAFKA_STORAGE_ERROR
                    assert time.monotonic() < deadline
                    refused += 1
                    time.sleep(0.05)
            assert open_files(broker) < LIMIT
            check_values(client, count)
            assert open_files(broker) < LIMIT
        broker.stop()
        broker.start()
        with connect(broker) as client:
            check_values(client, count)
            assert open_files(broker) < LIMIT
    assert "offline" not in broker.log.read_text(encoding="utf-8")


def check_values(client: WireClient, count: int) -> None:
    for n in range(count):
        data = fetch_partition(client, f"t{n // 30}", partition=n % 30)
        assert values_in(data) == [b"%d" % n]
