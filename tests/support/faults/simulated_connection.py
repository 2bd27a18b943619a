"""A client's connection to a simulated broker: requests as bytes, responses in their order."""

import asyncio
import struct
from collections import deque
from typing import Any, NamedTuple

from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.api import api
from penstock.protocol.fields import Message
from penstock.protocol.frames import decode_response, encode_request
from tests.support.faults.fault_network import ClientEnd, FaultNetwork

_LENGTH = struct.Struct(">i")
_LARGEST_FRAME = 1 << 24


class _Expected(NamedTuple):
    response: type[Message]
    version: int
    correlation_id: int
    done: "asyncio.Future[Any]"


class SimulatedConnection:
    """One connection. Requests may be sent before earlier ones have their response.

    It is broken after any error; `request` then raises NETWORK_EXCEPTION, as for each request that
    has no response yet. `read_delay_s` is how long the client takes to read.
    """

    def __init__(
        self,
        network: FaultNetwork,
        *,
        capacity: int = 65536,
        read_delay_s: float = 0.0,
        is_spared: bool = False,
    ) -> None:
        self._network = network
        self._read_delay_s = read_delay_s
        self._end = ClientEnd(self._on_data, capacity, is_spared=is_spared)
        self._received = bytearray()
        self._expected: deque[_Expected] = deque()
        self._last_id = 0
        self._is_reading = False
        self.is_broken = not network.connect(self._end)

    async def request(self, body: Message, version: int) -> Any:
        """Returns the response; raises NETWORK_EXCEPTION if the connection breaks before it."""
        if self.is_broken:
            raise network_error()
        self._last_id += 1
        key = type(body).INFO.key
        assert key is not None
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._expected.append(_Expected(api(key).response, version, self._last_id, done))
        for part in encode_request(body, version, self._last_id, "simulated"):
            self._end.sent += part if isinstance(part, bytes | bytearray | memoryview) else b""
        return await done

    def close(self) -> None:
        """Closes the connection; requests in progress get no response."""
        self._end.is_ended = True
        self._end.is_reset = bool(self._expected)
        self._break()

    def send_part(self, data: bytes) -> None:
        """Sends bytes that are no whole request."""
        self._end.sent += data

    def _on_data(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            loop = self._network.loop
            loop.call_later(self._read_delay_s, self._read, context=loop.outside)

    def _read(self) -> None:
        self._is_reading = False
        end = self._end
        self._received += end.arrived
        end.arrived.clear()
        if end.is_reset or self.is_broken:
            self._break()
            return
        try:
            self._take_responses()
        except (KafkaError, AssertionError) as error:
            self._network.loop.fail(AssertionError(f"the broker sent a broken stream: {error}"))
            self._break()
        if end.is_closed_by_broker:
            self._break()

    def _take_responses(self) -> None:
        while len(self._received) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._received)
            assert 0 < size < _LARGEST_FRAME, f"a frame of {size} bytes"
            if len(self._received) < _LENGTH.size + size:
                return
            frame = bytes(self._received[_LENGTH.size : _LENGTH.size + size])
            del self._received[: _LENGTH.size + size]
            expected = self._expected.popleft()
            header, message = decode_response(expected.response, expected.version, frame)
            assert header.correlation_id == expected.correlation_id, "a response out of order"
            if not expected.done.done():
                expected.done.set_result(message)

    def _break(self) -> None:
        self.is_broken = True
        self._end.is_ended = True
        while self._expected:
            done = self._expected.popleft().done
            if not done.done():
                done.set_exception(network_error())


def network_error() -> KafkaError:
    return KafkaError(ErrorCode.NETWORK_EXCEPTION, "the connection broke")
