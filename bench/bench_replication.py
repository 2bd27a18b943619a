"""Replication: what a follower's fetches cost, without the network (R2).

The leader's responses are encoded beforehand. The follower builds and encodes its requests, decodes
the responses and appends the records, as a broker does. Figures are CPU time of the follower alone.
"""

import asyncio
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from bench.report import Row, at_least, at_most
from penstock.broker.config.topic_config import TopicConfig
from penstock.broker.replica.log_flusher import LogFlusher
from penstock.broker.replica.replica import Replica
from penstock.broker.replica.replica_fetcher_manager import ReplicaFetcherManager
from penstock.broker.workers import Workers
from penstock.core.ids import TopicPartition
from penstock.core.system_clock import SystemClock
from penstock.net.client.network_client import Request
from penstock.protocol import codec
from penstock.protocol.fields import Message
from penstock.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
)
from penstock.records.batch import set_base_offset_and_epoch
from penstock.records.build import build_batch
from penstock.records.record import Record
from penstock.replication.follower_session import FetcherSettings
from penstock.replication.partition import Partition
from penstock.storage.disk import OsDisk
from penstock.storage.log_config import LogConfig
from penstock.storage.manager.log_manager import LogManager

R = TypeVar("R", bound=Message)

VERSION = 17
TOPIC_ID = UUID(int=1)
RECORD = 100
EPOCH = 3


def batch(base_offset: int, records: int) -> bytearray:
    data = build_batch([Record(n, 1_700_000_000_000, None, b"v" * RECORD) for n in range(records)])
    set_base_offset_and_epoch(data, 0, base_offset, EPOCH)
    return data


class Leader:
    """A client whose responses are prepared: those of `fetches`, then empty ones."""

    def __init__(self, partitions: int, fetches: list[bytes], on_end: Callable[[], None]) -> None:
        self._first = codec.encode(
            FetchResponse(
                session_id=1,
                responses=[
                    FetchableTopicResponse(
                        topic_id=TOPIC_ID,
                        partitions=[
                            FetchPartitionData(index, 0, 0, 0, 0) for index in range(partitions)
                        ],
                    )
                ],
            ),
            VERSION,
        )
        self._fetches = fetches
        self._next = -1
        self._on_end = on_end

    async def request(
        self, broker_id: int, message: Request, response_type: type[R], **options: object
    ) -> R:
        assert isinstance(message, FetchRequest)
        codec.encode_parts(message, VERSION)
        if self._next == len(self._fetches):
            self._on_end()
            await asyncio.sleep(3600)
        data = self._first if self._next < 0 else self._fetches[self._next]
        self._next += 1
        response, _ = codec.decode(response_type, VERSION, data)
        return response

    async def close(self) -> None:
        pass


def fetch_responses(
    partitions: int, active: int, batches: int, records: int, count: int
) -> list[bytes]:
    """`count` responses with `batches` batches for each of `active` partitions in turn."""
    offsets = [0] * partitions
    responses = []
    index = 0
    for _ in range(count):
        data = []
        for _ in range(active):
            index = (index + 1) % partitions
            value = b"".join(batch(offsets[index] + n * records, records) for n in range(batches))
            offsets[index] += batches * records
            data.append(
                FetchPartitionData(index, 0, offsets[index], offsets[index], 0, records=value)
            )
        response = FetchResponse(
            session_id=1,
            responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=data)],
        )
        responses.append(codec.encode(response, VERSION))
    return responses


async def follow(directory: str, partitions: int, fetches: list[bytes]) -> float:
    """Returns the CPU seconds of all fetches after the first one."""
    clock = SystemClock()
    logs = LogManager(OsDisk(), [directory], clock)
    logs.startup(lambda topic: LogConfig(), node_id=1)
    workers = Workers()
    done = asyncio.Event()
    leader = Leader(partitions, fetches, done.set)
    manager = ReplicaFetcherManager(
        FetcherSettings(1),
        num_fetchers=1,
        new_client=lambda client_id: leader,
        logs=logs,
        workers=workers,
        log_flusher=LogFlusher(workers),
        clock=clock,
        broker_epoch=lambda: 1,
    )
    config = TopicConfig(LogConfig(), 1, False, (), ())
    replicas = []
    for index in range(partitions):
        key = TopicPartition("bench", index)
        replica = Replica(
            Partition(key, TOPIC_ID, 1), logs.get_or_create(key, LogConfig(), TOPIC_ID), config
        )
        replica.apply_state(
            leader=2, leader_epoch=EPOCH, partition_epoch=1, isr=(1, 2), replicas=(1, 2)
        )
        replicas.append(replica)
    start = time.process_time()
    manager.add(replicas)
    await done.wait()
    cpu_seconds = time.process_time() - start
    await manager.close()
    workers.close()
    logs.shutdown()
    return cpu_seconds


def measure(partitions: int, active: int, batches: int, records: int, count: int) -> float:
    """Returns the CPU seconds of `count` fetches; those of the first, full one are subtracted."""
    fetches = fetch_responses(partitions, active, batches, records, count)
    times = []
    for responses in ([], fetches):
        rounds = []
        for _ in range(3):
            with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as directory:
                rounds.append(asyncio.run(follow(directory, partitions, responses)))
        times.append(min(rounds))
    return times[1] - times[0]


def run() -> list[Row]:
    large_batch = len(batch(0, 150))
    large = measure(1, 1, 64, 150, 60)
    small = measure(100, 100, 1, 5, 60)
    quiet = measure(1000, 1, 1, 5, 400)
    return [
        at_least(
            "a follower: 1 MB in batches of 16 kB, for each CPU second",
            64 * 60 * large_batch / large / 1e6,
            "MB/s",
            800,
        ),
        at_most("a follower: each of 100 small batches in a fetch", small / 6000 * 1e6, "µs", 30),
        at_most(
            "a follower: a fetch of one small batch, 1,000 partitions", quiet / 400 * 1e6, "µs", 100
        ),
    ]
