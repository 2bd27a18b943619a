"""Batches with odd fields: each is sent to a broker, with what it stores (P2, X5)."""

import struct
from collections.abc import Iterator, Sequence

from penstock.records.batch import HEADER_SIZE, compute_crc, write_crc
from penstock.records.compress import Compression, compress
from tests.support.broker.in_process import WireClient
from tests.support.kafka.broker import wait_until
from tests.support.protocol.requests import fetch_partition, make_topic, send_batch

_HEADER = struct.Struct(">qiibIhiqqqhii")
_FIELDS = (
    "base_offset",
    "length",
    "leader_epoch",
    "magic",
    "crc",
    "attributes",
    "last_offset_delta",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "count",
)


def varint(value: int) -> bytes:
    """Encodes a number as Kafka's records do: zigzag, seven bits a byte."""
    number = (value << 1) ^ (value >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def record(
    offset_delta: int = 0,
    *,
    timestamp_delta: int = 0,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    attributes: int = 0,
    headers: bytes = b"\0",
    size_error: int = 0,
    key_size: int | None = None,
) -> bytes:
    """Encodes a record, whose fields need not be consistent."""

    def field(data: bytes | None) -> bytes:
        return varint(-1) if data is None else varint(len(data)) + data

    key_field = field(key) if key_size is None else varint(key_size) + (key or b"")
    body = (
        struct.pack(">b", attributes)
        + varint(timestamp_delta)
        + varint(offset_delta)
        + key_field
        + field(value)
        + headers
    )
    return varint(len(body) + size_error) + body


def batch(records: Sequence[bytes], codec: Compression = Compression.NONE, **fields: int) -> bytes:
    """Builds a batch with a correct length and CRC; `fields` replace those of the header."""
    data = b"".join(records)
    if codec is not Compression.NONE:
        data = bytes(compress(codec, data))
    values = {
        "base_offset": 0,
        "length": HEADER_SIZE - 12 + len(data),
        "leader_epoch": -1,
        "magic": 2,
        "crc": 0,
        "attributes": codec.value,
        "last_offset_delta": len(records) - 1,
        "base_timestamp": 1_700_000_000_000,
        "max_timestamp": 1_700_000_000_000,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "count": len(records),
    } | fields
    built = bytearray(_HEADER.pack(*(values[name] for name in _FIELDS)) + data)
    write_crc(built, 0, compute_crc(built, 0, len(built)))
    return bytes(built)


def odd_batches() -> Iterator[tuple[str, bytes]]:
    """Yields the name of each oddity with its batch."""
    two = [record(0), record(1)]
    for codec in (Compression.NONE, Compression.GZIP, Compression.ZSTD):
        name = codec.name.lower()
        yield f"{name}, offset deltas 0 5", batch([record(0), record(5)], codec)
        yield f"{name}, offset deltas 1 2", batch([record(1), record(2)], codec)
        yield f"{name}, offset deltas 0 0", batch([record(0), record(0)], codec)
        yield f"{name}, offset deltas 1 0", batch([record(1), record(0)], codec)
        yield f"{name}, a negative offset delta", batch([record(-1), record(1)], codec)
        yield f"{name}, last offset delta too large", batch(two, codec, last_offset_delta=5)
        yield f"{name}, last offset delta too small", batch(two, codec, last_offset_delta=0)
        yield f"{name}, last offset delta negative", batch(two, codec, last_offset_delta=-1)
        yield f"{name}, count too large", batch(two, codec, count=3)
        yield (
            f"{name}, count and last offset delta too large",
            batch(two, codec, count=3, last_offset_delta=2),
        )
        yield (
            f"{name}, count and last offset delta too small",
            batch(two, codec, count=1, last_offset_delta=0),
        )
        yield f"{name}, count negative", batch(two, codec, count=-1, last_offset_delta=-2)
        yield f"{name}, no records", batch([], codec, last_offset_delta=0)
        yield f"{name}, no records at all", batch([], codec)
        yield f"{name}, record attributes", batch([record(attributes=0x55)], codec)
        yield f"{name}, negative timestamp delta", batch([record(timestamp_delta=-9)], codec)
        yield f"{name}, a record shorter than it says", batch([record(size_error=3)], codec)
        yield f"{name}, a record longer than it says", batch([record(size_error=-2)], codec)
        yield f"{name}, key size -2", batch([record(key=None, key_size=-2)], codec)
        yield f"{name}, key larger than the record", batch([record(key_size=100)], codec)
        yield f"{name}, headers count negative", batch([record(headers=varint(-1))], codec)
        yield f"{name}, header without key", batch([record(headers=b"\2\1\1")], codec)
        yield f"{name}, header key not UTF-8", batch([record(headers=b"\2\2\xff\1")], codec)
        yield (
            f"{name}, bytes after the records",
            batch([*two, b"xx"], codec, count=2, last_offset_delta=1),
        )
        yield f"{name}, max timestamp wrong", batch(two, codec, max_timestamp=5)
        yield f"{name}, max timestamp -1", batch(two, codec, max_timestamp=-1)
        yield f"{name}, base timestamp -1", batch(two, codec, base_timestamp=-1, max_timestamp=-1)
        yield f"{name}, base timestamp -7", batch(two, codec, base_timestamp=-7)
    yield "base offset 77", batch(two, base_offset=77)
    yield "base offset negative", batch(two, base_offset=-3)
    yield "leader epoch 9", batch(two, leader_epoch=9)
    yield "log append time", batch(two, attributes=0x08)
    yield "delete horizon", batch(two, attributes=0x40)
    yield "reserved attributes", batch(two, attributes=0x0F80)
    yield "negative attributes", batch(two, attributes=-32768)
    for number in (5, 6, 7):
        yield f"codec {number}", batch(two, attributes=number)
    yield "codec gzip, records not compressed", batch(two, attributes=1)
    yield "producer id -2", batch(two, producer_id=-2)
    yield (
        "producer id -2 with a sequence",
        batch(two, producer_id=-2, producer_epoch=0, base_sequence=0),
    )
    yield "producer epoch without an id", batch(two, producer_epoch=5)
    yield "sequence without an id", batch(two, base_sequence=5)
    yield "producer id without a sequence", batch(two, producer_id=4_000_000, producer_epoch=0)
    yield "producer id without an epoch", batch(two, producer_id=4_000_001, base_sequence=0)
    yield "sequence -2", batch(two, producer_id=4_000_002, producer_epoch=0, base_sequence=-2)
    yield "epoch -2", batch(two, producer_id=4_000_003, producer_epoch=-2, base_sequence=0)
    yield (
        "an unknown producer",
        batch(two, producer_id=4_000_004, producer_epoch=0, base_sequence=0),
    )
    yield (
        "an unknown producer in the middle",
        batch(two, producer_id=4_000_005, producer_epoch=0, base_sequence=7),
    )
    yield (
        "sequence overflows",
        batch(two, producer_id=4_000_006, producer_epoch=0, base_sequence=2**31 - 1),
    )
    yield "transactional without an id", batch(two, attributes=0x10)
    yield "control", batch(two, attributes=0x20)
    yield "length too small", batch(two, length=HEADER_SIZE - 13)


def send_odd_batches(client: WireClient) -> dict[str, object]:
    """Sends each batch to a partition of its own; returns the error, or the stored bytes."""
    results: dict[str, object] = {}
    batches = list(odd_batches())
    make_topic(client, "odd", len(batches))
    wait_until(
        lambda: all(
            fetch_partition(client, "odd", partition=partition).error_code == 0
            for partition in range(len(batches))
        ),
        "the partitions",
    )
    for partition, (name, data) in enumerate(batches):
        response = send_batch(client, "odd", data, partition=partition)
        result: list[object] = [
            response.error_code,
            response.base_offset,
            [error.batch_index for error in response.record_errors],
        ]
        if not response.error_code:
            stored = fetch_partition(client, "odd", partition=partition)
            result += [stored.error_code, stored.high_watermark, bytes(stored.records or b"").hex()]
            following = send_batch(client, "odd", batch([record(0)]), partition=partition)
            result += [following.error_code, following.base_offset]
        results[f"odd: {name}"] = result
    return results
