"""The messages between the supervisor's store server and the brokers of one machine.

Each message is a frame: its length as four bytes, then MessagePack. A client sends `Hello` first.
After that it sends one request at a time and gets one response, `Heartbeat` at any time. The server
sends `Delivery` at any time: the changes of a commit reach every session before the response to the
session that made it, because a connection keeps the order of its messages.

    client                                  server
    Hello(1, "broker 2", 18000)        ->
                                       <-   Welcome(7)
    Commit([PartitionRecord(...)])     ->
                                       <-   Delivery(41, [PartitionRecord(...)])
                                       <-   Committed(41)
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import MsgspecError, Struct
from msgspec.msgpack import Decoder, Encoder

from penstock.cluster.paths import key_of, path_of
from penstock.controller.metadata import Change, Delete, Key, Put, Record
from penstock.core.errors import ProtocolError

PROTOCOL_VERSION: Final = 1
MAX_FRAME_BYTES: Final = 256 << 20
"""Larger frames are refused: a snapshot of a million partitions has about 150 MB."""

WireChange = Record | str
"""A record that is put, or the path of a node that is deleted."""


# --- client to server


class Hello(Struct, frozen=True, array_like=True, tag="hello"):
    """Starts the session of this connection."""

    version: int
    name: str
    """The client in log messages: `broker 2`."""
    session_timeout_ms: int
    """The session ends if the server receives nothing for this long."""


class Heartbeat(Struct, frozen=True, array_like=True, tag="heartbeat"):
    """Keeps a session alive; the server sends it back."""


class Load(Struct, frozen=True, array_like=True, tag="load"):
    """Requests all records."""


class Fetch(Struct, frozen=True, array_like=True, tag="fetch"):
    """Requests the records of these nodes."""

    paths: list[str]


class Commit(Struct, frozen=True, array_like=True, tag="commit"):
    """Requests that all changes are applied, or none."""

    changes: list[WireChange]
    based_on: int | None
    fenced: bool


class Goodbye(Struct, frozen=True, array_like=True, tag="goodbye"):
    """Ends the session; the server closes the connection once its nodes are deleted."""


Request = Hello | Heartbeat | Load | Fetch | Commit | Goodbye


# --- server to client


class Welcome(Struct, frozen=True, array_like=True, tag="welcome"):
    """The session has started."""

    session_id: int


class Records(Struct, frozen=True, array_like=True, tag="records"):
    """The response to `Load` and `Fetch`: records as of a version."""

    version: int
    records: list[Record]


class Committed(Struct, frozen=True, array_like=True, tag="committed"):
    """The response to `Commit`."""

    version: int


class Failed(Struct, frozen=True, array_like=True, tag="failed"):
    """The response to a request that raised a `KafkaError`."""

    kind: str
    """`conflict`, `controller_moved` or `storage`."""
    cause: str
    subject: str = ""
    remedy: str = ""
    path: str = ""
    """The node of a conflict."""


class Delivery(Struct, frozen=True, array_like=True, tag="delivery"):
    """The changes of one commit."""

    version: int
    changes: list[WireChange]


Response = Welcome | Records | Committed | Failed
ServerMessage = Response | Delivery | Heartbeat

_ENCODER: Final = Encoder(uuid_format="bytes")
_REQUESTS: Final = Decoder(Request)
_SERVER_MESSAGES: Final = Decoder(ServerMessage)
_LENGTH: Final = struct.Struct(">I")


def encode_frame(message: Request | ServerMessage) -> bytes:
    """Returns the message as a frame. Raises ProtocolError if it is larger than a frame may be."""
    frame = bytearray(_LENGTH.size)
    _ENCODER.encode_into(message, frame, _LENGTH.size)
    size = len(frame) - _LENGTH.size
    if size > MAX_FRAME_BYTES:
        raise ProtocolError(
            f"a metadata message of {size} bytes is larger than {MAX_FRAME_BYTES}",
            remedy="change fewer records at a time",
        )
    _LENGTH.pack_into(frame, 0, size)
    return bytes(frame)


def decode_request(frame: bytes) -> Request:
    """Raises ProtocolError if the frame is not a request."""
    try:
        request: Request = _REQUESTS.decode(frame)
    except (MsgspecError, ValueError, RecursionError) as error:
        raise ProtocolError(f"it is not a request: {error}") from None
    return request


def decode_server_message(frame: bytes) -> ServerMessage:
    """Raises ProtocolError if the frame is not a message of the server."""
    try:
        message: ServerMessage = _SERVER_MESSAGES.decode(frame)
    except (MsgspecError, ValueError, RecursionError) as error:
        raise ProtocolError(f"it is not a message of the supervisor: {error}") from None
    return message


class FrameBuffer:
    """Cuts received bytes into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def receive(self, data: bytes) -> Iterator[bytes]:
        """Yields the frames that are complete with `data`. Raises ProtocolError for a large one."""
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._buffer)
            if size > MAX_FRAME_BYTES:
                raise ProtocolError(f"a frame of {size} bytes is larger than {MAX_FRAME_BYTES}")
            end = _LENGTH.size + size
            if len(self._buffer) < end:
                return
            frame = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            yield frame


def to_wire(changes: Sequence[Change]) -> list[WireChange]:
    return [
        path_of(change.key) if isinstance(change, Delete) else change.record for change in changes
    ]


def from_wire(changes: Sequence[WireChange]) -> list[Change]:
    """Raises ProtocolError for the path of no record."""
    return [
        Delete(key_of_path(change)) if isinstance(change, str) else Put(change)
        for change in changes
    ]


def key_of_path(path: str) -> Key:
    """Returns the key of the record at `path`. Raises ProtocolError if no record has that path."""
    key = key_of(path)
    if key is None:
        raise ProtocolError(f"no record has the path {path!r}")
    return key
