"""Invalid bytes affect only their own connection: a fuzzer for whole frames.

`PENSTOCK_FUZZ_EXAMPLES` and `--hypothesis-seed` (with HYPOTHESIS_PROFILE=explore) make it longer.
"""

import os
import resource
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from penstock.broker.broker import Broker
from penstock.broker.handlers.table import CLUSTER_APIS
from penstock.core.errors import ErrorCode
from penstock.protocol.api import api
from penstock.protocol.api_key import ApiKey
from penstock.protocol.frames import decode_response
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.records.compress import Compression
from penstock.records.read import read_records
from tests.support.broker.faults import Faults, watching
from tests.support.broker.in_process import RunningBroker, WireClient, running_broker
from tests.support.broker.logins import SASL_SETTINGS
from tests.support.broker.process import PenstockBroker
from tests.support.cluster.brokers import running_member
from tests.support.protocol.admin import fetch, produce
from tests.support.protocol.hostile import (
    RESPONDS_LATE,
    Sent,
    between_brokers,
    damaged_frames,
    frame,
    random_bytes,
    requests,
)
from tests.support.protocol.requests import batch_of, fetch_request, send_batch

EXAMPLES = int(os.environ.get("PENSTOCK_FUZZ_EXAMPLES", "100"))
PROBE = 0x7E57
MEMORY_MB = 150
"""Most of it is memory of the fuzzer itself."""
IDLE_MS = 60_000
LISTENERS = ["PLAINTEXT", "PLAINTEXT", "SASL_PLAINTEXT"]

pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")

fuzzing = settings(
    max_examples=EXAMPLES,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


class Target:
    """A broker under test, and a well-behaved client of it."""

    def __init__(self, broker: RunningBroker, faults: Faults) -> None:
        self.broker = broker
        self.faults = faults
        self.client = broker.connect("PLAINTEXT", client_id="well-behaved")
        self._sent = 0
        create(self.client, "control")

    def check(self) -> None:
        """Checks that the broker still serves the other client and has logged no fault."""
        value = b"%d" % self._sent
        offset = produce(self.client, "control", value)
        assert offset == self._sent
        self._sent += 1
        result = fetch(self.client, "control", offset)
        assert [record.value for record in read_records(result.records)] == [value]
        self.faults.check()


def create(client: WireClient, topic: str) -> None:
    response = client.request(MetadataRequest([MetadataRequestTopic(name=topic)]), 9)
    assert response.topics[0].error_code == 0


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    broker_settings = {
        **SASL_SETTINGS,
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "2",
        "log.cleaner.enable": "false",
        "connections.max.idle.ms": str(IDLE_MS),
    }
    before_mb = resident_mb(os.getpid())
    with (
        watching() as faults,
        running_broker(tmp_path_factory.mktemp("hostile"), broker_settings) as broker,
    ):
        created_target = Target(broker, faults)
        yield created_target
        created_target.client.close()
    assert resident_mb(os.getpid()) - before_mb < MEMORY_MB


def send_and_drain(client: WireClient, data: bytes) -> None:
    """Sends the data and reads until the broker closes the connection, which it must."""
    with suppress(ConnectionError):
        client.sock.sendall(data)
    with suppress(OSError):  # the connection may be reset already
        client.sock.shutdown(socket.SHUT_WR)
    with suppress(ConnectionError):
        while client.sock.recv(1 << 16):
            pass


@fuzzing
@given(random_bytes(), st.sampled_from(LISTENERS))
def test_random_bytes_close_only_their_connection(
    target: Target, data: bytes, listener: str
) -> None:
    with target.broker.connect(listener) as client:
        send_and_drain(client, data)
    target.check()


@fuzzing
@given(damaged_frames(), st.sampled_from(LISTENERS))
def test_damaged_requests_close_only_their_connection(
    target: Target, data: bytes, listener: str
) -> None:
    create(target.client, "fuzz")
    with target.broker.connect(listener) as client:
        send_and_drain(client, data)
    target.check()


@fuzzing
@given(st.lists(requests(), min_size=1, max_size=4))
def test_valid_requests_with_any_values(target: Target, sent: list[Sent]) -> None:
    """Responses are in order and in the version of the request, or the connection is closed."""
    create(target.client, "fuzz")
    with target.broker.connect("PLAINTEXT") as client:
        frames = [frame(message, version, number) for number, (message, version) in enumerate(sent)]
        client.sock.sendall(b"".join(frames) + frame(ApiVersionsRequest(), 0, PROBE))
        late = any(type(message).INFO.key in RESPONDS_LATE for message, _ in sent)
        if late:
            client.sock.settimeout(0.2)
        try:
            last = -1
            while (number := check_response(client.receive_frame(), sent)) != PROBE:
                assert number > last
                last = number
        except ConnectionError:
            pass
        except TimeoutError:
            assert late
    target.check()


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_member(tmp_path_factory.mktemp("member")) as broker:
        yield broker


@fuzzing
@given(st.lists(requests(between_brokers), min_size=1, max_size=4))
def test_requests_of_brokers_with_any_values(member: RunningBroker, sent: list[Sent]) -> None:
    """Their sender can take partitions away, as in Kafka, but the broker responds to everything."""

    def forget_controller(broker: Broker) -> None:
        """Otherwise requests of a lower epoch than the highest one so far would be refused."""
        broker.controller_requests._controller_epoch = 0

    with watching(), member.connect() as client:
        member.call(forget_controller)
        for message, version in sent:
            client.request(message, version)
        assert client.request(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE
        client.request(MetadataRequest(None), 9)


@pytest.mark.parametrize("key", sorted(CLUSTER_APIS), ids=lambda key: key.name)
def test_a_single_node_serves_no_requests_of_brokers(target: Target, key: ApiKey) -> None:
    """Without an authorizer, strangers could remove its replicas with them."""
    with target.broker.connect("PLAINTEXT") as client:
        versions = client.request(ApiVersionsRequest(), 0)
        assert key not in [version.api_key for version in versions.api_keys]
        client.send(api(key).request(), 0)
        assert client.is_closed()
    target.check()


def check_response(response: bytes, sent: list[Sent]) -> int:
    """Decodes the response in the version of its request; returns its correlation id."""
    number = int.from_bytes(response[:4])
    if number != PROBE:
        message, version = sent[number]
        key = type(message).INFO.key
        assert key is not None
        decode_response(api(key).response, version, response)
    return number


# --- single cases; the tests of the network layer have the details


def test_an_unsupported_request_closes_only_its_connection(target: Target) -> None:
    with target.broker.connect("PLAINTEXT") as client:
        client.sock.sendall(b"\0\0\0\x0c\0\0\x7f\xff\0\0\0\x01\0\0\0\0")
        assert client.is_closed()
    with target.broker.connect("PLAINTEXT") as client:
        assert client.request(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE
    target.check()


@pytest.mark.parametrize("length", [2**31 - 1, -1, -(2**31), 2**27])
def test_an_invalid_length_closes_only_its_connection(target: Target, length: int) -> None:
    with target.broker.connect("PLAINTEXT") as client:
        client.sock.sendall(struct.pack(">i", length))
        assert client.is_closed()
    target.check()


def test_an_incomplete_request_closes_only_its_connection(target: Target) -> None:
    whole_frame = frame(MetadataRequest(None), 9)
    for cut in range(1, len(whole_frame)):
        with target.broker.connect("PLAINTEXT") as client:
            send_and_drain(client, whole_frame[:cut])
    target.check()


def test_clients_that_disconnect_with_pending_responses(target: Target) -> None:
    """The connection is reset while a response is pending, or is half-closed."""
    waiting = fetch_request({"control": {0: 10**6}}, max_wait_ms=300, min_bytes=1)
    for _ in range(20):
        client = target.broker.connect("PLAINTEXT")
        client.send(waiting, 11)
        client.send(MetadataRequest(None), 9)
        client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
    with target.broker.connect("PLAINTEXT") as client:
        send_and_drain(client, frame(waiting, 11))
    target.check()


def test_a_client_that_never_reads_is_not_read_from(target: Target) -> None:
    """It fetches the same records again and again; the broker stops reading from it."""
    create(target.client, "unread")
    produce(target.client, "unread", b"x" * 500_000)
    with target.broker.connect("PLAINTEXT") as client:
        client.sock.settimeout(0.5)
        with pytest.raises(TimeoutError):
            client.sock.sendall(frame(fetch_request({"unread": {0: 0}}), 11) * 200_000)
        target.check()


def is_cut_off(client: WireClient, data: bytes) -> bool:
    """Sends byte after byte; returns whether the broker closed the connection early."""
    try:
        for byte in data:
            client.sock.sendall(bytes([byte]))
            with suppress(TimeoutError):
                if not client.sock.recv(1):
                    return True
    except ConnectionError:
        return True
    return False


def test_a_client_that_sends_too_slowly_is_disconnected(tmp_path: Path) -> None:
    """An incomplete request does not count as activity, so its connection is closed as idle."""
    with (
        watching(),
        running_broker(tmp_path, {"connections.max.idle.ms": "400"}) as broker,
        broker.connect() as loris,
    ):
        whole_frame = frame(MetadataRequest([MetadataRequestTopic(name="x" * 200)]), 9)
        started = time.monotonic()
        loris.sock.settimeout(0.05)
        assert is_cut_off(loris, whole_frame)
        assert time.monotonic() - started < 8
        with broker.connect() as client:
            create(client, "t")


def test_batches_that_decompress_to_too_much_are_rejected(tmp_path: Path) -> None:
    """Each is rejected, and its decompressed data is freed before the response is sent."""
    bomb = batch_of(bytes(140 << 20), codec=Compression.GZIP)
    with PenstockBroker(tmp_path) as broker:
        host, port = broker.bootstrap.rsplit(":", 1)
        with WireClient((host, int(port))) as client:
            create(client, "t")
            for _ in range(2):
                response = send_batch(client, "t", bomb)
                assert response.error_code == ErrorCode.MESSAGE_TOO_LARGE
                assert "decompresses to more" in response.error_message
        assert resident_mb(broker.pid) < 130


def resident_mb(pid: int) -> float:
    with Path(f"/proc/{pid}/statm").open() as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20
