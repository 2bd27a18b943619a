"""LZ4 frames as Kafka's Java client writes them: independent blocks of 64 KiB, no checksums.

    4 bytes  0x184D2204, little-endian
    1 byte   flags: version 1, independent blocks
    1 byte   largest block: 4 = 64 KiB … 7 = 4 MiB
    1 byte   second byte of the xxHash32 of the two bytes before
    then, for each block: its length (little-endian; top bit set if it is not compressed), its bytes
    4 bytes  zero

Frames with a content size, block checksums or a content checksum can be read. Linked blocks
cannot, because Kafka's clients cannot read them either.
"""

from struct import Struct
from struct import error as struct_error

import cramjam

from penstock.core.errors import CorruptRecordError
from penstock.records._output import new_output
from penstock.records.errors import DecompressionLimitError

LEVELS = range(1, 18)
DEFAULT_LEVEL = 9
"""Kafka's default level selects the fast compressor; all other levels are high compression."""

_FAST_LEVEL = 0
_HIGH_LEVELS = range(3, 13)

_MAGIC = 0x184D2204
_PREFIX = Struct("<IBB")
_LENGTH = Struct("<I")
_UNPACKED_BIT = 0x80000000
_LEAST_HEADER = 7

_CONTENT_CHECKSUM = 0x04
_CONTENT_SIZE = 0x08
_BLOCK_CHECKSUM = 0x10
_INDEPENDENT = 0x20
_RESERVED = 0x03
_VERSION = 0x40
_VERSION_MASK = 0xC0

_KAFKA_HEADER = bytes.fromhex("04224d18604082")
_END = b"\x00\x00\x00\x00"
_BEST_RATIO = 255


def compress(data: bytes | bytearray | memoryview, level: int | None) -> bytes:
    """Returns one frame. Levels other than 9 are clamped to the library's range, 3 to 12."""
    if level is None or level == DEFAULT_LEVEL:
        level = _FAST_LEVEL
    else:
        level = max(_HIGH_LEVELS[0], min(level, _HIGH_LEVELS[-1]))
    packer = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    packer.compress(bytes(data))
    return _without_block_checksums(bytes(packer.finish()))


def _without_block_checksums(frame: bytes) -> bytes:
    """Removes the checksums that the library adds to every block and Kafka does not have."""
    flags = frame[4]
    checksum_size = 4 if flags & _BLOCK_CHECKSUM else 0
    parts = [_KAFKA_HEADER]
    position = _LEAST_HEADER
    while True:
        (length,) = _LENGTH.unpack_from(frame, position)
        if length == 0:
            parts.append(_END)
            return b"".join(parts)
        end = position + 4 + (length & ~_UNPACKED_BIT)
        parts.append(frame[position:end])
        position = end + checksum_size


def decompress(
    data: bytes | bytearray | memoryview, limit: int, *, ignore_header_checksum: bool = False
) -> memoryview:
    """Decompresses one frame and ignores what follows it."""
    view = memoryview(data)
    end, bound = _measure(view)
    frame = view[:end]
    if ignore_header_checksum:
        frame = _with_correct_header_checksum(frame)
    unpacked = new_output(min(bound, limit))
    try:
        written = cramjam.lz4.decompress_into(frame, unpacked)
    except cramjam.DecompressionError as error:
        if bound > limit and "write whole buffer" in str(error):
            raise DecompressionLimitError(limit) from None
        raise CorruptRecordError(f"invalid LZ4 data: {error}") from None
    return unpacked[:written]


def _measure(view: memoryview) -> tuple[int, int]:
    """Returns where the frame ends, and an upper bound of its decompressed size."""
    try:
        magic, flags, block_descriptor = _PREFIX.unpack_from(view)
        if magic != _MAGIC:
            raise CorruptRecordError("invalid LZ4 data: it does not start with a frame")
        if flags & _VERSION_MASK != _VERSION or flags & _RESERVED:
            raise CorruptRecordError(f"invalid LZ4 data: unknown frame flags {flags:#04x}")
        if not flags & _INDEPENDENT:
            raise CorruptRecordError(
                "LZ4 frame with linked blocks: Kafka's clients read only independent blocks"
            )
        size_class = block_descriptor >> 4
        if block_descriptor & 0x8F or size_class < 4:
            raise CorruptRecordError(
                f"invalid LZ4 data: unknown block descriptor {block_descriptor:#04x}"
            )
        largest = 1 << (2 * size_class + 8)
        position = _LEAST_HEADER + (8 if flags & _CONTENT_SIZE else 0)
        checksum_size = 4 if flags & _BLOCK_CHECKSUM else 0
        bound = 0
        while True:
            (length,) = _LENGTH.unpack_from(view, position)
            position += 4
            if length == 0:
                break
            packed = not length & _UNPACKED_BIT
            length &= ~_UNPACKED_BIT
            if length > largest:
                raise CorruptRecordError(
                    f"invalid LZ4 data: a block has {length} bytes, but its frame allows {largest}"
                )
            bound += min(largest, length * _BEST_RATIO) if packed else length
            position += length + checksum_size
    except struct_error:
        raise CorruptRecordError("invalid LZ4 data: it ends too early") from None
    end = position + (4 if flags & _CONTENT_CHECKSUM else 0)
    if end > len(view):
        raise CorruptRecordError("invalid LZ4 data: it ends too early")
    return end, bound


def _with_correct_header_checksum(frame: memoryview) -> memoryview:
    fixed = bytearray(frame)
    at = _LEAST_HEADER - 1 + (8 if frame[4] & _CONTENT_SIZE else 0)
    fixed[at] = _xxhash32(frame[4:at]) >> 8 & 0xFF
    return memoryview(fixed)


def _xxhash32(data: memoryview) -> int:
    """Returns the xxHash32, with seed 0, of fewer than 16 bytes; a frame descriptor is shorter."""
    mask = 0xFFFFFFFF
    state = 374761393 + len(data)
    words = len(data) // 4 * 4
    for start in range(0, words, 4):
        state = (state + _LENGTH.unpack_from(data, start)[0] * 3266489917) & mask
        state = (state << 17 | state >> 15) * 668265263 & mask
    for byte in data[words:]:
        state = (state + byte * 374761393) & mask
        state = (state << 11 | state >> 21) * 2654435761 & mask
    state = (state ^ state >> 15) * 2246822519 & mask
    state = (state ^ state >> 13) * 3266489917 & mask
    return state ^ state >> 16
