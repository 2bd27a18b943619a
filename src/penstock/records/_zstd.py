"""zstd frames, with or without a content size: Java's client streams, so it knows none.

The size that a frame's header may tell is not trusted. Every block has its own short header, and
no block unpacks to more than 128 KiB, so a walk over those headers bounds the whole.
"""

import cramjam

from penstock.core.errors import CorruptRecordError
from penstock.records.errors import DecompressionLimitError

LEVELS = range(-131072, 23)
DEFAULT_LEVEL = 3

_MAGIC = 0xFD2FB528
_SKIPPABLE_MAGIC = 0x184D2A50
_SKIPPABLE_MASK = 0xFFFFFFF0
_LARGEST_BLOCK = 128 * 1024
_PIECE = 64 * 1024
"""Other threads wait while a piece is packed. The frame is the same, whatever the pieces are."""
_RAW, _RLE, _PACKED = 0, 1, 2

_CONTENT_SIZE_BYTES = (0, 2, 4, 8)
_DICTIONARY_ID_BYTES = (0, 1, 2, 4)


def compress(data: bytes | bytearray | memoryview, level: int | None) -> bytes:
    """One frame.

    Java's client flushes before it ends the frame, which closes it with an empty block; so does
    this, and the bytes are the same.
    """
    packer = cramjam.zstd.Compressor(level=DEFAULT_LEVEL if level is None else level)
    view = memoryview(data)
    for start in range(0, len(view), _PIECE):
        packer.compress(bytes(view[start : start + _PIECE]))
    return bytes(packer.flush()) + bytes(packer.finish())


def decompress(data: bytes | bytearray | memoryview, limit: int) -> memoryview:
    """All frames of `data`."""
    view = memoryview(data)
    most = bound(view, limit)
    unpacked = bytearray(min(most, limit))
    try:
        written = cramjam.zstd.decompress_into(view, unpacked)
    except cramjam.DecompressionError as error:
        if most > limit and "write whole buffer" in str(error):
            raise DecompressionLimitError(limit) from None
        raise CorruptRecordError(f"broken zstd data: {error}") from None
    return memoryview(unpacked)[:written]


def bound(view: memoryview, limit: int) -> int:
    """The most that the frames can unpack to. The walk stops where that passes the limit."""
    position = 0
    most = 0
    while position < len(view) and most <= limit:
        magic = int.from_bytes(view[position : position + 4], "little")
        if magic & _SKIPPABLE_MASK == _SKIPPABLE_MAGIC:
            position += 8 + int.from_bytes(view[position + 4 : position + 8], "little")
        elif magic == _MAGIC:
            position, frame_bound = _walk_frame(view, position + 4, limit - most)
            most += frame_bound
        else:
            raise CorruptRecordError("broken zstd data: it does not start with a frame")
    return most


def _walk_frame(view: memoryview, position: int, limit: int) -> tuple[int, int]:
    """Where the frame whose header is at `position` ends, and its bound."""
    descriptor = view[position] if position < len(view) else 0
    single_segment = descriptor & 0x20
    size_flag = descriptor >> 6
    position += 1 + (0 if single_segment else 1)
    position += _DICTIONARY_ID_BYTES[descriptor & 0x03]
    position += 1 if single_segment and size_flag == 0 else _CONTENT_SIZE_BYTES[size_flag]
    most = 0
    while most <= limit:
        header = view[position : position + 3]
        if len(header) < 3:
            raise CorruptRecordError("broken zstd data: it ends too early")
        block = header[0] | header[1] << 8 | header[2] << 16
        kind = block >> 1 & 0x03
        size = block >> 3
        position += 3 + (1 if kind == _RLE else size)
        most += size if kind in (_RAW, _RLE) else _LARGEST_BLOCK
        if block & 1:
            position += 4 if descriptor & 0x04 else 0
            break
    return position, most
