"""Protobuf messages, as they are or with Confluent's prefix in front."""

from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from penstock.spark.decode.arrow_rows import Read, micros
from penstock.spark.decode.datatypes import Field
from penstock.spark.decode.options import FormatOptions
from penstock.spark.decode.protobuf_schema import (
    TIMESTAMP,
    WRAPPERS,
    is_map_entry,
    load_message,
    message_in,
)
from penstock.spark.pipeline.model import SourceSpec

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
    from google.protobuf.message import Message
    from pyspark.sql import DataFrame

_PREFIX = 5
_UNSIGNED_64 = (4, 6)
# What a field of a message holds has no type that could be said: it depends on the descriptor.
_Change = Callable[[Any], object]


def protobuf_columns(
    frame: "DataFrame",
    value: str,
    spec: SourceSpec,
    fields: tuple[Field, ...],
    options: FormatOptions,
    error: str,
) -> "DataFrame":
    """Adds the fields, and the reason why the value cannot be read; a null value has none."""
    assert spec.schema_file is not None
    assert spec.message is not None
    message = spec.message
    load_message(spec.schema_file, message)
    descriptors = Path(spec.schema_file).read_bytes()
    is_confluent = options.wire == "confluent"
    from penstock.spark.decode.python_columns import python_columns

    return python_columns(
        frame,
        value,
        fields,
        error,
        lambda: protobuf_reader(descriptors, message, is_confluent),
        "Protobuf",
    )


@lru_cache(maxsize=16)
def protobuf_reader(descriptors: bytes, message: str, is_confluent: bool) -> Read:
    """Reads a value. Fields that keep track of their presence are null when absent."""
    from google.protobuf.message_factory import GetMessageClass

    kind = message_in(descriptors, message)
    make = GetMessageClass(kind)
    change = _message_change(kind)

    def read(value: bytes) -> Mapping[str, object]:
        found = make.FromString(_behind_prefix(value) if is_confluent else value)
        if not found.IsInitialized():
            raise ValueError("required fields are missing")
        return cast(Mapping[str, object], change(found))

    return read


def _behind_prefix(value: bytes) -> bytes:
    """Confluent's: a zero, four bytes of an id, then which message of its file it is."""
    if len(value) <= _PREFIX or value[0] != 0:
        raise ValueError("it does not begin with a zero and the id of a schema")
    count, at = _varint(value, _PREFIX)
    if count < 0:
        raise ValueError(f"{count} messages cannot be within each other")
    for _ in range(count):
        _, at = _varint(value, at)
    return value[at:]


def _varint(value: bytes, at: int) -> tuple[int, int]:
    """A signed number (zigzag) and where the next one begins."""
    found = shift = 0
    while True:
        byte = value[at]
        at += 1
        found |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), at


def _message_change(message: "Descriptor") -> _Change:
    if message.full_name == TIMESTAMP:
        return lambda found: micros(found.seconds * 1_000_000 + found.nanos // 1000)
    if message.full_name in WRAPPERS:
        inner = _one(message.fields[0])
        return lambda found: found.value if inner is None else inner(found.value)
    fields = [(each.name, _has_presence(each), _field_change(each)) for each in message.fields]

    def changed(found: "Message") -> object:
        row: dict[str, object] = {}
        for name, has_presence, change in fields:
            if has_presence and not found.HasField(name):
                row[name] = None
            else:
                value = getattr(found, name)
                row[name] = value if change is None else change(value)
        return row

    return changed


def _has_presence(field: "FieldDescriptor") -> bool:
    return bool(field.has_presence)


def _field_change(field: "FieldDescriptor") -> _Change | None:
    if field.message_type is not None and is_map_entry(field.message_type):
        key, value = (_one(each) for each in field.message_type.fields)
        # Arrow wants pairs.
        return lambda found: [
            (key(name) if key else name, value(found[name]) if value else found[name])
            for name in found
        ]
    one = _one(field)
    if field.is_repeated:
        return lambda found: list(found) if one is None else [one(each) for each in found]
    return one


def _one(field: "FieldDescriptor") -> _Change | None:
    if field.message_type is not None:
        return _message_change(field.message_type)
    if field.enum_type is not None:
        return _enum_change(field.name, field.enum_type)
    return Decimal if field.type in _UNSIGNED_64 else None


def _enum_change(field: str, kind: "EnumDescriptor") -> _Change:
    names = {number: value.name for number, value in kind.values_by_number.items()}

    def changed(number: int) -> str:
        if number not in names:
            raise ValueError(f"field {field}: {number} is no value of {kind.full_name}")
        return names[number]

    return changed
