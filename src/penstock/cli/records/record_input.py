"""Parses input into records: lines, sizes, JSON, whole files. No I/O: callers pass chunks.

Readers yield `Bulk`s: the records that end in a chunk, ready for `Producer.send_many`.
"""

import binascii
import struct
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import groupby
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from penstock.core.errors import StructuredError

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
_SIZE: Final = struct.Struct(">i")


class InputError(StructuredError):
    """A record that cannot be read. The message has its position."""


class InputKind(StrEnum):
    LINES = "lines"
    JSON = "json"
    SIZED = "sized"
    SIZED_KEYS = "sized-keys"
    FILES = "files"


class Encoding(StrEnum):
    RAW = "raw"
    HEX = "hex"
    BASE64 = "base64"


class Reading(NamedTuple):
    """How the input is read, independent of its kind."""

    delimiter: bytes = b"\n"
    key_separator: bytes | None = None
    key_optional: bool = False
    key: bytes | None = None
    """The key of records without one."""
    null: bool = False
    """Empty values, and empty keys before a separator, are null."""
    key_encoding: Encoding = Encoding.RAW
    value_encoding: Encoding = Encoding.RAW
    headers: Headers = ()


class Bulk(NamedTuple):
    """Records that follow each other and share topic, partition and headers."""

    source: str
    first: int
    """The number of the first: its line, from 1 on."""
    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None = None
    headers: Headers = ()
    timestamps: Sequence[int] | None = None
    topic: str | None = None
    partition: int | None = None
    unit: str = "line"

    def place(self, index: int) -> str:
        """Returns the position of a record, for messages."""
        if self.unit == "file":
            return self.source
        return f"{self.source}, {self.unit} {self.first + index}"


def read_bulks(
    kind: InputKind, source: str, chunks: Iterable[bytes], reading: Reading
) -> Iterator[Bulk]:
    """Yields the records of one source. Raises InputError at the first that cannot be read."""
    match kind:
        case InputKind.LINES:
            first = 1
            for lines in split(chunks, reading.delimiter):
                yield _of_lines(source, first, lines, reading)
                first += len(lines)
        case InputKind.JSON:
            first = 1
            for lines in split(chunks, b"\n"):
                yield from _of_json(source, first, lines, reading)
                first += len(lines)
        case InputKind.FILES:
            yield _finished(source, 1, [b"".join(chunks)], None, reading, "file")
        case _:
            yield from _of_sizes(source, chunks, reading, keyed=kind is InputKind.SIZED_KEYS)


def split(chunks: Iterable[bytes], delimiter: bytes) -> Iterator[list[bytes]]:
    """Yields the parts between delimiters that end in each chunk. Nothing follows the last one."""
    begun: list[bytes] = []
    """The chunks of an incomplete record, which are joined only when its end may have arrived."""
    for chunk in chunks:
        # A delimiter may span two chunks.
        tail = begun[-1][-(len(delimiter) - 1) :] if begun and len(delimiter) > 1 else b""
        if delimiter not in tail + chunk and (not begun or len(begun[-1]) >= len(delimiter)):
            begun.append(chunk)
            continue
        parts = b"".join([*begun, chunk]).split(delimiter)
        begun = [parts.pop()]
        if parts:
            yield parts
    last = b"".join(begun)
    if last:
        yield [last]


def decoding(encoding: Encoding) -> Callable[[bytes], bytes]:
    """Returns the function that decodes text; it raises ValueError if it cannot."""
    if encoding is Encoding.HEX:
        return lambda data: bytes.fromhex(data.decode("ascii", "replace"))
    if encoding is Encoding.BASE64:
        return _base64
    return bytes


def _base64(data: bytes | str) -> bytes:
    try:
        return b64decode(data, validate=True)
    except binascii.Error as error:
        raise ValueError(f"no base64 ({error})") from None


# --- lines


def _of_lines(source: str, first: int, lines: list[bytes], reading: Reading) -> Bulk:
    separator = reading.key_separator
    if separator is None:
        return _finished(source, first, lines, None, reading)
    keys: list[bytes | None] = []
    values: list[bytes] = []
    for index, line in enumerate(lines):
        key, separated, value = line.partition(separator)
        if separated:
            keys.append(key)
            values.append(value)
        elif reading.key_optional or reading.key is not None:
            keys.append(None)
            values.append(line)
        else:
            raise InputError(
                f"{source}, line {first + index} has no key separator {separator!r}",
                remedy=("add one, or say --key-optional to send such lines without a key"),
            )
    return _finished(source, first, values, keys, reading)


def _finished(
    source: str,
    first: int,
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    reading: Reading,
    unit: str = "line",
) -> Bulk:
    """Applies the options that all kinds but JSON share: encodings, nulls, the default key."""
    if keys is not None:
        keys = _decoded(source, first, unit, "key", keys, reading.key_encoding)
        if reading.null:
            keys = [key or None for key in keys]
        if reading.key is not None:
            keys = [reading.key if key is None else key for key in keys]
    elif reading.key is not None:
        keys = [reading.key] * len(values)
    values = _decoded(source, first, unit, "value", values, reading.value_encoding)
    if reading.null:
        values = [value or None for value in values]
    return Bulk(source, first, values, keys, reading.headers, unit=unit)


def _decoded(
    source: str,
    first: int,
    unit: str,
    what: str,
    data: Sequence[bytes | None],
    encoding: Encoding,
) -> Sequence[bytes | None]:
    if encoding is Encoding.RAW:
        return data
    decode = decoding(encoding)
    decoded: list[bytes | None] = []
    for field in data:
        try:
            decoded.append(None if field is None else decode(field))
        except ValueError as error:
            raise InputError(
                f"the {what} is not {encoding.value}: {error}",
                subject=f"{source}, {unit} {first + len(decoded)}",
            ) from None
    return decoded


# --- sizes


def _of_sizes(
    source: str, chunks: Iterable[bytes], reading: Reading, *, keyed: bool
) -> Iterator[Bulk]:
    """Parses values (and keys) after their lengths: 4 bytes, big endian, -1 for null."""
    columns = 2 if keyed else 1
    incomplete = b""
    first = 1
    for chunk in chunks:
        data = incomplete + chunk
        fields: list[bytes | None] = []
        position = start = 0
        while (end := _field_end(data, position, source, first + len(fields) // columns)) >= 0:
            fields.append(
                None if end == position + 4 and data[position] == 255 else data[position + 4 : end]
            )
            position = end
            if len(fields) % columns == 0:
                start = position
        incomplete = data[start:]
        del fields[len(fields) - len(fields) % columns :]
        if fields:
            keys = fields[::2] if keyed else None
            bulk = _finished(source, first, fields[columns - 1 :: columns], keys, reading, "record")
            yield bulk
            first += len(bulk.values)
    if incomplete:
        raise InputError(
            f"{source}, record {first} is cut short: {len(incomplete)} bytes are left, its "
            "length says more"
        )


def _field_end(data: bytes, position: int, source: str, record: int) -> int:
    """Returns the end of the field that starts at the position; -1 if it is incomplete."""
    if len(data) < position + 4:
        return -1
    (size,) = _SIZE.unpack_from(data, position)
    if size < -1:
        raise InputError(
            f"{source}, record {record} has the length {size}: each is 4 bytes, big endian, and -1 "
            "for null"
        )
    end = position + 4 + max(0, size)
    return int(end) if end <= len(data) else -1


# --- JSON


class JsonRecord(msgspec.Struct, forbid_unknown_fields=True):
    """A line of JSON, as `consume --json` and `kcat -J` write it."""

    key: Any = None
    value: Any = msgspec.UNSET
    payload: Any = msgspec.UNSET
    headers: Any = None
    topic: str | None = None
    partition: int | None = None
    timestamp: int | None = None
    ts: int | None = None
    offset: int | None = None
    timestamp_type: str | None = None
    tstype: str | None = None
    broker: int | None = None


_json_record = msgspec.json.Decoder(JsonRecord)


class _JsonLine(NamedTuple):
    """A record, its line, and the properties that the records of a bulk have in common."""

    number: int
    key: bytes | None
    value: bytes | None
    timestamp: int | None
    topic: str | None
    partition: int | None
    headers: Headers


def _of_json(source: str, first: int, lines: list[bytes], reading: Reading) -> Iterator[Bulk]:
    records = _parse_json(source, first, lines, reading)
    # Lines that follow each other have the same difference of line number and index.
    for _, group in groupby(
        enumerate(records),
        lambda pair: (pair[1].number - pair[0], pair[1][4:], pair[1].timestamp is None),
    ):
        bulk = [record for _, record in group]
        keys = [record.key for record in bulk]
        timestamps = [record.timestamp for record in bulk if record.timestamp is not None]
        yield Bulk(
            source,
            bulk[0].number,
            [record.value for record in bulk],
            keys if any(key is not None for key in keys) else None,
            bulk[0].headers,
            timestamps or None,
            bulk[0].topic,
            bulk[0].partition,
        )


def _parse_json(
    source: str, first: int, lines: list[bytes], reading: Reading
) -> Iterator[_JsonLine]:
    for number, line in enumerate(lines, first):
        if not line.strip():
            continue
        try:
            record = _json_record.decode(line)
            key, value = _content(record, reading)
            headers = (*reading.headers, *_headers(record.headers))
        except (msgspec.DecodeError, ValueError) as error:
            raise InputError(
                str(error),
                subject=f"{source}, line {number}",
                remedy='a line is an object such as {"key": "k", "value": "v", '
                '"headers": [["name", "value"]], "partition": 0}',
            ) from None
        timestamp = record.ts if record.timestamp is None else record.timestamp
        yield _JsonLine(number, key, value, timestamp, record.topic, record.partition, headers)


def _content(record: JsonRecord, reading: Reading) -> tuple[bytes | None, bytes | None]:
    value = record.payload if record.value is msgspec.UNSET else record.value
    if value is msgspec.UNSET:
        raise ValueError('there is no "value"; null is a tombstone')
    key = json_bytes(record.key, reading.key_encoding)
    return (
        reading.key if key is None else key,
        json_bytes(value, reading.value_encoding),
    )


def json_bytes(value: object, encoding: Encoding = Encoding.RAW) -> bytes | None:
    """Returns the bytes of a JSON value.

    Text is UTF-8, or in the encoding; {"base64": "…"} and {"hex": "…"} name their own;
    anything else is its JSON text. Raises ValueError if it cannot be decoded.
    """
    if value is None:
        return None
    if isinstance(value, str):
        return decoding(encoding)(value.encode())
    if isinstance(value, dict) and len(value) == 1:
        ((name, text),) = value.items()
        if name in ("base64", "hex") and isinstance(text, str):
            return decoding(Encoding(name))(text.encode())
    return msgspec.json.encode(value)


def _headers(headers: object) -> Headers:
    """Parses pairs, an object, or alternating names and values, as kcat writes them."""
    if headers is None:
        return ()
    if isinstance(headers, dict):
        pairs: list[tuple[object, object]] = list(headers.items())
    elif isinstance(headers, list) and all(
        isinstance(pair, list) and len(pair) == 2 for pair in headers
    ):
        pairs = [(pair[0], pair[1]) for pair in headers]
    elif isinstance(headers, list) and len(headers) % 2 == 0:
        pairs = list(zip(headers[::2], headers[1::2], strict=True))
    else:
        raise ValueError('"headers" are pairs: [["name", "value"]], or an object')
    parsed: list[tuple[str, bytes | None]] = []
    for name, value in pairs:
        if not isinstance(name, str):
            raise ValueError(f"a header's name is text, not {name!r}")
        parsed.append((name, json_bytes(value)))
    return tuple(parsed)
