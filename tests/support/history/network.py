"""The network of a cluster on one machine: TCP relays between any two of its processes.

No privileges are needed: there are no namespaces and no packet filters. Every process has an
address of its own in 127.0.0.0/8, and every other process reaches it through a relay only:

- a broker advertises the address of its relays, one for clients and one for other brokers;
- each broker has a relay to ZooKeeper.

A connection to a broker's relay for brokers begins with a request whose client id names the broker
that connects ("1", or "broker-1-fetcher-0"), so a cut applies to two brokers and no others.

A cut in one direction holds the bytes back, as TCP does while packets are lost: bytes in the other
direction still arrive. When the cut is healed, the bytes arrive late, or the connection is reset.
While a connection cannot be established in both directions, new ones get no response.
"""

import asyncio
import re
import socket
import struct
import threading
from collections import defaultdict
from collections.abc import Coroutine
from contextlib import suppress
from itertools import product
from random import Random
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

T = TypeVar("T")

CLIENTS = "clients"
ZOOKEEPER = "zookeeper"
CLIENT_PORT = 9092
BROKER_PORT = 9093
ZOOKEEPER_PORT = 2181
_RELAYS = 100
"""The relays of broker n have the address 127.x.y.(100 + n), the broker has 127.x.y.n."""
_CHUNK = 64 * 1024
_HEADER = struct.Struct(">ihhih")
"""Size, API key, version, correlation id, length of the client id."""
_BROKER_ID = re.compile(
    rb"(?:broker-|AddPartitionsManager-client-)?(\d+)(?:-fetcher-\d+|-txn-marker-sender)?"
)
"""Of the client ids that Penstock and Kafka 3.9 have between brokers."""
_LINGER_ZERO = struct.pack("ii", 1, 0)


def broker_name(broker_id: int) -> str:
    return f"broker {broker_id}"


class Direction(NamedTuple):
    """Bytes from one process to another."""

    source: str
    target: str


class Network:
    """The relays of a cluster, on a thread of their own."""

    def __init__(self, broker_ids: tuple[int, ...], zookeeper: tuple[str, int]) -> None:
        self._broker_ids = broker_ids
        self._zookeeper = zookeeper
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network")
        self._servers: list[asyncio.Server] = []
        self._cut: set[Direction] = set()
        self._healed = asyncio.Event()
        """Set and replaced whenever a cut is healed."""
        self._connections: dict[frozenset[str], set[_Connection]] = defaultdict(set)
        self._tasks: set[asyncio.Task[None]] = set()
        self._prefix = ""

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._run(self._listen())
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def address(self, broker_id: int) -> str:
        """The address that a broker binds."""
        return f"{self._prefix}.{broker_id}"

    def relay_address(self, broker_id: int) -> str:
        """The address that a broker advertises, and at which it finds ZooKeeper."""
        return f"{self._prefix}.{_RELAYS + broker_id}"

    @property
    def bootstrap(self) -> str:
        return ",".join(
            f"{self.relay_address(number)}:{CLIENT_PORT}" for number in self._broker_ids
        )

    def cut(self, source: str, target: str, *, one_way: bool = False, resets: bool = False) -> None:
        """Holds back bytes from `source` to `target`, and those of the other direction too unless
        `one_way`. With `resets`, connections are reset first."""
        self._run(self._apply_cut(source, target, one_way, resets))

    def heal(self, source: str, target: str, *, resets: bool = False) -> None:
        """Ends the cuts between two processes, in both directions."""
        self._run(self._apply_heal({source, target}, resets))

    def heal_all(self) -> None:
        for direction in tuple(self._cut):
            self.heal(direction.source, direction.target)

    # --- on the loop

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)

    async def _listen(self) -> None:
        """Chooses addresses that no other cluster of this machine uses."""
        rng = Random()
        while True:
            self._prefix = f"127.{rng.randint(64, 250)}.{rng.randint(1, 250)}"
            try:
                for number in self._broker_ids:
                    await self._listen_for(number)
            except OSError:
                await self._close_servers()
            else:
                return

    async def _listen_for(self, broker_id: int) -> None:
        name = broker_name(broker_id)
        broker = self.address(broker_id)
        for port, source, target, place in (
            (CLIENT_PORT, CLIENTS, name, (broker, CLIENT_PORT)),
            (BROKER_PORT, None, name, (broker, BROKER_PORT)),
            (ZOOKEEPER_PORT, name, ZOOKEEPER, self._zookeeper),
        ):
            relay = _Relay(self, source, target, place)
            host = self.relay_address(broker_id)
            self._servers.append(await asyncio.start_server(relay.accept, host, port))

    async def _close_servers(self) -> None:
        for server in self._servers:
            server.close()
        self._servers.clear()

    async def _close(self) -> None:
        await self._close_servers()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _apply_cut(self, source: str, target: str, one_way: bool, resets: bool) -> None:
        self._cut.add(Direction(source, target))
        if not one_way:
            self._cut.add(Direction(target, source))
        if resets:
            self._reset({source, target})

    async def _apply_heal(self, processes: set[str], resets: bool) -> None:
        if resets:
            self._reset(processes)
        self._cut -= set(map(Direction._make, product(processes, processes)))
        self._healed.set()
        self._healed = asyncio.Event()

    def _reset(self, processes: set[str]) -> None:
        for connection in tuple(self._connections[frozenset(processes)]):
            connection.reset()

    # --- for relays

    def register(self, connection: "_Connection") -> None:
        self._connections[connection.processes].add(connection)

    def unregister(self, connection: "_Connection") -> None:
        self._connections[connection.processes].discard(connection)

    def track(self, task: "asyncio.Task[None]") -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait_for(self, *directions: Direction) -> None:
        """Returns when bytes pass in these directions."""
        while not self._cut.isdisjoint(directions):
            await self._healed.wait()


class _Relay:
    """Accepts the connections to one process; `source` is None if their first request names it."""

    def __init__(
        self, network: Network, source: str | None, target: str, address: tuple[str, int]
    ) -> None:
        self._network = network
        self._source = source
        self._target = target
        self._address = address

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._network.track(task)
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await self._serve(reader, writer)
        writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        source, first = self._source, b""
        if source is None:
            source, first = await _read_source(reader)
        connection = _Connection(self._network, source, self._target, (reader, writer))
        self._network.register(connection)
        try:
            await connection.run(self._address, first)
        finally:
            self._network.unregister(connection)


async def _read_source(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    """Returns the broker that sends the first request, and the bytes that were read."""
    head = await reader.readexactly(_HEADER.size)
    length = _HEADER.unpack(head)[-1]
    client_id = await reader.readexactly(max(0, length))
    match = _BROKER_ID.fullmatch(client_id)
    if match is None:
        raise OSError(f"client id {client_id!r} is not that of a broker")
    return broker_name(int(match[1])), head + client_id


class _Connection:
    """Two connections, and what is passed between them."""

    def __init__(
        self,
        network: Network,
        source: str,
        target: str,
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self._network = network
        self._there, self._back = Direction(source, target), Direction(target, source)
        self.processes = frozenset({source, target})
        self._reader, self._writer = streams
        self._writers = [self._writer]

    async def run(self, address: tuple[str, int], first: bytes) -> None:
        await self._network.wait_for(self._there, self._back)
        try:
            reader, writer = await asyncio.open_connection(*address)
        except OSError:
            self.reset()
            return
        self._writers.append(writer)
        writer.write(first)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._copy(self._reader, writer, self._there))
                tasks.create_task(self._copy(reader, self._writer, self._back))
        except* OSError:
            self.reset()
        finally:
            writer.close()

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction
    ) -> None:
        while data := await reader.read(_CHUNK):
            await self._network.wait_for(direction)
            writer.write(data)
            await writer.drain()
        await self._network.wait_for(direction)
        writer.close()

    def reset(self) -> None:
        """Closes both connections so that both ends see an error."""
        for writer in self._writers:
            sock: socket.socket = writer.get_extra_info("socket")
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
            writer.transport.abort()
