"""Appends that are too slow for the event loop, and their preparation on a thread."""

import zlib

import pytest

from penstock.core.errors import ErrorCode, KafkaError
from penstock.records.append_policy import AppendOrigin, AppendPolicy
from penstock.records.batch import compute_crc, write_crc
from penstock.records.build import build_batch
from penstock.records.compress import Compression, unpacked_bound
from penstock.records.prepare import PreparedAppend, is_heavy
from penstock.records.record import Record
from tests.support.storage.batches import T, golden

AS_SENT = AppendPolicy()


def of_size(size: int, codec: Compression = Compression.NONE) -> bytearray:
    """A batch of incompressible data."""
    noise = b"".join(zlib.crc32(b"%d" % n).to_bytes(4, "big") for n in range(size // 4))
    return build_batch([Record(0, T, None, noise)], compression=codec)


def test_batches_stored_unchanged_are_not_heavy() -> None:
    assert not is_heavy(of_size(1_000_000), AS_SENT)
    assert not is_heavy(of_size(1_000_000), AppendPolicy(compression=Compression.NONE))


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec])
def test_a_compressed_batch_is_heavy_if_it_is_large(codec: Compression) -> None:
    assert not is_heavy(of_size(2_000, codec), AS_SENT)
    assert not is_heavy(of_size(2_000, codec), AppendPolicy(compression=codec))
    assert is_heavy(of_size(200_000, codec), AS_SENT)


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec])
def test_compression_is_heavy_at_smaller_sizes(codec: Compression) -> None:
    other_codec = AppendPolicy(
        compression=Compression.LZ4 if codec is not Compression.LZ4 else None
    )
    assert is_heavy(of_size(20_000), AppendPolicy(compression=codec))
    assert not is_heavy(of_size(500), AppendPolicy(compression=codec))
    if other_codec.compression is not None:
        assert is_heavy(of_size(2_000, codec), other_codec)


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_highly_compressed_batches_are_heavy(codec: Compression) -> None:
    """P7: a hostile batch does not block other requests."""
    batch = build_batch([Record(0, T, None, bytes(20_000_000))], compression=codec)
    assert is_heavy(batch, AS_SENT)


def test_a_small_decompression_bomb_is_heavy() -> None:
    """zstd encodes a run of 128 KiB in four bytes; `is_heavy` reads the sizes of its blocks."""
    frame = bytearray.fromhex("28b52ffd0058")
    run = (1 << 1 | 131072 << 3).to_bytes(3, "little") + b"\0"
    for _ in range(60):
        frame += run
    frame += b"\x01\x00\x00"
    batch = build_batch([Record(0, T, None, b"v")], compression=Compression.ZSTD)
    batch[61:] = frame
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    write_crc(batch, 0, compute_crc(batch, 0, len(batch)))
    assert len(batch) < 400
    assert is_heavy(batch, AS_SENT)


def test_conversion_of_old_formats_is_heavy_if_they_are_large() -> None:
    legacy = golden("legacy")
    assert not is_heavy(legacy["v1_none"], AS_SENT)
    assert is_heavy(legacy["v1_none"] * 200, AS_SENT)
    assert is_heavy(legacy["v1_gzip"] * 20, AS_SENT)


@pytest.mark.parametrize("data", [b"", b"\0" * 17, b"\0" * 40, b"\xff" * 100])
def test_invalid_data_is_not_heavy(data: bytes) -> None:
    assert not is_heavy(data, AS_SENT)


def test_an_unknown_codec_is_not_heavy() -> None:
    batch = of_size(200)
    batch[22] = 7
    assert not is_heavy(batch, AS_SENT)


def test_bounds_of_decompressed_sizes() -> None:
    assert unpacked_bound(Compression.ZSTD, memoryview(b"garbage"), 100) == 0
    assert unpacked_bound(7, memoryview(b"1234"), 100) == 4
    assert unpacked_bound(Compression.NONE, memoryview(b"1234"), 100) == 4
    assert unpacked_bound(Compression.GZIP, memoryview(b"1234"), 100) > 4000


def test_assign_before_run_is_an_error() -> None:
    prepared = PreparedAppend(of_size(10), AS_SENT, AppendOrigin.CLIENT, T)
    with pytest.raises(RuntimeError, match="run"):
        prepared.assign(0, 0, T)


def test_errors_of_run_are_raised_by_assign() -> None:
    batch = of_size(100)
    batch[80] ^= 1
    prepared = PreparedAppend(batch, AS_SENT, AppendOrigin.CLIENT, T)
    prepared.run()
    with pytest.raises(KafkaError) as error:
        prepared.assign(0, 0, T)
    assert error.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_stored_error_does_not_hold_the_decompressed_records() -> None:
    policy = AppendPolicy(max_decompressed_bytes=10_000)
    batch = build_batch([Record(0, T, None, bytes(20_000))], compression=Compression.ZSTD)
    prepared = PreparedAppend(batch, policy, AppendOrigin.CLIENT, T)
    prepared.run()
    error = prepared._error
    assert error is not None
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE
    assert (error.__traceback__, error.__context__) == (None, None)
