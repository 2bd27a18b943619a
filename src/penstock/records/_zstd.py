"""Zstandard frames, with or without a content size; the Java client streams and writes none.

The content size in a frame's header is not trusted. Every block has a short header, and no block
decompresses to more than 128 KiB, so the block headers give an upper bound.
"""

import cramjam

from penstock.core.errors import CorruptRecordError
from penstock.records._output import new_output
from penstock.records.errors import DecompressionLimitError

LEVELS = range(-131072, 23)
DEFAULT_LEVEL = 3

_MAGIC = 0xFD2FB528
_SKIPPABLE_MAGIC = 0x184D2A50
_SKIPPABLE_MASK = 0xFFFFFFF0
_LARGEST_BLOCK = 128 * 1024
_PIECE = 64 * 1024
"""Other threads wait while a piece is compressed. The pieces do not change the frame."""
_RAW, _RLE, _PACKED = 0, 1, 2

_CONTENT_SIZE_BYTES = (0, 2, 4, 8)
_DICTIONARY_ID_BYTES = (0, 1, 2, 4)


def compress(data: bytes | bytearray | memoryview, level: int | None) -> bytes:
    """Returns one frame with the same bytes as the Java client's.

    The Java client flushes before it ends the frame, which adds an empty block at the end.
    """
    packer = cramjam.zstd.Compressor(level=DEFAULT_LEVEL if level is None else level)
    view = memoryview(data)
    for start in range(0, len(view), _PIECE):
        packer.compress(bytes(view[start : start + _PIECE]))
    return bytes(packer.flush()) + bytes(packer.finish())


def decompress(data: bytes | bytearray | memoryview, limit: int) -> memoryview:
    """Decompresses all frames of `data`."""
    view = memoryview(data)
    size_bound = bound(view, limit)
    unpacked = new_output(min(size_bound, limit))
    try:
        written = cramjam.zstd.decompress_into(view, unpacked)
    except cramjam.DecompressionError as error:
        if size_bound > limit and "write whole buffer" in str(error):
            raise DecompressionLimitError(limit) from None
        raise CorruptRecordError(f"invalid zstd data: {error}") from None
    return unpacked[:written]


def bound(view: memoryview, limit: int) -> int:
    """Returns an upper bound of the decompressed size; stops once it exceeds `limit`."""
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
            raise CorruptRecordError("invalid zstd data: it does not start with a frame")
    return most


def _walk_frame(view: memoryview, position: int, limit: int) -> tuple[int, int]:
    """Returns where the frame whose header is at `position` ends, and its size bound."""
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
            raise CorruptRecordError("invalid zstd data: it ends too early")
        block = header[0] | header[1] << 8 | header[2] << 16
        kind = block >> 1 & 0x03
        size = block >> 3
        position += 3 + (1 if kind == _RLE else size)
        most += size if kind in (_RAW, _RLE) else _LARGEST_BLOCK
        if block & 1:
            position += 4 if descriptor & 0x04 else 0
            break
    return position, most
