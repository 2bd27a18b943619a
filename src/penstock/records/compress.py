"""The compression codecs of record batches, with Kafka's ids, names and levels.

A few kilobytes can decompress to gigabytes, and the size is not known in advance. `decompress`
therefore takes a limit and stops before it allocates more than that.
"""

from enum import IntEnum

from penstock.core.errors import CorruptRecordError, ErrorCode, KafkaError
from penstock.records import _gzip, _lz4, _snappy, _zstd

DEFAULT_DECOMPRESSED_LIMIT = 128 * 1024 * 1024
"""Default limit for the decompressed size of one batch."""


class Compression(IntEnum):
    """The codec in the low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def from_name(cls, name: str) -> "Compression":
        """Returns the codec of a `compression.type`; `uncompressed` is the broker's word for none.

        Raises KafkaError INVALID_CONFIG for any other name.
        """
        try:
            return _BY_NAME[name]
        except KeyError:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"unknown compression {name!r}",
                remedy=f"use one of {', '.join(_BY_NAME)}",
            ) from None

    @property
    def codec_name(self) -> str:
        """The name used in settings."""
        return self.name.lower()


_BY_NAME = {codec.codec_name: codec for codec in Compression}
_BY_NAME["uncompressed"] = Compression.NONE

_CODECS = frozenset(Compression)

_LEVELS = {
    Compression.GZIP: _gzip.LEVELS,
    Compression.LZ4: _lz4.LEVELS,
    Compression.ZSTD: _zstd.LEVELS,
}


def check_level(codec: Compression, level: int | None) -> None:
    """Raises KafkaError INVALID_CONFIG unless `codec` has this level. None is its default."""
    if level is None:
        return
    levels = _LEVELS.get(codec)
    if levels is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{codec.codec_name} has no compression levels")
    if level not in levels and not (codec is Compression.GZIP and level == _gzip.DEFAULT_LEVEL):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{codec.codec_name} has the compression levels {levels[0]} to {levels[-1]}, "
            f"not {level}",
        )


def compress(
    codec: Compression, data: bytes | bytearray | memoryview, level: int | None = None
) -> bytes:
    """Returns `data` compressed in the framing that Kafka's clients expect."""
    check_level(codec, level)
    if codec is Compression.NONE:
        return bytes(data)
    if codec is Compression.GZIP:
        return _gzip.compress(data, level)
    if codec is Compression.SNAPPY:
        return _snappy.compress(data)
    if codec is Compression.LZ4:
        return _lz4.compress(data, level)
    return _zstd.compress(data, level)


def decompress(
    codec: Compression,
    data: bytes | bytearray | memoryview,
    limit: int = DEFAULT_DECOMPRESSED_LIMIT,
    *,
    magic: int = 2,
) -> bytes | memoryview:
    """Returns the decompressed `data`.

    Raises CorruptRecordError if `data` is not valid for the codec, DecompressionLimitError if it
    decompresses to more than `limit` bytes. `magic` is that of the batch: clients of magic 0 wrote
    LZ4 headers with a wrong checksum, which is accepted there.
    """
    if codec is Compression.NONE:
        unpacked: bytes | memoryview = memoryview(data)
    elif codec is Compression.GZIP:
        unpacked = _gzip.decompress(data, limit)
    elif codec is Compression.SNAPPY:
        unpacked = _snappy.decompress(data, limit)
    elif codec is Compression.LZ4:
        unpacked = _lz4.decompress(data, limit, ignore_header_checksum=magic == 0)
    elif magic < 2:
        raise CorruptRecordError(f"zstd is not defined for magic {magic}")
    else:
        unpacked = _zstd.decompress(data, limit)
    return unpacked


_LARGEST_RATIO = {Compression.GZIP: 1032, Compression.SNAPPY: 22, Compression.LZ4: 255}
"""Largest decompression ratio that the format of each codec allows."""


def unpacked_bound(codec: int, data: memoryview, limit: int) -> int:
    """Returns an upper bound of the decompressed size of `data`, without decompressing it.

    The bound may be any number above `limit` once it passes `limit`. It is 0 for data that is not
    valid for the codec: decompressing that raises an error.
    """
    if codec == Compression.ZSTD:
        try:
            return _zstd.bound(data, limit)
        except CorruptRecordError:
            return 0
    ratio = _LARGEST_RATIO.get(Compression(codec), 1) if codec in _CODECS else 1
    return len(data) * ratio
