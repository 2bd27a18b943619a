"""Records on one core: encode, decode, scan, Arrow, validation, codecs (P6, D1)."""

import random
from collections.abc import Callable

from bench.report import Row, at_least, at_most, seconds
from penstock.records import _decode, is_compiled
from penstock.records.append_policy import AppendPolicy
from penstock.records.arrow import decode_to_arrow
from penstock.records.batch import HEADER_SIZE, read_header, verify
from penstock.records.build import build_batch
from penstock.records.compress import Compression, compress, decompress
from penstock.records.read import read_records
from penstock.records.record import Record
from penstock.records.validate import verify_batches
from tests.support.storage.batch_builder import BatchBuilder
from tests.support.storage.validation import validate_and_assign

T = 1_700_000_000_000
COUNT = 145
"""100-byte records in a batch of 16 KB."""

VALUE = bytes(range(100))
POLICY = AppendPolicy()


def records_from(offset: int) -> list[Record]:
    return [Record(offset + n, T + n, None, VALUE) for n in range(COUNT)]


def each(action: Callable[[], object], times: int) -> float:
    """Median seconds of one call, over repeats of `times` calls each."""

    def repeat() -> None:
        for _ in range(times):
            action()

    return seconds(repeat, 15) / times


def rate(action: Callable[[], object], times: int, items: int = COUNT) -> float:
    """Millions of items per second."""
    return items / each(action, times) / 1e6


def text(size: int) -> bytes:
    """Letters that compress to about a half."""
    return bytes(random.Random(7).choices(b"abcdefgh ", k=size))


def record_rows() -> list[Row]:
    records = records_from(0)
    batch = build_batch(records)
    header = read_header(batch)
    with_headers = [
        record._replace(key=b"key", headers=(("trace", b"0123456789abcdef"),)) for record in records
    ]
    heavy = build_batch(with_headers)

    def append() -> None:
        builder = BatchBuilder()
        for record in records:
            builder.append(record.timestamp, None, VALUE)
        builder.close()

    decoded = rate(lambda: read_records(batch, 0, header), 300)
    encoded = rate(lambda: build_batch(records), 300)
    scanned = each(
        lambda: _decode.scan_records(batch, HEADER_SIZE, len(batch), COUNT, header.base_timestamp),
        3000,
    )
    return [
        at_least("decode a batch into records", decoded, "M/s", 3),
        at_least("encode records into a batch", encoded, "M/s", 2),
        Row("decode, with a key and a header each", rate(lambda: read_records(heavy), 100), "M/s"),
        Row(
            "encode, with a key and a header each",
            rate(lambda: build_batch(with_headers), 100),
            "M/s",
        ),
        Row("append to a producer's batch, one by one", rate(append, 50), "M/s"),
        at_most("scan of a 16 KB batch", scanned * 1e6, "µs", 1.5),
    ]


def arrow_rows() -> list[Row]:
    batches = 64
    log = b"".join(
        build_batch(records_from(n * COUNT), base_offset=n * COUNT) for n in range(batches)
    )
    items = batches * COUNT
    checked = rate(lambda: decode_to_arrow([log]), 10, items)
    unchecked = rate(lambda: decode_to_arrow([log], check_crcs=False), 10, items)
    return [
        at_least("decode 64 batches into Arrow", unchecked, "M/s", 20),
        Row("decode 64 batches into Arrow, CRCs checked", checked, "M/s"),
    ]


def append_rows() -> list[Row]:
    batch = build_batch(records_from(0))
    packed = build_batch(records_from(0), compression=Compression.LZ4)
    header = read_header(batch)

    def leader(buffer: bytearray) -> Callable[[], object]:
        def append() -> object:
            buffer[:8] = bytes(8)
            return validate_and_assign(
                buffer, next_offset=1000, leader_epoch=3, now_ms=T, policy=POLICY
            )

        return append

    return [
        Row("header of a batch", each(lambda: read_header(batch), 5000) * 1e6, "µs"),
        Row("CRC of a 16 KB batch", each(lambda: verify(batch, 0, header), 3000) * 1e6, "µs"),
        Row("leader: validate, assign offsets", each(leader(batch), 2000) * 1e6, "µs"),
        Row("leader: the same, compressed with LZ4", each(leader(packed), 300) * 1e6, "µs"),
        Row("follower: verify", each(lambda: verify_batches(batch), 3000) * 1e6, "µs"),
    ]


def codec_rows() -> list[Row]:
    rows = []
    data = text(64 * 1024)
    for codec in list(Compression)[1:]:
        packed = compress(codec, data)
        for name, action in (
            (f"{codec.codec_name}: compress 64 KiB of text", lambda c=codec: compress(c, data)),
            (
                f"{codec.codec_name}: decompress it",
                lambda c=codec, p=packed: decompress(c, p, 1 << 20),
            ),
        ):
            rows.append(Row(name, len(data) / each(action, 5) / 1e6, "MB/s"))
    return rows


def run() -> list[Row]:
    compiled = Row("compiled (1) or plain Python (0)", float(is_compiled()), "")
    return [compiled, *record_rows(), *arrow_rows(), *append_rows(), *codec_rows()]


def main() -> None:
    for row in run():
        print(f"{row.name:<45} {row.figure:>10.2f} {row.unit:<5} {row.target}")


if __name__ == "__main__":
    main()
