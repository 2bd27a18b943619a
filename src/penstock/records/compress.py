"""The codecs of record batches: by Kafka's numbers, names and levels, and bounded on the way back.

What a codec unpacks to is not known before it is unpacked, and a few kilobytes can stand for
gigabytes. So `decompress` takes a limit, and gives up before it holds more than that.
"""

from enum import IntEnum

from penstock.core.errors import CorruptRecordError, ErrorCode, KafkaError
from penstock.records import _gzip, _lz4, _snappy, _zstd

DEFAULT_DECOMPRESSED_LIMIT = 128 * 1024 * 1024
"""Bytes that one batch may unpack to unless the caller says otherwise."""


class Compression(IntEnum):
    """The codec in the low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def from_name(cls, name: str) -> "Compression":
        """The codec of a client's `compression.type`: none, gzip, snappy, lz4 or zstd.

        Topics and brokers say `uncompressed` for none.
        """
        try:
            return _BY_NAME[name]
        except KeyError:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"unknown compression {name!r}: use one of {', '.join(_BY_NAME)}",
            ) from None

    @property
    def codec_name(self) -> str:
        """The name used in configs."""
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
    """`KafkaError` INVALID_CONFIG unless `level` is one that `codec` has. None is the default."""
    if level is None:
        return
    levels = _LEVELS.get(codec)
    if levels is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{codec.codec_name} has no compression levels")
    if level not in levels and not (codec is Compression.GZIP and level == _gzip.DEFAULT_LEVEL):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{codec.codec_name} has the compression levels {levels[0]} to {levels[-1]}, "
            f"{level} is none of them",
        )


def compress(
    codec: Compression, data: bytes | bytearray | memoryview, level: int | None = None
) -> bytes:
    """`data` packed the way Kafka's clients expect it. `level` as in Kafka's configs."""
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
    """`data` unpacked, at most `limit` bytes of it.

    `CorruptRecordError` for bytes that are not the codec's, `DecompressionLimitError` for more
    than `limit`. `magic` is that of the batch: clients of magic 0 wrote LZ4 headers with a wrong
    checksum, which is forgiven there.
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
"""How many bytes one byte can stand for, by the codec's format."""


def unpacked_bound(codec: int, data: memoryview, limit: int) -> int:
    """The most that `data` can unpack to, or more than `limit`, at little cost.

    Bytes that are no data of the codec are refused when they are unpacked; until then they count
    as nothing.
    """
    if codec == Compression.ZSTD:
        try:
            return _zstd.bound(data, limit)
        except CorruptRecordError:
            return 0
    ratio = _LARGEST_RATIO.get(Compression(codec), 1) if codec in _CODECS else 1
    return len(data) * ratio
