"""Records of every shape, and comparisons with the records that were read."""

import random
from collections.abc import Iterable, Sequence

from tests.support.kafka_clients.model import Client, Record

START = 1_700_000_000_000
PARTITIONS = (0, 1)
MEGABYTE = 1_000_000

_TEXT = "the quick brown fox — 敏捷的棕色狐狸\n".encode()


def samples() -> list[Record]:
    """Keys, values and headers that are there, empty, null or large, in two partitions."""
    incompressible = random.Random(7).randbytes(MEGABYTE)
    compressible = (_TEXT * (MEGABYTE // len(_TEXT) + 1))[:MEGABYTE]
    binary = b"line\nbreak\x00\xff\xfe,=" + bytes(range(256))
    shapes = [
        Record(None, b"no key"),
        Record(b"", b"an empty key"),
        Record(b"\xff\xfe\x01key", binary),
        Record(b"tombstone", None),
        Record(b"empty value", b""),
        Record(b"one header", b"value", (("trace", b"\xff\xfe\x80"),)),
        Record(b"same name", b"value", (("h", b"first"), ("h", b"second"), ("h", b"first"))),
        Record(b"names mixed", b"value", (("b", b"1"), ("a", b"2"), ("b", b"3"))),
        Record(b"null header", b"value", (("nothing", None), ("é", b"umlaut"))),
        Record(b"empty header", None, (("empty", b""),)),
        Record(None, compressible),
        Record(b"large", incompressible),
        *(Record(b"batch", _TEXT * index) for index in range(1, 20)),
    ]
    return [
        shape._replace(partition=index % len(PARTITIONS), timestamp=START + index * 1000)
        for index, shape in enumerate(shapes)
    ]


def writable(client: Client, records: Iterable[Record]) -> list[Record]:
    """Returns the records that the client can send (see the attributes of `Client`)."""
    return [
        record
        for record in records
        if client.writes_null_headers or all(value is not None for _, value in record.headers)
    ]


def as_stored(records: Iterable[Record]) -> list[Record]:
    """The records with the offsets that they get in empty partitions, by partition."""
    stored: list[Record] = []
    for partition in PARTITIONS:
        in_partition = (record for record in records if record.partition == partition)
        stored += [record._replace(offset=offset) for offset, record in enumerate(in_partition)]
    return stored


def comparable(
    records: Iterable[Record], *, timestamps: bool = True, header_order: bool = True
) -> list[Record]:
    """Sorts by partition and offset, without the fields that a client does not support."""
    return sorted(
        (
            record._replace(
                timestamp=record.timestamp if timestamps else 0,
                headers=record.headers
                if header_order
                else tuple(sorted(record.headers, key=lambda header: header[0])),
            )
            for record in records
        ),
        key=lambda record: (record.partition, record.offset),
    )


def briefly(records: Sequence[Record]) -> list[Record]:
    """The records with large values shortened, so that a difference can be read."""

    def cut(data: bytes | None) -> bytes | None:
        if data is None or len(data) <= 64:
            return data
        return b"%d bytes with hash %d: " % (len(data), hash(data)) + data[:16]

    return [record._replace(value=cut(record.value)) for record in records]
