"""Fake brokers on real sockets, whose responses a test chooses."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

from penstock.core.errors import ErrorCode
from penstock.protocol.api import api
from penstock.protocol.api_key import ApiKey
from penstock.protocol.codec import decode
from penstock.protocol.fields import Message
from penstock.protocol.frames import decode_request_header, encode_response
from penstock.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from penstock.protocol.messages.header import RequestHeader

Respond = Callable[[RequestHeader, Message], Message | None]
"""Returns the response to a request, or None to send none."""


class FakeBroker:
    """Serves every API that `respond` handles, and ApiVersions with `versions` (None: all)."""

    def __init__(self, respond: Respond, versions: dict[ApiKey, tuple[int, int]] | None) -> None:
        self.port = 0
        self.requests: list[Message] = []
        self.connections = 0
        self._respond_with = respond
        self._versions = versions
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def hang_up(self) -> None:
        """Closes every open connection."""
        for writer in self._writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
                header, position = decode_request_header(frame)
                response = self._respond(header, frame, position)
                if response is not None:
                    parts = encode_response(
                        response, header.request_api_version, header.correlation_id
                    )
                    writer.write(b"".join(cast("list[bytes]", parts)))
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            self._writers.discard(writer)
            writer.close()

    def _respond(self, header: RequestHeader, frame: bytes, position: int) -> Message | None:
        if header.request_api_key == ApiKey.API_VERSIONS:
            return self._api_versions()
        info = api(header.request_api_key)
        request, _ = decode(info.request, header.request_api_version, frame, position)
        self.requests.append(request)
        return self._respond_with(header, request)

    def _api_versions(self) -> ApiVersionsResponse:
        ranges = self._versions
        if ranges is None:
            ranges = {key: (api(key).min_version, api(key).max_version) for key in ApiKey}
        return ApiVersionsResponse(
            error_code=ErrorCode.NONE,
            api_keys=[ApiVersion(key, low, high) for key, (low, high) in ranges.items()],
        )


@asynccontextmanager
async def fake_broker(
    respond: Respond, versions: dict[ApiKey, tuple[int, int]] | None = None, port: int = 0
) -> AsyncIterator[FakeBroker]:
    """Runs a fake broker on a free port of the loopback address, or on `port`."""
    broker = FakeBroker(respond, versions)
    server = await asyncio.start_server(broker.serve, "127.0.0.1", port)
    broker.port = server.sockets[0].getsockname()[1]
    try:
        yield broker
    finally:
        server.close()
        broker.hang_up()
        await server.wait_closed()
        # The handlers notice the end of their connections before the loop is closed.
        await asyncio.sleep(0)
