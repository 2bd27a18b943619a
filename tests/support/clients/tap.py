"""A way to a broker on which somebody listens, and does something when a certain request passes."""

import asyncio
import struct
import threading
from collections.abc import Callable
from enum import Enum
from types import TracebackType
from typing import NamedTuple, Self

from penstock.protocol.api_key import ApiKey

_LENGTH = struct.Struct(">i")
_KEY = struct.Struct(">h")


class Stage(Enum):
    """Where a request is."""

    ON_ITS_WAY = 1
    """The broker will never see it."""
    PASSED_ON = 2
    """The broker has it, or will have it at any moment."""
    ANSWERED = 3
    """The broker has dealt with it; its answer will never arrive."""


class Moment(NamedTuple):
    key: ApiKey
    stage: Stage


class Tap:
    """Passes on everything between clients and a broker; connections end as the broker's do.

    The broker may be away: who connects then is hung up on. It has to name the address of the tap
    as its own.
    """

    def __init__(self, broker: str) -> None:
        host, _, port = broker.rpartition(":")
        self._broker = host, int(port)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tap")
        self._connections: set[asyncio.Task[None]] = set()
        self._moment: Moment | None = None
        self._action: Callable[[], None] = lambda: None
        self._failure: BaseException | None = None
        self.bootstrap = ""

    def at(self, moment: Moment, action: Callable[[], None]) -> None:
        """Calls `action`, on another thread, when this moment comes for the first time."""
        self._action = action
        self._moment = moment

    def check(self) -> bool:
        """Whether the moment is still to come; raises what an action has raised."""
        if self._failure is not None:
            raise self._failure
        return self._moment is not None

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
        self.bootstrap = f"{self._broker[0]}:{self._server.sockets[0].getsockname()[1]}"

    async def _stop(self) -> None:
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._loop.shutdown_default_executor()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._relay(reader, writer)
        finally:
            writer.close()
            self._connections.discard(task)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            from_broker, to_broker = await asyncio.open_connection(*self._broker)
        except OSError:
            return
        awaited: set[bytes] = set()
        ways = [
            asyncio.create_task(self._requests(reader, to_broker, awaited)),
            asyncio.create_task(self._answers(from_broker, writer, awaited)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            to_broker.close()

    async def _requests(
        self, reader: asyncio.StreamReader, to_broker: asyncio.StreamWriter, awaited: set[bytes]
    ) -> None:
        while True:
            frame = await _frame(reader)
            stage = self._stage_for(frame)
            if stage is Stage.ON_ITS_WAY:
                self._act()
                return
            to_broker.write(frame)
            await to_broker.drain()
            if stage is Stage.PASSED_ON:
                self._act()
            elif stage is Stage.ANSWERED:
                awaited.add(frame[8:12])

    def _stage_for(self, request: bytes) -> Stage | None:
        """At which the action is due, if this is the request that it is due for."""
        (key,) = _KEY.unpack_from(request, _LENGTH.size)
        return self._moment.stage if self._moment is not None and self._moment.key == key else None

    async def _answers(
        self, from_broker: asyncio.StreamReader, writer: asyncio.StreamWriter, awaited: set[bytes]
    ) -> None:
        while True:
            frame = await _frame(from_broker)
            if frame[4:8] in awaited and self._moment is not None:
                self._act()
                return
            writer.write(frame)
            await writer.drain()

    def _act(self) -> None:
        self._moment = None
        self._loop.run_in_executor(None, self._run, self._action)

    def _run(self, action: Callable[[], None]) -> None:
        try:
            action()
        except BaseException as error:  # noqa: BLE001 - it is the test's
            self._failure = error


async def _frame(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(_LENGTH.size)
    return size + await reader.readexactly(*_LENGTH.unpack(size))
