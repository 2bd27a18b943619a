"""Batches that decompress to much more than their size take the memory of one of them."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from penstock.core.errors import ErrorCode
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.records.compress import Compression
from tests.support.broker.memory import PeakMemory, connect
from tests.support.broker.process import PenstockBroker
from tests.support.protocol.requests import batch_of, make_topic

MIB = 2**20
LIMIT_MIB = 128
"""The default of message.max.decompressed.bytes."""


def produce_to_all(topic: str, partitions: int, batch: bytes) -> ProduceRequest:
    data = [PartitionProduceData(index, batch) for index in range(partitions)]
    return ProduceRequest(
        acks=-1, timeout_ms=60_000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )


@pytest.mark.parametrize(
    "codec",
    [
        Compression.ZSTD,
        pytest.param(Compression.GZIP, marks=pytest.mark.long),
        pytest.param(Compression.LZ4, marks=pytest.mark.long),
    ],
)
def test_bombs_for_many_partitions_take_the_memory_of_one(
    tmp_path: Path, codec: Compression
) -> None:
    partitions = 20 if codec is Compression.ZSTD else 6
    bomb = batch_of(bytes(140 * MIB), codec=codec)
    with PenstockBroker(tmp_path) as broker, connect(broker) as client:
        client.sock.settimeout(120)
        make_topic(client, "t", partitions)
        peak = PeakMemory(broker.pid)
        response = client.request(produce_to_all("t", partitions, bomb), 9)
        codes = {data.error_code for data in response.responses[0].partition_responses}
        assert codes == {ErrorCode.MESSAGE_TOO_LARGE}
        assert peak.mib < 1.5 * LIMIT_MIB


def test_bombs_of_many_clients_take_the_memory_of_one(tmp_path: Path) -> None:
    bomb = batch_of(bytes(140 * MIB), codec=Compression.ZSTD)
    with PenstockBroker(tmp_path) as broker, ExitStack() as stack:
        clients = [stack.enter_context(connect(broker)) for _ in range(10)]
        make_topic(clients[0], "t", 2)
        peak = PeakMemory(broker.pid)
        request = produce_to_all("t", 2, bomb)
        for client in clients:
            client.sock.settimeout(120)
            client.send(request, 9)
        for client in clients:
            response = client.receive(request, 9)
            assert isinstance(response, ProduceResponse)
            codes = {data.error_code for data in response.responses[0].partition_responses}
            assert codes == {ErrorCode.MESSAGE_TOO_LARGE}
        assert peak.mib < 1.5 * LIMIT_MIB
