"""Whatever bytes come, they cost their own connection only: a fuzzer over whole frames.

`PENSTOCK_FUZZ_EXAMPLES` and `--hypothesis-seed` (with HYPOTHESIS_PROFILE=explore) make it longer.
"""

import os
import resource
import socket
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from penstock.core.errors import ErrorCode
from penstock.protocol.api import api
from penstock.protocol.fields import Message
from penstock.protocol.frames import decode_response
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.records.read import read_records
from tests.support.admin import fetch, produce
from tests.support.broker import RunningBroker, WireClient, running_broker
from tests.support.faults import Faults, watching
from tests.support.hostile import ANSWERS_LATE, damaged_frames, frame, random_bytes, requests

EXAMPLES = int(os.environ.get("PENSTOCK_FUZZ_EXAMPLES", "120"))
PROBE = 0x7E57
MEMORY_MB = 200

fuzzing = settings(
    max_examples=EXAMPLES,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


class Target:
    """A broker under fire, and a client that goes on beside it."""

    def __init__(self, broker: RunningBroker, faults: Faults) -> None:
        self.broker = broker
        self.faults = faults
        self.client = broker.connect(client_id="well-behaved")
        self._sent = 0
        create(self.client, "control")

    def check(self) -> None:
        """The broker serves as if nothing had happened, and has met nothing it did not expect."""
        value = b"%d" % self._sent
        offset = produce(self.client, "control", value)
        assert offset == self._sent
        self._sent += 1
        found = fetch(self.client, "control", offset)
        assert [record.value for record in read_records(found.records)] == [value]
        self.faults.check()


def create(client: WireClient, topic: str) -> None:
    response = client.ask(MetadataRequest([MetadataRequestTopic(name=topic)]), 9)
    assert response.topics[0].error_code == 0


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    few = {
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "2",
        "log.cleaner.enable": "false",
    }
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with watching() as faults, running_broker(tmp_path_factory.mktemp("hostile"), few) as broker:
        made = Target(broker, faults)
        yield made
        made.client.close()
    grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb) / 1024
    assert grown_mb < MEMORY_MB


def read_to_end(client: WireClient) -> None:
    """Until the broker hangs up, which it must."""
    try:
        client.sock.shutdown(socket.SHUT_WR)
        while client.sock.recv(1 << 16):
            pass
    except ConnectionError:
        pass


@fuzzing
@given(random_bytes())
def test_random_bytes(target: Target, data: bytes) -> None:
    with target.broker.connect() as client:
        client.sock.sendall(data)
        read_to_end(client)
    target.check()


@fuzzing
@given(damaged_frames())
def test_damaged_requests(target: Target, data: bytes) -> None:
    create(target.client, "fuzz")
    with target.broker.connect() as client:
        client.sock.sendall(data)
        read_to_end(client)
    target.check()


@fuzzing
@given(requests())
def test_any_values(target: Target, request: tuple[Message, int]) -> None:
    """A valid request is answered in its own version, or its connection is closed."""
    message, version = request
    key = type(message).INFO.key
    assert key is not None
    create(target.client, "fuzz")
    with target.broker.connect() as client:
        probe = frame(ApiVersionsRequest(), 0, PROBE)
        client.sock.sendall(frame(message, version) + probe)
        if key in ANSWERS_LATE:
            client.sock.settimeout(0.2)
        try:
            answer = client.receive_frame()
            if int.from_bytes(answer[:4]) != PROBE:
                header, _ = decode_response(api(key).response, version, answer)
                assert header.correlation_id == 1
                client.receive_frame()
        except ConnectionError:
            pass
        except TimeoutError:
            assert key in ANSWERS_LATE
    target.check()


def test_the_broker_says_no_in_the_log_only_once_in_a_while(target: Target) -> None:
    """A version that is not served closes the connection; the next connection is served."""
    with target.broker.connect() as client:
        client.sock.sendall(b"\0\0\0\x0c\0\0\x7f\xff\0\0\0\x01\0\0\0\0")
        assert client.is_closed()
    with target.broker.connect() as client:
        assert client.ask(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE
