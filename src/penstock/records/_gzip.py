"""gzip with one or several members, as java.util.zip reads and writes it."""

import zlib

from penstock.core.errors import CorruptRecordError
from penstock.records.errors import DecompressionLimitError

LEVELS = range(1, 10)
DEFAULT_LEVEL = -1

_GZIP_WBITS = 31
_MEMBER_MAGIC = b"\x1f\x8b"
_HEADER = _MEMBER_MAGIC + b"\x08\x00\x00\x00\x00\x00\x00\xff"
"""Java's header: no name, time or level hint, unknown operating system."""

_FIRST_CHUNK = 1 << 20
_CHUNK = 1 << 18
_FIRST_PIECE = 1 << 10
_PIECE = 1 << 16
"""The library copies the input that it leaves over, so a member gets little at a time."""


def compress(data: bytes | bytearray | memoryview, level: int | None) -> bytes:
    """Returns one member; the default level is -1."""
    packer = zlib.compressobj(DEFAULT_LEVEL if level is None else level, wbits=_GZIP_WBITS)
    return _HEADER + (packer.compress(data) + packer.flush())[len(_HEADER) :]


def decompress(data: bytes | bytearray | memoryview, limit: int) -> bytes | memoryview:
    """Decompresses all members of `data` and ignores trailing bytes that start no member."""
    member = zlib.decompressobj(wbits=_GZIP_WBITS)
    try:
        first = member.decompress(data, min(limit + 1, _FIRST_CHUNK))
        if member.eof and not member.unused_data and len(first) <= limit:
            return first
        return _decompress_rest(memoryview(data), member, bytearray(first), limit)
    except zlib.error as error:
        raise CorruptRecordError(f"invalid gzip data: {error}") from None


def _decompress_rest(
    data: memoryview, member: "zlib._Decompress", unpacked: bytearray, limit: int
) -> memoryview:
    """Decompresses in chunks, so that memory stays below the limit plus one chunk."""
    position = len(data) - len(member.unused_data) - len(member.unconsumed_tail)
    size = _PIECE
    while len(unpacked) <= limit:
        if member.eof:
            if data[position : position + len(_MEMBER_MAGIC)] != _MEMBER_MAGIC:
                return memoryview(unpacked)
            member = zlib.decompressobj(wbits=_GZIP_WBITS)
            size = _FIRST_PIECE
        piece = data[position : position + size]
        size = min(2 * size, _PIECE)
        chunk = member.decompress(piece, _CHUNK)
        consumed = len(piece) - len(member.unused_data) - len(member.unconsumed_tail)
        if not chunk and not consumed and not member.eof:
            raise CorruptRecordError("invalid gzip data: it ends too early")
        position += consumed
        unpacked += chunk
    raise DecompressionLimitError(limit)
