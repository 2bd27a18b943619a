"""Functions and tables that generated codecs use for less common cases."""

from collections.abc import Callable
from struct import Struct as Layout
from typing import Final
from uuid import UUID

from penstock.core.errors import ProtocolError
from penstock.protocol.fields import RecordsRange

MAX_STRING: Final = 0x7FFF
"""Size of the longest string that Kafka accepts, in either encoding."""

_CACHED_UUIDS: Final = 4096
_CACHED_ARRAYS: Final = 64
_MAX_UINT32: Final = 0xFFFF_FFFF


class TooManyElementsError(ProtocolError):
    """A message whose arrays have more elements than the caller of its codec accepts."""


def read_uvarint(view: memoryview, position: int, first: int) -> tuple[int, int]:
    """Reads the rest of a varint whose `first` byte has been read already."""
    byte = view[position]
    if byte < 0x80:
        return first - 0x80 + (byte << 7), position + 1
    value = first - 0x80 + (byte - 0x80 << 7)
    byte = view[position + 1]
    if byte < 0x80:  # up to 2 MB, enough for the batches of most Produce requests
        return value + (byte << 14), position + 2
    value += byte - 0x80 << 14
    byte = view[position + 2]
    if byte < 0x80:
        return value + (byte << 21), position + 3
    value += byte - 0x80 << 21
    byte = view[position + 3]
    if byte >= 0x80:
        raise ProtocolError(f"varint before byte {position + 4} is longer than 5 bytes")
    value += byte << 28
    if value > _MAX_UINT32:
        raise ProtocolError(f"varint before byte {position + 4} does not fit in 32 bits")
    return value, position + 4


def skip_tagged_fields(
    view: memoryview, position: int, count: int, size: int, room: int
) -> tuple[int, int]:
    """Skips unknown tagged fields; returns where they end, and the room for further elements.

    `count` is the first byte of the number of fields; the rest of a longer varint is read here.
    """
    if count > 0x7F:
        count, position = read_uvarint(view, position, count)
    room -= count
    if room < 0:
        raise too_many("an unknown tag section", count, room)
    for _ in range(count):
        _, length, position = read_tag(view, position, size)
        position += length
    return position, room


def read_tag(view: memoryview, position: int, size: int) -> tuple[int, int, int]:
    """Reads a tag and the length of its value; returns both and where the value starts."""
    tag = view[position]
    position += 1
    if tag > 0x7F:
        tag, position = read_uvarint(view, position, tag)
    length = view[position]
    position += 1
    if length > 0x7F:
        length, position = read_uvarint(view, position, length)
    if length > size - position:
        raise ProtocolError(
            f"tagged field {tag} claims {length} bytes, but {size - position} are left"
        )
    return tag, length, position


def bad_length(where: str, length: int, remaining: int) -> ProtocolError:
    """Returns the error for a length of a string, bytes or records that is impossible."""
    if length < 0:
        return ProtocolError(f"{where} is null or its length is negative, which is not allowed")
    return ProtocolError(f"{where} claims {length} bytes, but {remaining} are left in the message")


def bad_count(where: str, count: int, remaining: int) -> ProtocolError:
    """Returns the error for an array whose count is negative or impossible."""
    if count < 0:
        return ProtocolError(f"{where} is null or its count is negative, which is not allowed")
    return ProtocolError(f"{where} claims {count} elements in the remaining {remaining} bytes")


def too_many(where: str, count: int, room: int) -> TooManyElementsError:
    """Returns the error for an array whose elements have made `room` negative."""
    return TooManyElementsError(
        f"{where} has {count} elements, but the message may have only {count + room} more"
    )


def long_string(where: str, length: int) -> ProtocolError:
    return ProtocolError(f"{where} is {length} bytes long, but a string has at most {MAX_STRING}")


def bad_tag(where: str, claimed: int, size: int) -> ProtocolError:
    return ProtocolError(f"{where} is {size} bytes long, but claims {claimed}")


def size_of(part: bytes | bytearray | memoryview | RecordsRange) -> int:
    """Returns the number of bytes that a part of a message sends."""
    if isinstance(part, (bytes, bytearray)):
        return len(part)
    return part.nbytes if isinstance(part, memoryview) else part.size


class _Uuids(dict[bytes, UUID]):
    """A cache of UUIDs by their bytes, emptied when it is full.

    Creating a UUID costs as much as decoding the rest of a Produce request, and most requests use
    the same few topic ids.
    """

    def __missing__(self, raw: bytes) -> UUID:
        if len(self) >= _CACHED_UUIDS:
            self.clear()
        uuid = self[raw] = UUID(bytes=raw)
        return uuid


class _Uvarints(dict[int, bytes]):
    """Encoded unsigned varints; those of one byte are precomputed."""

    def __missing__(self, value: int) -> bytes:
        if value < 0:
            raise ValueError(f"{value} is not an unsigned varint")
        out = bytearray()
        while value > 0x7F:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        out.append(value)
        return bytes(out)


UUIDS: Final = _Uuids()
UVARINTS: Final = _Uvarints({value: bytes([value]) for value in range(0x80)})


class ArrayReaders(dict[int, Callable[[memoryview, int], tuple[int, ...]]]):
    """By count, the functions that read this many values of one fixed-size type."""

    def __init__(self, code: str) -> None:
        super().__init__()
        self._code = code

    def __missing__(self, count: int) -> Callable[[memoryview, int], tuple[int, ...]]:
        read = Layout(f">{count}{self._code}").unpack_from
        if count <= _CACHED_ARRAYS:
            self[count] = read
        return read


class ArrayWriters(dict[int, Callable[..., bytes]]):
    """By count, the functions that pack this many values of one fixed-size type."""

    def __init__(self, code: str) -> None:
        super().__init__()
        self._code = code

    def __missing__(self, count: int) -> Callable[..., bytes]:
        write = Layout(f">{count}{self._code}").pack
        if count <= _CACHED_ARRAYS:
            self[count] = write
        return write


ARRAY_READERS: Final = {code: ArrayReaders(code) for code in "?bhHiIqd"}
ARRAY_WRITERS: Final = {code: ArrayWriters(code) for code in "?bhHiIqd"}
