"""Memory of requests in progress is bounded for all clients of a broker (X5)."""

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.core.errors import ErrorCode
from tests.support.broker.memory import Canary, PeakMemory, connect
from tests.support.broker.process import PenstockBroker
from tests.support.broker.strangers import Strangers
from tests.support.protocol.requests import batch_of, make_topic, send_batch

MIB = 2**20
BUDGET_MIB = 64
REQUEST = 8 * MIB
SLACK_MIB = 24
"""Buffers of sockets and of the allocator, and the usual work of the canary."""

SETTINGS = {
    "request.memory.max.bytes": str(BUDGET_MIB * MIB),
    "socket.request.max.bytes": str(REQUEST),
    "message.max.bytes": str(REQUEST),
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[PenstockBroker]:
    with PenstockBroker(tmp_path, SETTINGS) as running:
        yield running


@pytest.mark.parametrize(
    "sent", [REQUEST - 1, pytest.param(REQUEST // 2, marks=pytest.mark.long), 1]
)
def test_large_requests_of_strangers_stay_within_the_budget(
    broker: PenstockBroker, sent: int
) -> None:
    """200 requests of 8 MiB, which never end: more than 25 times the budget."""
    with Canary(broker) as canary:
        canary.wait_for(20)
        peak = PeakMemory(broker.pid)
        with Strangers(broker, 200, REQUEST, sent) as strangers:
            strangers.run(1.5)
            assert peak.mib < BUDGET_MIB + SLACK_MIB
    assert len(canary.seconds) > 50


def test_whole_requests_of_strangers_stay_within_the_budget(broker: PenstockBroker) -> None:
    with Canary(broker) as canary:
        peak = PeakMemory(broker.pid)
        with Strangers(broker, 200, REQUEST, REQUEST) as strangers:
            strangers.run(1.5)
            strangers.run(30, lambda: strangers.closed > 10)  # a busy machine reads slowly
            assert peak.mib < BUDGET_MIB + SLACK_MIB
            assert strangers.closed > 10
    assert len(canary.seconds) > 50


def test_a_slow_sender_loses_its_memory_to_those_that_wait(broker: PenstockBroker) -> None:
    """Five stalled requests take all the memory of large ones; a sixth gets it soon."""
    with connect(broker) as client:
        make_topic(client, "t")
        stalled = [connect(broker) for _ in range(5)]
        for sender in stalled:
            sender.sock.sendall(struct.pack(">i", REQUEST) + bytes(200_000))
        client.sock.settimeout(20)  # without the rule it would wait for request.timeout.ms, 30 s
        response = send_batch(client, "t", batch_of(os.urandom(6 * MIB)))
        assert response.error_code == ErrorCode.NONE
        for sender in stalled:
            sender.close()


def test_ordinary_requests_do_not_wait_for_large_ones(broker: PenstockBroker) -> None:
    with connect(broker) as client:
        make_topic(client, "t")
        with Strangers(broker, 20, REQUEST, REQUEST - 1) as strangers:
            strangers.run(0.5)
            # The strangers keep their memory for request.timeout.ms, 30 s.
            client.sock.settimeout(20)
            for _ in range(5):
                response = send_batch(client, "t", batch_of(os.urandom(MIB)))
                assert response.error_code == ErrorCode.NONE


def test_the_memory_of_all_requests_is_returned(broker: PenstockBroker) -> None:
    """After many broken connections, the budget still has room for the largest request."""
    for size in (100_000, MIB, REQUEST):
        with Strangers(broker, 30, size, size // 2) as strangers:
            strangers.run(0.5)
    with connect(broker) as client:
        make_topic(client, "t")
        client.sock.settimeout(5)
        response = send_batch(client, "t", batch_of(os.urandom(7 * MIB)))
        assert response.error_code == ErrorCode.NONE
