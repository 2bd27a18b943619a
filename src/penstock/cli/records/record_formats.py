"""The output of records as text and bytes: format strings like kcat's, decoders, JSON. No I/O.

A format string is compiled once into a function from records to the bytes that are printed.
"""

import re
import struct
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias
from uuid import UUID

import msgspec

from penstock.cli.output import UsageError
from penstock.client.consumer.record import ConsumerRecord
from penstock.core.errors import ErrorCode, KafkaError

Decoder: TypeAlias = Callable[[bytes], bytes]
"""Returns the output for a key or value. Raises ValueError if it cannot be decoded."""

Printer: TypeAlias = Callable[[ConsumerRecord], bytes]

_ESCAPE: Final = re.compile(
    rb"\\(?:x(?P<hex>[0-9a-fA-F]{1,2})|(?P<octal>0[0-7]{0,2})|(?P<number>[1-9][0-9]{0,2})|(?P<one>.))",
    re.DOTALL,
)
_LETTERS: Final = {b"n": b"\n", b"t": b"\t", b"r": b"\r"}
_SIZE: Final = struct.Struct(">i")
_NULL: Final = b"NULL"
_TIMESTAMP_TYPES: Final = {0: "create", 1: "append"}


def unescaped(text: str) -> bytes:
    r"""Returns text with \n, \t, \r, \0, \xNN, \NNN (octal after a 0, else decimal) as those bytes.

    Any other escaped letter stands for itself.
    """
    return _ESCAPE.sub(_escape, text.encode(errors="surrogateescape"))


def _escape(match: re.Match[bytes]) -> bytes:
    if match["hex"] is not None:
        return bytes([int(match["hex"], 16)])
    if match["octal"] is not None:
        return bytes([int(match["octal"], 8) & 0xFF])
    if match["number"] is not None:
        return bytes([int(match["number"]) & 0xFF])
    return _LETTERS.get(match["one"], match["one"])


# --- format strings


def compile_format(
    text: str, *, key: Decoder | None = None, value: Decoder | None = None, null: bytes = b""
) -> Printer:
    """Returns a function that prints one record. Raises UsageError for an invalid format.

    Keys and values are decoded; `null` is printed for those that are null.
    """
    pieces: list[bytes | Printer] = []
    position = 0
    while (percent := text.find("%", position)) >= 0:
        if percent > position:
            pieces.append(unescaped(text[position:percent]))
        token = text[percent + 1 : percent + 2]
        if token == "%":
            pieces.append(b"%")
        else:
            pieces.append(_field(token, key, value, null))
        position = percent + 2
    if position < len(text):
        pieces.append(unescaped(text[position:]))
    return _joined(pieces)


def _field(token: str, key: Decoder | None, value: Decoder | None, null: bytes) -> Printer:
    match token:
        case "s":
            return _content(lambda record: record.value, value, null)
        case "k":
            return _content(lambda record: record.key, key, null)
        case "h":
            return lambda record: header_text(record.headers)
    if token not in _NUMBERS:
        if not token:
            raise UsageError(
                "the format ends with a single %", remedy="write %% for a percent sign"
            )
        raise UsageError(
            f"the format has %{token}",
            remedy="there are %s %S %R (value, its length in letters and in 4 bytes), "
            "%k %K (key), %h (headers), %T (timestamp), %t %p %o (topic, "
            "partition, offset) and %%",
        )
    return _NUMBERS[token]


_NUMBERS: Final[dict[str, Printer]] = {
    "S": lambda record: b"%d" % _length(record.value),
    "R": lambda record: _SIZE.pack(_length(record.value)),
    "K": lambda record: b"%d" % _length(record.key),
    "T": lambda record: b"%d" % record.timestamp,
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
}


def _content(
    of: Callable[[ConsumerRecord], bytes | None], decoder: Decoder | None, null: bytes
) -> Printer:
    def printed(record: ConsumerRecord) -> bytes:
        data = of(record)
        if data is None:
            return null
        return data if decoder is None else decoder(data)

    return printed


def _joined(pieces: list[bytes | Printer]) -> Printer:
    fixed = [piece if isinstance(piece, bytes) else b"" for piece in pieces]
    fields = [(index, piece) for index, piece in enumerate(pieces) if not isinstance(piece, bytes)]

    def printed(record: ConsumerRecord) -> bytes:
        parts = fixed.copy()
        for index, field in fields:
            parts[index] = field(record)
        return b"".join(parts)

    return printed


def print_values(records: Sequence[ConsumerRecord], end: bytes, null: bytes) -> bytes:
    """Returns the values, each followed by `end`: the fast path of a format with values only."""
    parts = [null if record[6] is None else record[6] for record in records]
    parts.append(b"")
    return end.join(parts)


def header_text(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    """Returns headers in kcat's format: name=value,name=value with NULL for null."""
    return b",".join(
        name.encode() + b"=" + (_NULL if value is None else value) for name, value in headers
    )


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


# --- decoders

_PACKED: Final = {
    "short": ">h",
    "int": ">i",
    "long": ">q",
    "float": ">f",
    "double": ">d",
}
"""The formats of Kafka's serializers with these names."""

DECODERS: Final = ("raw", "utf-8", "hex", "base64", "json", *_PACKED, "uuid")


def decoder_of(name: str) -> Decoder | None:
    """Returns the decoder of keys or values; None prints the bytes unchanged.

    The name is one of `DECODERS`, or a pack string of kcat's: < > b B h H i I q Q c s $ and blanks.
    """
    match name:
        case "raw":
            return None
        case "utf-8":
            return lambda data: data.decode("utf-8", "backslashreplace").encode()
        case "hex":
            return lambda data: data.hex().encode()
        case "base64":
            return b64encode
        case "json":
            return _compact_json
        case "uuid":
            return lambda data: str(UUID(bytes=data)).encode()
    if name in _PACKED:
        return _number(name, struct.Struct(_PACKED[name]))
    if not name or name.strip(" <>bBhHiIqQcs$"):
        raise UsageError(
            f"there is no decoder '{name}'",
            remedy=f"it is one of {', '.join(DECODERS)}, or letters of < > b B h H i I q "
            "Q c s $ as in kcat",
        )
    return _unpacker(name)


def _compact_json(data: bytes) -> bytes:
    try:
        return msgspec.json.format(data, indent=-1)
    except msgspec.DecodeError as error:
        raise ValueError(f"no JSON ({error})") from None


def _number(name: str, packed: struct.Struct) -> Decoder:
    def decode(data: bytes) -> bytes:
        if len(data) != packed.size:
            raise ValueError(f"{len(data)} bytes, but {name} has {packed.size}")
        return str(packed.unpack(data)[0]).encode()

    return decode


def _unpacker(letters: str) -> Decoder:
    def decode(data: bytes) -> bytes:
        order, position = ">", 0
        out: list[bytes] = []
        for letter in letters:
            remaining = len(data) - position
            if letter == " ":
                out.append(b" ")
            elif letter in "<>":
                order = letter
            elif letter == "$":
                if remaining:
                    raise ValueError(f"{remaining} bytes are left at the end")
            elif letter == "s":
                out.append(data[position:])
                position = len(data)
            else:
                size = struct.calcsize(letter)
                if size > remaining:
                    raise ValueError(f"{remaining} bytes are left, but {letter} needs {size}")
                (value,) = struct.unpack_from(order + letter, data, position)
                out.append(value if isinstance(value, bytes) else b"%d" % value)
                position += size
        return b"".join(out)

    return decode


# --- JSON


def json_printer(key: str = "utf-8", value: str = "utf-8") -> Printer:
    """Returns a printer of one JSON object per line, which `produce --input json` reads.

    UTF-8 is written as text, other bytes as `{"base64": "…"}`. `json` puts the value
    itself in; every other decoder what it prints.
    """
    key_of, value_of = _json_field(key), _json_field(value)
    encode = msgspec.json.Encoder().encode

    def printed(record: ConsumerRecord) -> bytes:
        fields: dict[str, Any] = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp if record.timestamp >= 0 else None,
            "timestamp_type": _TIMESTAMP_TYPES.get(record.timestamp_type),
            "headers": [[name, json_text(data)] for name, data in record.headers],
            "key": None if record.key is None else key_of(record.key),
            "value": None if record.value is None else value_of(record.value),
        }
        return encode(fields) + b"\n"

    return printed


def json_text(data: bytes | None) -> object:
    """Returns bytes as JSON: text if they are UTF-8, else `{"base64": "…"}`."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}


def _json_field(name: str) -> Callable[[bytes], object]:
    if name in ("raw", "utf-8"):
        return json_text
    decode = decoder_of(name)
    assert decode is not None
    if name == "json":
        return lambda data: msgspec.Raw(decode(data))
    return lambda data: decode(data).decode("utf-8", "backslashreplace")


def undecodable(record: ConsumerRecord, error: ValueError) -> KafkaError:
    """The error for a record whose key or value is not what its decoder expects."""
    return KafkaError(
        ErrorCode.INVALID_RECORD,
        f"{record.topic}-{record.partition} at offset {record.offset} cannot be printed: {error}",
        remedy="choose another decoder, or raw",
    )
