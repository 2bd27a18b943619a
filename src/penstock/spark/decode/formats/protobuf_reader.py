"""Reading Protobuf messages, in the executors."""

from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from penstock.spark.decode.formats.arrow_rows import ValueReader, check_micros
from penstock.spark.decode.formats.protobuf_schema import (
    TIMESTAMP,
    WRAPPERS,
    find_message,
    is_map_entry,
)

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
    from google.protobuf.message import Message

_PREFIX_BYTES = 5
_UNSIGNED_64 = (4, 6)
# The type of a field's value depends on the descriptor.
_Converter = Callable[[Any], object]


@lru_cache(maxsize=16)
def protobuf_reader(descriptors: bytes, message: str, is_confluent: bool) -> ValueReader:
    """Returns a reader of values. Absent fields that track their presence are null."""
    from google.protobuf.message_factory import GetMessageClass

    descriptor = find_message(descriptors, message)
    message_class = GetMessageClass(descriptor)
    convert = _message_converter(descriptor)

    def read(value: bytes) -> Mapping[str, object]:
        parsed = message_class.FromString(_without_prefix(value) if is_confluent else value)
        if not parsed.IsInitialized():
            raise ValueError("required fields are missing")
        return cast(Mapping[str, object], convert(parsed))

    return read


def _without_prefix(value: bytes) -> bytes:
    """Strips Confluent's prefix: a zero, a schema id, and the path to the message in its file."""
    if len(value) <= _PREFIX_BYTES or value[0] != 0:
        raise ValueError("it does not begin with a zero and the id of a schema")
    depth, position = _read_varint(value, _PREFIX_BYTES)
    if depth < 0:
        raise ValueError(f"{depth} messages cannot be within each other")
    for _ in range(depth):
        _, position = _read_varint(value, position)
    return value[position:]


def _read_varint(value: bytes, position: int) -> tuple[int, int]:
    """Returns a signed number (zigzag), and the position after it."""
    number = shift = 0
    while True:
        byte = value[position]
        position += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position


def _message_converter(message: "Descriptor") -> _Converter:
    if message.full_name == TIMESTAMP:
        return lambda parsed: check_micros(parsed.seconds * 1_000_000 + parsed.nanos // 1000)
    if message.full_name in WRAPPERS:
        inner = _single_converter(message.fields[0])
        return lambda parsed: parsed.value if inner is None else inner(parsed.value)
    fields = [
        (field.name, bool(field.has_presence), _field_converter(field)) for field in message.fields
    ]

    def convert(parsed: "Message") -> object:
        row: dict[str, object] = {}
        for name, has_presence, converter in fields:
            if has_presence and not parsed.HasField(name):
                row[name] = None
            else:
                value = getattr(parsed, name)
                row[name] = value if converter is None else converter(value)
        return row

    return convert


def _field_converter(field: "FieldDescriptor") -> _Converter | None:
    if field.message_type is not None and is_map_entry(field.message_type):
        key, value = (_single_converter(entry) for entry in field.message_type.fields)
        # Arrow expects pairs.
        return lambda entries: [
            (key(name) if key else name, value(entries[name]) if value else entries[name])
            for name in entries
        ]
    single = _single_converter(field)
    if field.is_repeated:
        return lambda items: list(items) if single is None else [single(item) for item in items]
    return single


def _single_converter(field: "FieldDescriptor") -> _Converter | None:
    if field.message_type is not None:
        return _message_converter(field.message_type)
    if field.enum_type is not None:
        return _enum_converter(field.name, field.enum_type)
    return Decimal if field.type in _UNSIGNED_64 else None


def _enum_converter(field: str, enum: "EnumDescriptor") -> _Converter:
    names = {number: value.name for number, value in enum.values_by_number.items()}

    def convert(number: int) -> str:
        if number not in names:
            raise ValueError(f"field {field}: {number} is no value of {enum.full_name}")
        return names[number]

    return convert
