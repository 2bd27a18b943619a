"""Snappy in the framing of the xerial library, as Kafka's Java client writes it.

    16 bytes   0x82 "SNAPPY" 0x00, version 1, compatible version 1 (big-endian int32 each)
    then, for each block of up to 32 KiB: its compressed length (big-endian int32) and its data

Some clients send one raw snappy block without framing, which is accepted too.
"""

from struct import Struct
from struct import error as struct_error

import cramjam

from penstock.core.errors import CorruptRecordError
from penstock.records._output import new_output
from penstock.records.errors import DecompressionLimitError

_MAGIC = b"\x82SNAPPY\x00"
_HEADER = _MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_BLOCK_SIZE = 32 * 1024
_LENGTH = Struct(">i")
_MAGIC_AS_LENGTH = _LENGTH.unpack_from(_MAGIC)[0]

_BEST_RATIO = 22
"""Snappy's densest element expands 3 bytes to 64, so a larger claim is false."""


def compress(data: bytes | bytearray | memoryview) -> bytes:
    """Returns `data` compressed in xerial's framing."""
    parts = [_HEADER]
    with memoryview(data) as view:
        for start in range(0, len(view), _BLOCK_SIZE):
            block = bytes(cramjam.snappy.compress_raw(view[start : start + _BLOCK_SIZE]))
            parts.append(_LENGTH.pack(len(block)))
            parts.append(block)
    return b"".join(parts)


def decompress(data: bytes | bytearray | memoryview, limit: int) -> memoryview:
    """Decompresses data in xerial's framing, or one raw block."""
    view = memoryview(data)
    blocks = _blocks(view) if view[: len(_MAGIC)] == _MAGIC else [view]
    sizes = [_unpacked_size(block) for block in blocks]
    total = sum(sizes)
    if total > limit:
        raise DecompressionLimitError(limit)
    unpacked = new_output(total)
    position = 0
    for block, size in zip(blocks, sizes, strict=True):
        try:
            cramjam.snappy.decompress_raw_into(block, unpacked[position : position + size])
        except cramjam.DecompressionError as error:
            raise CorruptRecordError(f"invalid snappy data: {error}") from None
        position += size
    return unpacked


def _blocks(view: memoryview) -> list[memoryview]:
    if len(view) < len(_HEADER):
        raise CorruptRecordError("invalid snappy data: it ends within its header")
    blocks: list[memoryview] = []
    position = len(_HEADER)
    while position < len(view):
        try:
            (length,) = _LENGTH.unpack_from(view, position)
        except struct_error:
            raise CorruptRecordError(
                "invalid snappy data: it ends within the length of a block"
            ) from None
        if length == _MAGIC_AS_LENGTH:
            position += len(_HEADER)
            continue
        position += _LENGTH.size
        if not 0 <= length <= len(view) - position:
            raise CorruptRecordError(
                f"invalid snappy data: a block claims {length} bytes, "
                f"but {len(view) - position} are left"
            )
        blocks.append(view[position : position + length])
        position += length
    return blocks


def _unpacked_size(block: memoryview) -> int:
    """Returns the decompressed size that the block claims, if it is possible."""
    try:
        size = cramjam.snappy.decompress_raw_len(block)
    except cramjam.DecompressionError as error:
        raise CorruptRecordError(f"invalid snappy data: {error}") from None
    if size > _BEST_RATIO * len(block):
        raise CorruptRecordError(
            f"invalid snappy data: a block of {len(block)} bytes claims to decompress to {size}"
        )
    return size
