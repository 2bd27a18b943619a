"""A way to a broker on which answers get lost."""

import asyncio
import struct
import threading
from collections import Counter
from types import TracebackType
from typing import Self

from penstock.protocol.api_key import ApiKey

_LENGTH = struct.Struct(">i")
_KEY = struct.Struct(">h")


class LossyProxy:
    """Passes on what clients ask and what the broker answers, on a port of its own.

    An answer that is to be lost breaks its connection instead. Where the broker names its own
    address, it names that of the proxy, so that clients stay with it.
    """

    def __init__(self, broker: str) -> None:
        host, _, port = broker.rpartition(":")
        self._broker = host, int(port)
        self._port = 0
        self._to_lose: Counter[int] = Counter()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="lossy-proxy")
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    @property
    def bootstrap(self) -> str:
        return f"{self._broker[0]}:{self._port}"

    def lose(self, *keys: ApiKey) -> None:
        """The answer to the next request of each of these kinds is lost."""
        self._to_lose.update(keys)

    @property
    def still_to_lose(self) -> list[ApiKey]:
        return [ApiKey(key) for key in self._to_lose.elements()]

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._connected, self._broker[0], 0)
        self._port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        self._server.close()
        for writer in self._connections.values():
            writer.close()
        await asyncio.gather(*self._connections)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = writer
        from_broker, to_broker = await asyncio.open_connection(*self._broker)
        lost: set[bytes] = set()
        ways = [
            asyncio.create_task(self._requests(reader, to_broker, lost)),
            asyncio.create_task(self._answers(from_broker, writer, lost)),
        ]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        writer.close()
        to_broker.close()
        del self._connections[task]

    async def _requests(
        self, reader: asyncio.StreamReader, to_broker: asyncio.StreamWriter, lost: set[bytes]
    ) -> None:
        while True:
            request = await _frame(reader)
            (key,) = _KEY.unpack_from(request)
            if self._to_lose[key] > 0:
                self._to_lose[key] -= 1
                lost.add(request[4:8])
            to_broker.write(_LENGTH.pack(len(request)) + request)
            await to_broker.drain()

    async def _answers(
        self, from_broker: asyncio.StreamReader, writer: asyncio.StreamWriter, lost: set[bytes]
    ) -> None:
        host, port = self._broker
        theirs, ours = (host.encode() + _LENGTH.pack(one) for one in (port, self._port))
        while True:
            answer = await _frame(from_broker)
            if answer[:4] in lost:
                return
            writer.write(_LENGTH.pack(len(answer)) + answer.replace(theirs, ours))
            await writer.drain()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return await reader.readexactly(length)
