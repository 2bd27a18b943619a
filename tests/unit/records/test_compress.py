"""Codecs: names and levels as Kafka's, framings of other clients, and bombs."""

import gzip
import time
import tracemalloc
import zlib

import cramjam
import pytest

from penstock.core.errors import CorruptRecordError, ErrorCode, KafkaError
from penstock.records._lz4 import _xxhash32
from penstock.records.compress import Compression, check_level, compress, decompress
from penstock.records.errors import DecompressionLimitError

CODECS = [codec for codec in Compression if codec is not Compression.NONE]
TEXT = b"".join(b"line %d of a text that can be compressed\n" % number for number in range(5000))
MIB = 1 << 20


def test_names() -> None:
    assert [Compression.from_name(codec.codec_name) for codec in Compression] == list(Compression)
    assert Compression.from_name("uncompressed") is Compression.NONE
    with pytest.raises(KafkaError, match="use one of none, gzip, snappy, lz4, zstd") as caught:
        Compression.from_name("brotli")
    assert caught.value.code is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("data", [b"", b"x", TEXT, bytes(range(256)) * 700])
def test_round_trip(codec: Compression, data: bytes) -> None:
    for source in (data, bytearray(data), memoryview(b"xx" + data)[2:]):
        packed = compress(codec, source)
        assert bytes(decompress(codec, memoryview(packed), len(data))) == data


@pytest.mark.parametrize(
    ("codec", "levels"),
    [
        (Compression.GZIP, (-1, 1, 9)),
        (Compression.LZ4, (1, 3, 9, 12, 17)),
        (Compression.ZSTD, (-131072, -1, 0, 1, 19, 22)),
    ],
)
def test_levels(codec: Compression, levels: tuple[int, ...]) -> None:
    for level in levels:
        packed = compress(codec, TEXT, level)
        assert bytes(decompress(codec, packed)) == TEXT
    for level in (levels[0] - 1, levels[-1] + 1):
        with pytest.raises(KafkaError, match="compression level") as caught:
            compress(codec, TEXT, level)
        assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_levels_change_the_size() -> None:
    assert len(compress(Compression.GZIP, TEXT, 9)) < len(compress(Compression.GZIP, TEXT, 1))
    assert len(compress(Compression.LZ4, TEXT, 12)) < len(compress(Compression.LZ4, TEXT))
    assert len(compress(Compression.ZSTD, TEXT, 19)) < len(compress(Compression.ZSTD, TEXT, -100))


def test_codecs_without_levels() -> None:
    for codec in (Compression.NONE, Compression.SNAPPY):
        check_level(codec, None)
        with pytest.raises(KafkaError, match="has no compression levels"):
            check_level(codec, 1)
    with pytest.raises(KafkaError, match="levels 1 to 9"):
        check_level(Compression.GZIP, 0)


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_refused_before_it_takes_the_memory(codec: Compression) -> None:
    """16 MiB of zeros, a limit of 1 MiB, and no more than a few MiB ever held."""
    bomb = compress(codec, bytes(16 * MIB))
    tracemalloc.start()
    try:
        with pytest.raises(DecompressionLimitError, match="more than 1048576 bytes") as caught:
            decompress(codec, bomb, MIB)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert peak < 4 * MIB


@pytest.mark.parametrize("codec", CODECS)
def test_limit_is_exact(codec: Compression) -> None:
    for size in (1, 1000, 3 * MIB):
        packed = compress(codec, bytes(size))
        assert len(decompress(codec, packed, size)) == size
        with pytest.raises(DecompressionLimitError):
            decompress(codec, packed, size - 1)


@pytest.mark.parametrize("codec", CODECS)
def test_broken_data(codec: Compression) -> None:
    packed = compress(codec, TEXT)
    for cut in (0, 1, 5, 8, 15, 17, 30, len(packed) // 2, len(packed) - 1):
        with pytest.raises(CorruptRecordError):
            decompress(codec, packed[:cut], MIB)
    with pytest.raises(CorruptRecordError):
        decompress(codec, b"this is not compressed at all, not with any codec", MIB)


def test_gzip_of_several_members_and_trailing_data() -> None:
    """Java's reader continues with the next member, and ignores other data."""
    members = gzip.compress(b"one") + gzip.compress(b"two") + gzip.compress(bytes(2 * MIB))
    expected = b"onetwo" + bytes(2 * MIB)
    assert bytes(decompress(Compression.GZIP, members)) == expected
    assert bytes(decompress(Compression.GZIP, members + b"rest")) == expected
    with pytest.raises(CorruptRecordError, match="ends too early"):
        decompress(Compression.GZIP, members[:-1])
    with pytest.raises(DecompressionLimitError):
        decompress(Compression.GZIP, members, 2 * MIB)


def test_gzip_with_a_wrong_checksum() -> None:
    packed = bytearray(compress(Compression.GZIP, TEXT))
    packed[-5] ^= 1
    with pytest.raises(CorruptRecordError, match="invalid gzip data"):
        decompress(Compression.GZIP, packed)


def test_snappy_without_framing() -> None:
    """Some clients send raw snappy."""
    raw = bytes(cramjam.snappy.compress_raw(TEXT))
    assert bytes(decompress(Compression.SNAPPY, raw)) == TEXT


def test_snappy_in_two_streams() -> None:
    """xerial's reader skips a header between blocks."""
    framed = compress(Compression.SNAPPY, b"one") + compress(Compression.SNAPPY, TEXT)
    assert bytes(decompress(Compression.SNAPPY, framed)) == b"one" + TEXT


def test_snappy_that_lies_about_its_size() -> None:
    """16 bytes that claim 100 MB are refused before 100 MB are allocated."""
    liar = b"\x80\xc2\xd7\x2f" + bytes(12)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecordError, match="claims to decompress to 100000000"):
            decompress(Compression.SNAPPY, liar)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MIB


def test_snappy_block_lengths_are_checked() -> None:
    framed = bytearray(compress(Compression.SNAPPY, b"x" * 100))
    framed[16:20] = b"\xff\xff\xff\xff"
    with pytest.raises(CorruptRecordError, match="a block claims -1 bytes"):
        decompress(Compression.SNAPPY, framed)
    framed[16:20] = b"\x7f\xff\xff\xff"
    with pytest.raises(CorruptRecordError, match="a block claims 2147483647 bytes"):
        decompress(Compression.SNAPPY, framed)
    with pytest.raises(CorruptRecordError, match="within the length"):
        decompress(Compression.SNAPPY, framed[:18])


def lz4_frame(data: bytes, **options: bool) -> bytes:
    packer = cramjam.lz4.Compressor(level=0, **options)
    packer.compress(data)
    return bytes(packer.finish())


def test_lz4_with_checksums() -> None:
    """Other clients add checksums; they are read, and checked."""
    frame = bytearray(lz4_frame(TEXT, block_linked=False, content_checksum=True))
    assert frame[4] & 0x04
    assert bytes(decompress(Compression.LZ4, frame)) == TEXT
    frame[-1] ^= 1
    with pytest.raises(CorruptRecordError, match="invalid LZ4 data"):
        decompress(Compression.LZ4, frame)


def test_lz4_with_linked_blocks_is_refused() -> None:
    frame = lz4_frame(TEXT, block_linked=True, content_checksum=False)
    with pytest.raises(CorruptRecordError, match="linked blocks"):
        decompress(Compression.LZ4, frame)


def test_lz4_is_written_as_kafka_writes_it() -> None:
    """Version 1, independent blocks of 64 KiB, no checksum, no size."""
    assert compress(Compression.LZ4, TEXT)[:7].hex() == "04224d18604082"
    assert compress(Compression.LZ4, TEXT, 12)[:7].hex() == "04224d18604082"


def test_lz4_with_data_behind_its_frame() -> None:
    packed = compress(Compression.LZ4, TEXT)
    assert bytes(decompress(Compression.LZ4, packed + b"rest")) == TEXT


@pytest.mark.parametrize(
    ("position", "value", "message"),
    [
        (4, 0x61, "unknown frame flags"),
        (4, 0xA0, "unknown frame flags"),
        (5, 0x30, "unknown block descriptor"),
        (5, 0x41, "unknown block descriptor"),
        (6, 0x00, "invalid LZ4 data"),
        (9, 0x02, "its frame allows 65536"),
    ],
)
def test_lz4_frame_header_is_checked(position: int, value: int, message: str) -> None:
    frame = bytearray(compress(Compression.LZ4, TEXT))
    frame[position] = value
    with pytest.raises(CorruptRecordError, match=message):
        decompress(Compression.LZ4, frame)


def test_lz4_of_magic_0_has_a_wrong_header_checksum() -> None:
    """Its writers hashed the frame's magic too; readers of magic 0 do not look."""
    frame = bytearray(compress(Compression.LZ4, TEXT))
    frame[6] = 0x1A
    assert bytes(decompress(Compression.LZ4, frame, magic=0)) == TEXT
    with pytest.raises(CorruptRecordError):
        decompress(Compression.LZ4, frame, magic=1)


def test_lz4_with_a_content_size() -> None:
    """The size is not trusted for memory; magic 0 corrects the longer header too."""
    frame = bytearray(compress(Compression.LZ4, b"hello" * 10))
    frame[4] |= 0x08
    frame[6:6] = (50).to_bytes(8, "little")
    assert bytes(decompress(Compression.LZ4, frame, magic=0)) == b"hello" * 10
    frame[6:14] = (2**40).to_bytes(8, "little")
    with pytest.raises(CorruptRecordError):
        decompress(Compression.LZ4, frame, magic=0)


def test_zstd_is_not_for_old_magics() -> None:
    with pytest.raises(CorruptRecordError, match="not defined for magic 1"):
        decompress(Compression.ZSTD, compress(Compression.ZSTD, TEXT), magic=1)


def test_zstd_with_a_content_size_that_lies() -> None:
    """A frame that claims 8 bytes and holds more, and one that claims a terabyte."""
    small = bytearray(cramjam.zstd.compress(b"ab" * 500, 3))
    assert small[4] >> 6 == 1, "two bytes of content size"
    small[5:7] = (8).to_bytes(2, "little")
    with pytest.raises(CorruptRecordError, match="invalid zstd data"):
        decompress(Compression.ZSTD, small)
    huge = bytearray(cramjam.zstd.compress(bytes(100_000), 3))
    assert huge[4] >> 6 == 2, "four bytes of content size"
    huge[5:9] = b"\xff\xff\xff\xff"
    with pytest.raises(CorruptRecordError, match="invalid zstd data"):
        decompress(Compression.ZSTD, huge, MIB)


def test_zstd_in_several_frames() -> None:
    skippable = b"\x50\x2a\x4d\x18" + (3).to_bytes(4, "little") + b"abc"
    frames = bytes(cramjam.zstd.compress(b"one")) + skippable + compress(Compression.ZSTD, TEXT)
    assert bytes(decompress(Compression.ZSTD, frames)) == b"one" + TEXT


def test_uncompressed_data_is_not_copied() -> None:
    data = bytearray(b"abc")
    view = decompress(Compression.NONE, data)
    data[0] = ord("x")
    assert bytes(view) == b"xbc"


def test_gzip_can_be_read_by_zlib() -> None:
    assert zlib.decompress(compress(Compression.GZIP, TEXT), wbits=31) == TEXT


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 131_072, 131_073, 300_000])
def test_zstd_is_packed_in_pieces_that_do_not_show(size: int) -> None:
    """Java's client packs a batch in one go; the frame is the same."""
    data = (TEXT * 2)[:size]
    packer = cramjam.zstd.Compressor(level=3)
    packer.compress(data)
    whole = bytes(packer.flush()) + bytes(packer.finish())
    assert compress(Compression.ZSTD, data) == whole


# --- hostile data

LIMIT = MIB


def lz4_blocks(size_class: int, count: int) -> bytes:
    """A frame of independent blocks of zeros, each of the largest size that its class allows."""
    flags = bytes([0x60, size_class << 4])
    checksum = bytes([_xxhash32(memoryview(flags)) >> 8 & 0xFF])
    zeros = bytes(1 << (2 * size_class + 8))
    block = bytes(cramjam.lz4.compress_block(zeros, store_size=False))
    blocks = (len(block).to_bytes(4, "little") + block) * count
    return b"\x04\x22\x4d\x18" + flags + checksum + blocks + bytes(4)


@pytest.mark.parametrize("size_class", [4, 5, 6, 7])
def test_lz4_bombs_of_independent_blocks(size_class: int) -> None:
    block_size = 1 << (2 * size_class + 8)
    fitting = decompress(Compression.LZ4, lz4_blocks(size_class, 3), 3 * block_size)
    assert len(fitting) == 3 * block_size
    with pytest.raises(DecompressionLimitError):
        decompress(Compression.LZ4, lz4_blocks(size_class, 3), 3 * block_size - 1)
    bomb = lz4_blocks(size_class, 400 * LIMIT // block_size + 1)
    assert peak_bytes(Compression.LZ4, bomb) < 1.1 * LIMIT


def test_lz4_frames_behind_the_first_are_not_decompressed() -> None:
    frames = lz4_blocks(4, 1) * 1000
    assert len(decompress(Compression.LZ4, frames, LIMIT)) == 65_536


def peak_bytes(codec: Compression, bomb: bytes) -> int:
    """Returns the memory for data that exceeds LIMIT."""
    tracemalloc.start()
    try:
        with pytest.raises(DecompressionLimitError):
            decompress(codec, bomb, LIMIT)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_the_time_of_gzip_with_many_members_is_linear() -> None:
    empty = gzip.compress(b"", mtime=0)
    data = empty * 100_000 + gzip.compress(TEXT)
    started = time.process_time()
    assert bytes(decompress(Compression.GZIP, data)) == TEXT
    assert time.process_time() - started < 3.0, "it was 10 seconds when each member copied the rest"


def test_gzip_bombs_in_many_members() -> None:
    member = gzip.compress(bytes(100_000))
    assert peak_bytes(Compression.GZIP, member * 1000) < 2 * LIMIT


def zstd_frame(descriptor: int, header: bytes, block_count: int) -> bytes:
    """A frame of blocks that repeat one byte 128 KiB times."""
    blocks = [
        ((128 * 1024) << 3 | 1 << 1 | (index == block_count - 1)).to_bytes(3, "little") + b"x"
        for index in range(block_count)
    ]
    return b"\x28\xb5\x2f\xfd" + bytes([descriptor]) + header + b"".join(blocks)


WINDOW_8_MIB = bytes([13 << 3])


def test_zstd_bombs_of_repeated_bytes() -> None:
    fitting = zstd_frame(0, WINDOW_8_MIB, 8)
    assert bytes(decompress(Compression.ZSTD, fitting, LIMIT)) == b"x" * LIMIT
    assert peak_bytes(Compression.ZSTD, zstd_frame(0, WINDOW_8_MIB, 100_000)) < 1.1 * LIMIT
    assert peak_bytes(Compression.ZSTD, fitting * 1000) < 1.1 * LIMIT


def test_zstd_with_a_window_beyond_128_mib_is_refused() -> None:
    """The decoder would allocate it; clients do not write such frames."""
    with pytest.raises(CorruptRecordError, match="invalid zstd data"):
        decompress(Compression.ZSTD, zstd_frame(0, bytes([18 << 3]), 1), LIMIT)


def test_zstd_with_a_dictionary_is_refused() -> None:
    with pytest.raises(CorruptRecordError, match="invalid zstd data"):
        decompress(Compression.ZSTD, zstd_frame(1, WINDOW_8_MIB + b"\x07", 1), LIMIT)
