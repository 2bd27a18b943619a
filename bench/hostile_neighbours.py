"""Clients that misbehave in the ways a broker must bear, each as a coroutine that runs for ever.

They are a process of their own: `python -m bench.hostile_neighbours PLAINTEXT_PORT TLS_PORT`. Their
requests are built before they start, so that they cost the machine little and the broker much.
"""

import asyncio
import json
import os
import socket
import struct
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress

from bench.broker_client import Client, batch, frame, produce_frame
from penstock.protocol.messages.describe_groups import DescribeGroupsRequest
from penstock.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.records.build import build_batch
from penstock.records.compress import Compression
from penstock.records.record import Record

BOMB_BYTES = 100 << 20
"""The decompressed size of a bomb."""
SEND_BUFFER = 128 * 1024
"""A kernel without preemption keeps the canary waiting while it copies what one call sends."""
CLIENT_HELLO = bytes.fromhex("160301020001000001fc0303") + bytes(20)
"""The beginning of a TLS handshake."""

Act = Callable[["Neighbours"], Awaitable[None]]


class Neighbours:
    """What the hostile clients share: the addresses, the requests, and how often they acted."""

    def __init__(self, plaintext: int, tls: int) -> None:
        self.plaintext = plaintext
        self.tls = tls
        self.done: Counter[str] = Counter()
        bomb = bytes(
            build_batch([Record(0, 0, None, bytes(BOMB_BYTES))], compression=Compression.ZSTD)
        )
        self.bombs = produce_frame("hostile", {0: bomb, 1: bomb})
        self.data = produce_frame("hostile", {0: batch(100, 5000)})
        names = [f"unknown-{number}" for number in range(150_000)]
        partitions = [FetchPartition(n, 0, 0, partition_max_bytes=1) for n in range(150_000)]
        self.giants = [
            frame(FindCoordinatorRequest("", 0, [str(n) for n in range(1_000_000)]), 4),
            frame(FindCoordinatorRequest("", 0, names), 4),
            frame(MetadataRequest([MetadataRequestTopic(name=name) for name in names]), 9),
            frame(DescribeGroupsRequest(names), 5),
            frame(
                FetchRequest(max_wait_ms=1, topics=[FetchTopic("hostile", partitions=partitions)]),
                12,
            ),
        ]
        self.fetch = frame(
            FetchRequest(
                max_wait_ms=500,
                min_bytes=1,
                max_bytes=50 << 20,
                topics=[
                    FetchTopic(
                        "hostile",
                        partitions=[FetchPartition(0, 0, 0, partition_max_bytes=50 << 20)],
                    )
                ],
            ),
            11,
        )

    def prepare(self) -> None:
        with Client(("127.0.0.1", self.plaintext)) as client:
            client.create_topic("hostile", 2)
            for _ in range(40):
                client.produced(self.data)

    async def connect(self, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 12)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        return reader, writer


async def read_slowly(neighbours: Neighbours) -> None:
    """Requests 50 MB and reads a few bytes a second."""
    reader, writer = await neighbours.connect(neighbours.plaintext)
    try:
        writer.write(neighbours.fetch * 20)
        for _ in range(30):
            await reader.read(64)
            await asyncio.sleep(0.5)
    finally:
        writer.close()


async def send_slowly(neighbours: Neighbours) -> None:
    """Announces a request of 90 MB, and sends it a byte at a time."""
    _, writer = await neighbours.connect(neighbours.plaintext)
    try:
        writer.write(struct.pack(">i", 90 << 20))
        for _ in range(100):
            writer.write(b"\0")
            await writer.drain()
            await asyncio.sleep(0.2)
    finally:
        writer.close()


async def open_tls_halfway(neighbours: Neighbours) -> None:
    """Begins a TLS handshake and stays silent."""
    _, writer = await neighbours.connect(neighbours.tls)
    try:
        writer.write(CLIENT_HELLO)
        await asyncio.sleep(5)
    finally:
        writer.close()


async def send_bombs(neighbours: Neighbours) -> None:
    """Produces small batches that decompress to 100 MB each."""
    await _send_one(neighbours, neighbours.bombs)
    await asyncio.sleep(0.2)


async def storm(neighbours: Neighbours) -> None:
    """Opens and closes connections."""
    for _ in range(20):
        _, writer = await neighbours.connect(neighbours.plaintext)
        writer.close()
    await asyncio.sleep(0.1)


async def send_giant(neighbours: Neighbours) -> None:
    """Sends a request with more elements than makes sense, or with as many as are allowed."""
    giant = neighbours.giants[neighbours.done["send_giant"] % len(neighbours.giants)]
    await _send_one(neighbours, giant)
    await asyncio.sleep(0.2)


async def _send_one(neighbours: Neighbours, request: bytes) -> None:
    reader, writer = await neighbours.connect(neighbours.plaintext)
    try:
        writer.write(request)
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        while size:
            received = await reader.read(min(size, 1 << 16))
            if not received:
                return
            size -= len(received)
    finally:
        writer.close()


ACTS: dict[Act, int] = {
    read_slowly: 20,
    send_slowly: 30,
    open_tls_halfway: 50,
    send_bombs: 2,
    storm: 2,
    send_giant: 2,
}
"""How many of each run at the same time."""


async def _repeat(neighbours: Neighbours, act: Act, number: int) -> None:
    await asyncio.sleep(0.05 * number)
    while True:
        with suppress(OSError, asyncio.IncompleteReadError):
            await act(neighbours)
        neighbours.done[getattr(act, "__name__", "")] += 1
        await asyncio.sleep(0.01)


async def _run(neighbours: Neighbours) -> None:
    loop = asyncio.get_running_loop()
    tasks = [
        loop.create_task(_repeat(neighbours, act, number))
        for act, count in ACTS.items()
        for number in range(count)
    ]
    print("ready", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    for task in tasks:
        task.cancel()


def main(plaintext: str, tls: str) -> None:
    """Runs until its standard input ends, then prints how often each acted."""
    os.nice(19)  # they share a core with the canary, and are to slow down the broker alone
    neighbours = Neighbours(int(plaintext), int(tls))
    neighbours.prepare()
    asyncio.run(_run(neighbours))
    print(json.dumps(neighbours.done))


if __name__ == "__main__":
    main(*sys.argv[1:])
