"""The fast path of small Produce requests has the same responses as the handler (P2, P3)."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.broker.replica.fast_produce import VERSIONS, FastProduce
from penstock.net.server.connection import Connection
from penstock.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from penstock.records.build import build_batch
from penstock.records.compress import Compression
from penstock.records.record import Record
from tests.support.broker.in_process import RunningBroker, WireClient, running_broker

SEEDS = range(6)
NOW_MS = 1_700_000_000_000


@pytest.fixture
def fast_and_normal(tmp_path: Path) -> Iterator[tuple[RunningBroker, RunningBroker]]:
    """A normal broker, and one without the fast path."""
    with running_broker(tmp_path / "fast") as fast, running_broker(tmp_path / "normal") as normal:
        normal.call(lambda _: setattr(normal.app.parts.dispatcher, "fast_produce", _Never()))
        for broker in (fast, normal):
            with broker.connect() as client:
                topics = [CreatableTopic(name, 2, 1) for name in ("a", "some-longer-topic-name")]
                response = client.request(CreateTopicsRequest(topics), 7)
                assert [topic.error_code for topic in response.topics] == [0, 0]
        yield fast, normal


class _Never:
    def try_handle(self, *_: object) -> bool:
        return False

    def clear(self) -> None: ...


def random_batch(rng: random.Random, sequences: dict[int, int]) -> bytes:
    """Usually a valid batch, sometimes an invalid or repeated one."""
    records = [
        Record(i, NOW_MS, rng.choice([None, b"key"]), rng.randbytes(rng.choice([0, 10, 3000])))
        for i in range(rng.choice([1, 1, 1, 3]))
    ]
    compression = rng.choice([Compression.NONE] * 5 + [Compression.LZ4])
    if rng.random() < 0.5:
        return bytes(build_batch(records, compression=compression))
    producer_id = rng.randrange(2)
    sequence = sequences.get(producer_id, 0) + rng.choice([0, 0, 0, 0, -1, 5])
    sequences[producer_id] = max(sequence, 0) + len(records)
    batch = build_batch(
        records,
        compression=compression,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=max(sequence, 0),
    )
    if rng.random() < 0.1:
        batch[20] ^= 1  # the CRC is wrong now
    return bytes(batch)


def random_request(rng: random.Random, sequences: dict[int, int]) -> ProduceRequest:
    topic = rng.choice(["a", "a", "some-longer-topic-name", "missing"])
    partitions = [
        PartitionProduceData(rng.choice([0, 0, 1, 7]), random_batch(rng, sequences))
        for _ in range(rng.choice([1, 1, 1, 1, 2]))
    ]
    return ProduceRequest(
        acks=rng.choice([-1, 1]),
        timeout_ms=rng.choice([1000, 30_000]),
        topic_data=[TopicProduceData(topic, partition_data=partitions)],
    )


def raw_response(client: WireClient, request: ProduceRequest, version: int) -> bytes:
    client.send(request, version)
    return client.receive_frame()


@pytest.mark.parametrize("seed", SEEDS)
def test_both_paths_return_the_same_bytes(
    fast_and_normal: tuple[RunningBroker, RunningBroker], seed: int
) -> None:
    fast, normal = fast_and_normal
    rng = random.Random(seed)
    sequences: dict[int, int] = {}
    with fast.connect() as fast_client, normal.connect() as normal_client:
        for _ in range(120):
            request = random_request(rng, sequences)
            version = rng.choice([8, *VERSIONS])
            responses = (
                raw_response(fast_client, request, version),
                raw_response(normal_client, request, version),
            )
            assert responses[0] == responses[1], f"seed {seed}"


def test_small_requests_use_the_fast_path(
    fast_and_normal: tuple[RunningBroker, RunningBroker],
) -> None:
    fast, _ = fast_and_normal
    taken: list[bool] = []
    fast_produce: FastProduce = fast.app.parts.dispatcher.fast_produce
    try_handle = fast_produce.try_handle

    def watched(
        connection: Connection, version: int, correlation_id: int, frame: memoryview, position: int
    ) -> bool:
        taken.append(try_handle(connection, version, correlation_id, frame, position))
        return taken[-1]

    fast.call(lambda _: setattr(fast_produce, "try_handle", watched))
    batch = bytes(build_batch([Record(0, NOW_MS, None, b"value")]))
    data = [TopicProduceData("a", partition_data=[PartitionProduceData(0, batch)])]
    with fast.connect() as client:
        for version in VERSIONS:
            response = client.request(
                ProduceRequest(acks=-1, timeout_ms=1000, topic_data=data), version
            )
            assert response.responses[0].partition_responses[0].error_code == 0
    assert taken == [True] * len(VERSIONS)
