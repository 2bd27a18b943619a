"""Mutated frames over all APIs, versions and login states, with a canary beside them (X5).

`PENSTOCK_FUZZ_FRAMES` sets the number of frames, `PENSTOCK_FUZZ_SEED` the seed. A frame counts if
the broker has responded to it or has closed the connection because of it.
"""

import asyncio
import os
import struct
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import Enum
from pathlib import Path
from random import Random
from uuid import uuid4

from bench.broker_client import Client, frame
from bench.broker_process import Memory, Server, start_broker
from bench.canary import Canary, CanaryReport
from bench.fuzz_frames import corpus, mutate
from bench.report import Row, at_least, at_most
from penstock.client.admin import AdminError
from penstock.client.aio import Admin
from penstock.cluster.embedded import EmbeddedStore
from penstock.cluster.supervised.server import StoreServer
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from penstock.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest

FRAMES = int(os.environ.get("PENSTOCK_FUZZ_FRAMES", "200_000"))
SEED = int(os.environ.get("PENSTOCK_FUZZ_SEED", "1"))
CONNECTIONS = 24
BURST = 16
"""Frames that are sent on a connection at once."""
CORPUS = 20_000
TOPIC = "fuzz"
RESPONSE_S = 0.25
"""How long the responses of a burst may take; a group may keep its members waiting for longer."""
WARM_UP = 0.2
"""The part of the frames after which the memory is measured first."""
GROWTH_MB = 48
"""Caches of a limited size that fill later than that: fetch sessions, decisions about ACLs."""
CLEAN_UP_S = 10.0
"""How often the topics and groups that frames have created are deleted: they would stay."""
PROBE = 0x7E57

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'user_admin="admin" user_ann="ann";'
)
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
    "connection.failed.authentication.delay.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "log.retention.bytes": "2097152",
    "log.segment.bytes": "1048576",
    "log.segment.delete.delay.ms": "1000",
    "producer.id.expiration.ms": "10000",
    "producer.id.expiration.check.interval.ms": "5000",
    "transactional.id.expiration.ms": "10000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "5000",
}


class Login(Enum):
    """How far the login of a connection has come when it sends its frames."""

    NOT_REQUIRED = "anonymous, all rights"
    NONE = "before the login"
    HANDSHAKE = "after the handshake"
    WITHOUT_RIGHTS = "logged in, no rights"
    WITH_RIGHTS = "logged in, all rights"


_SHARES = {
    Login.NOT_REQUIRED: 50,
    Login.WITH_RIGHTS: 20,
    Login.WITHOUT_RIGHTS: 20,
    Login.NONE: 5,
    Login.HANDSHAKE: 5,
}
"""How often each is chosen. Before the login nearly every frame closes its connection."""


class Fuzzer:
    """Connections that send mutated frames until enough of them were handled."""

    def __init__(self, broker: Server, total: int, *, between_brokers: bool = False) -> None:
        plaintext, sasl = broker.ports
        self._ports = dict.fromkeys(Login, sasl) | {Login.NOT_REQUIRED: plaintext}
        self._total = total
        self._frames = corpus(Random(SEED), CORPUS, between_brokers=between_brokers)
        self.handled = 0
        self.responses = 0
        self.closed = 0

    async def run(self) -> None:
        await asyncio.gather(*(self._work(Random(SEED + n)) for n in range(1, CONNECTIONS + 1)))

    async def _work(self, rng: Random) -> None:
        while self.handled < self._total:
            (login,) = rng.choices(list(_SHARES), list(_SHARES.values()))
            with suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
                reader, writer = await asyncio.open_connection("127.0.0.1", self._ports[login])
                try:
                    await self._log_in(login, reader, writer)
                    while await self._burst(rng, reader, writer):
                        pass
                finally:
                    writer.close()

    async def _log_in(
        self, login: Login, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if login in (Login.NOT_REQUIRED, Login.NONE):
            return
        writer.write(frame(SaslHandshakeRequest("PLAIN"), 1))
        await _response(reader)
        if login is Login.HANDSHAKE:
            return
        user = b"ann" if login is Login.WITHOUT_RIGHTS else b"admin"
        writer.write(frame(SaslAuthenticateRequest(b"\0%b\0%b" % (user, user)), 2))
        await _response(reader)

    async def _burst(
        self, rng: Random, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Sends frames; returns whether the connection can be used for more."""
        if self.handled >= self._total:
            return False
        frames = [mutate(self._frames, rng) for _ in range(BURST)]
        writer.write(b"".join(frames) + frame(ApiVersionsRequest(), 0, PROBE))
        responses = 0
        try:
            async with asyncio.timeout(RESPONSE_S):
                while True:
                    response = await _response(reader)
                    if int.from_bytes(response[:4]) == PROBE:
                        self._count(BURST, responses)
                        return True
                    responses += 1
        except (asyncio.IncompleteReadError, ConnectionError):
            self.closed += 1
            self._count(min(responses + 1, BURST), responses)
        except TimeoutError:
            self._count(responses, responses)
        return False

    def _count(self, handled: int, responses: int) -> None:
        self.handled += handled
        self.responses += responses


async def _response(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


class CleanUp:
    """Deletes what the frames have created, so that growth of memory is due to the frames alone."""

    def __init__(self, broker: Server) -> None:
        host, port = broker.address
        self._servers = f"{host}:{port}"
        self.topics = 0
        self.groups = 0

    async def repeat(self) -> None:
        while True:
            await asyncio.sleep(CLEAN_UP_S)
            await self.run()

    async def run(self) -> None:
        async with Admin(bootstrap_servers=self._servers) as admin:
            topics = await admin.list_topics()
            created = [name for name in topics if not name.startswith((TOPIC, "canary"))]
            self.topics += await _deleted(admin.delete_topics, created)
            groups = [group.group_id for group in await admin.list_groups()]
            self.groups += await _deleted(admin.delete_groups, groups)


async def _deleted(delete: Callable[[list[str]], Awaitable[object]], names: list[str]) -> int:
    """Deletes topics or groups, returns how many. Frames delete and use them at the same time."""
    try:
        await delete(names)
    except AdminError as error:
        return len(error.results)
    return len(names)


async def _fuzz(fuzzer: Fuzzer, broker: Server, clean_up: CleanUp) -> Memory:
    """Returns the memory of the broker once the first frames were handled."""
    cleaning = asyncio.create_task(clean_up.repeat())
    running = asyncio.create_task(fuzzer.run())
    while fuzzer.handled < FRAMES * WARM_UP:
        await asyncio.sleep(0.05)
    early = broker.memory()
    await running
    if cleaning.done():
        cleaning.result()
    cleaning.cancel()
    await clean_up.run()
    return early


def _tracebacks(broker: Server) -> int:
    return sum("Traceback" in line for line in broker.log_lines())


def _rows(
    fuzzer: Fuzzer,
    broker: Server,
    clean_up: CleanUp,
    early: Memory,
    elapsed: float,
    canary: CanaryReport,
    sockets: int,
) -> list[Row]:
    return [
        Row("mutated frames handled", fuzzer.handled, "frames"),
        Row("  of them responded to", 100 * fuzzer.responses / fuzzer.handled, "%"),
        Row("  connections closed by the broker", fuzzer.closed, ""),
        Row("frames per second", fuzzer.handled / elapsed, "/s"),
        Row("topics deleted that they had created", clean_up.topics, ""),
        Row("groups deleted that they had created", clean_up.groups, ""),
        at_most("tracebacks in the log", _tracebacks(broker), "", 0),
        at_most("growth of memory", broker.memory().own - early.own, "MB", GROWTH_MB),
        at_most("sockets left open", broker.open_sockets() - sockets, "", 5),
        Row("open files", broker.open_files(), ""),
        at_least("round trips of the canary", canary.round_trips, "", 1),
        at_most("acknowledged records lost", canary.lost, "", 0),
        Row("canary, median", canary.median_ms, "ms"),
        at_most("canary, 99 %", canary.p99_ms, "ms", 100),
        Row("canary, longest", canary.max_ms, "ms"),
    ]


def run() -> list[Row]:
    with (
        tempfile.TemporaryDirectory() as directory,
        start_broker(Path(directory) / "fuzz", SETTINGS) as broker,
    ):
        with Client(broker.address) as client:
            client.create_topic(TOPIC)
        sockets = broker.open_sockets()
        fuzzer = Fuzzer(broker, FRAMES)
        clean_up = CleanUp(broker)
        with Canary(broker.address, f"canary-{uuid4().hex}") as canary:
            started = time.monotonic()
            early = asyncio.run(_fuzz(fuzzer, broker, clean_up))
            elapsed = time.monotonic() - started
            report = canary.stop()
        time.sleep(3)  # the broker closes the last connections, and deletes the files of topics
        rows = _rows(fuzzer, broker, clean_up, early, elapsed, report, sockets)
        return rows + _fuzz_between_brokers(Path(directory))


def _fuzz_between_brokers(directory: Path) -> list[Row]:
    """Sends requests of brokers, which can take any partition away, to a broker of a cluster."""
    socket = directory / "store.sock"
    store = StoreServer(EmbeddedStore(directory / "metadata.db"), socket)
    settings = {**SETTINGS, "metadata.store.socket": str(socket)}
    try:
        with start_broker(directory / "member", settings) as broker:
            fuzzer = Fuzzer(broker, FRAMES // 20, between_brokers=True)
            asyncio.run(fuzzer.run())
            return [
                Row("mutated frames of brokers handled", fuzzer.handled, "frames"),
                at_most("  tracebacks in the log", _tracebacks(broker), "", 0),
            ]
    finally:
        store.close()
