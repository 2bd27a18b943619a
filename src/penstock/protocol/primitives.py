"""What generated codecs call off the straight path, and the tables they look things up in."""

from collections.abc import Callable
from struct import Struct as Layout
from typing import Final
from uuid import UUID

from penstock.core.errors import ProtocolError
from penstock.protocol.fields import RecordsRange

MAX_STRING: Final = 0x7FFF
"""Bytes in the longest string Kafka accepts, in either encoding."""

_UUIDS_KEPT: Final = 4096
_ARRAYS_KEPT: Final = 64
_MAX_UINT32: Final = 0xFFFF_FFFF


def read_uvarint(view: memoryview, position: int, first: int) -> tuple[int, int]:
    """Finish a varint whose `first` byte, already read, says that more follow."""
    byte = view[position]
    if byte < 0x80:
        return first - 0x80 + (byte << 7), position + 1
    value = first - 0x80 + (byte - 0x80 << 7)
    byte = view[position + 1]
    if byte < 0x80:  # up to 2 MB: the batches of an ordinary Produce request end here
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


def skip_tagged_fields(view: memoryview, position: int, count: int, size: int) -> int:
    """Step over `count` tagged fields that nobody here knows; return where they end.

    `count` is the first byte of the number of fields: the rest of a long varint is read here.
    """
    if count > 0x7F:
        count, position = read_uvarint(view, position, count)
    for _ in range(count):
        _, length, position = read_tag(view, position, size)
        position += length
    return position


def read_tag(view: memoryview, position: int, size: int) -> tuple[int, int, int]:
    """Read a tag and the length of its value; return both and where the value starts."""
    tag = view[position]
    position += 1
    if tag > 0x7F:
        tag, position = read_uvarint(view, position, tag)
    length = view[position]
    position += 1
    if length > 0x7F:
        length, position = read_uvarint(view, position, length)
    if length > size - position:
        raise ProtocolError(f"tagged field {tag} claims {length} bytes, {size - position} are left")
    return tag, length, position


def bad_length(where: str, length: int, left: int) -> ProtocolError:
    """The error for a string, bytes or records whose length is negative, too large or beyond."""
    if length < 0:
        return ProtocolError(f"{where} is null or its length is negative, which is not allowed")
    return ProtocolError(f"{where} claims {length} bytes, {left} are left in the message")


def bad_count(where: str, count: int, left: int) -> ProtocolError:
    """The error for an array whose count is negative or cannot be true."""
    if count < 0:
        return ProtocolError(f"{where} is null or its count is negative, which is not allowed")
    return ProtocolError(f"{where} claims {count} elements in the {left} bytes that are left")


def long_string(where: str, length: int) -> ProtocolError:
    return ProtocolError(f"{where} is {length} bytes long, a string has at most {MAX_STRING}")


def bad_tag(where: str, said: int, read: int) -> ProtocolError:
    return ProtocolError(f"{where} is {read} bytes long, its tag says {said}")


def size_of(part: bytes | bytearray | memoryview | RecordsRange) -> int:
    """Bytes that a records field, or a part of a message, puts on the wire."""
    if isinstance(part, (bytes, bytearray)):
        return len(part)
    return part.nbytes if isinstance(part, memoryview) else part.size


class _Uuids(dict[bytes, UUID]):
    """UUIDs by their bytes. Making one costs as much as the rest of a Produce request, and the
    same few topic ids come again and again, so they are kept; a flood of others empties the table.
    """

    def __missing__(self, raw: bytes) -> UUID:
        if len(self) >= _UUIDS_KEPT:
            self.clear()
        made = self[raw] = UUID(bytes=raw)
        return made


class _Uvarints(dict[int, bytes]):
    """Unsigned varints, encoded; the one-byte ones are at hand."""

    def __missing__(self, value: int) -> bytes:
        if value < 0:
            raise ValueError(f"{value} is no unsigned varint")
        out = bytearray()
        while value > 0x7F:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        out.append(value)
        return bytes(out)


UUIDS: Final = _Uuids()
UVARINTS: Final = _Uvarints({value: bytes([value]) for value in range(0x80)})


class ArrayReaders(dict[int, Callable[[memoryview, int], tuple[int, ...]]]):
    """For a count, the function that reads so many values of one fixed-size type."""

    def __init__(self, code: str) -> None:
        super().__init__()
        self._code = code

    def __missing__(self, count: int) -> Callable[[memoryview, int], tuple[int, ...]]:
        made = Layout(f">{count}{self._code}").unpack_from
        if count <= _ARRAYS_KEPT:
            self[count] = made
        return made


class ArrayWriters(dict[int, Callable[..., bytes]]):
    """For a count, the function that packs so many values of one fixed-size type."""

    def __init__(self, code: str) -> None:
        super().__init__()
        self._code = code

    def __missing__(self, count: int) -> Callable[..., bytes]:
        made = Layout(f">{count}{self._code}").pack
        if count <= _ARRAYS_KEPT:
            self[count] = made
        return made


ARRAY_READERS: Final = {code: ArrayReaders(code) for code in "?bhHiIqd"}
ARRAY_WRITERS: Final = {code: ArrayWriters(code) for code in "?bhHiIqd"}
