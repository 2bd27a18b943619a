"""A Protobuf message from a set of descriptors, and which fields it has for Spark."""

from pathlib import Path
from typing import TYPE_CHECKING

from penstock.spark.decode.datatypes import (
    BINARY,
    STRING,
    ArrayOf,
    DataType,
    Decimal,
    Field,
    MapOf,
    Scalar,
    StructOf,
)
from penstock.spark.errors import OptionError

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.descriptor_pool import DescriptorPool

TIMESTAMP = "google.protobuf.Timestamp"
WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
"""Messages of one field `value`: they are that field, which may be null."""

_KINDS: dict[int, DataType] = {
    1: Scalar("double"),
    2: Scalar("float"),
    3: Scalar("bigint"),
    # Spark has no unsigned numbers: the next type into which all of them fit.
    4: Decimal(20, 0),
    5: Scalar("int"),
    6: Decimal(20, 0),
    7: Scalar("bigint"),
    8: Scalar("boolean"),
    9: STRING,
    12: BINARY,
    13: Scalar("bigint"),
    14: STRING,
    15: Scalar("int"),
    16: Scalar("bigint"),
    17: Scalar("int"),
    18: Scalar("bigint"),
}
"""By FieldDescriptor.TYPE_…; enums are the names of their values."""


def load_message(path: str, message: str) -> "Descriptor":
    """The message of this full name in the file, as `protoc --descriptor_set_out` writes it."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise OptionError(f"the Protobuf descriptors {path} cannot be read: {error}") from None
    return message_in(content, message, path)


def message_in(content: bytes, message: str, path: str = "descriptors") -> "Descriptor":
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import DecodeError

    from penstock.spark.decode.fields import nearest

    try:
        files = FileDescriptorSet.FromString(content)
    except DecodeError:
        raise OptionError(
            f"{path} is not a set of Protobuf descriptors: make it with `protoc "
            "--include_imports --descriptor_set_out=FILE your.proto`"
        ) from None
    pool = DescriptorPool()
    try:
        for each in files.file:
            pool.AddSerializedFile(each.SerializeToString())
    except (TypeError, KeyError, ValueError) as error:
        raise OptionError(
            f"the Protobuf descriptors {path} are not complete: {error}. Add --include_imports to "
            "`protoc`"
        ) from None
    try:
        return pool.FindMessageTypeByName(message)
    except KeyError:
        names = [name for each in files.file for name in _messages(pool, each.name)]
        raise OptionError(
            f"there is no message {message} in {path}{nearest(message, names)}"
        ) from None


def protobuf_fields(message: "Descriptor") -> tuple[Field, ...]:
    """Its fields as Spark sees them; `OptionError` for messages that contain themselves."""
    return _struct(message, message.full_name, ()).fields


def _messages(pool: "DescriptorPool", file: str) -> list[str]:
    found: list[str] = []
    waiting = list(pool.FindFileByName(file).message_types_by_name.values())
    while waiting:
        message = waiting.pop(0)
        found.append(message.full_name)
        waiting += [each for each in message.nested_types if not is_map_entry(each)]
    return found


def _struct(message: "Descriptor", where: str, inside: tuple[str, ...]) -> StructOf:
    if message.full_name in inside:
        raise OptionError(
            f"Protobuf field {where}: the message {message.full_name} contains itself, which no "
            "column can: take the format raw, and decode it in a step"
        )
    inside = (*inside, message.full_name)
    if not message.fields:
        raise OptionError(f"Protobuf {where}: the message {message.full_name} has no fields")
    return StructOf(
        tuple(
            Field(each.name, _type(each, f"{where}.{each.name}", inside)) for each in message.fields
        )
    )


def _type(field: "FieldDescriptor", where: str, inside: tuple[str, ...]) -> DataType:
    if field.message_type is not None and is_map_entry(field.message_type):
        key, value = field.message_type.fields
        return MapOf(_one(key, where, inside), _one(value, where, inside))
    one = _one(field, where, inside)
    return ArrayOf(one) if field.is_repeated else one


def _one(field: "FieldDescriptor", where: str, inside: tuple[str, ...]) -> DataType:
    message = field.message_type
    if message is None:
        return _KINDS[field.type]
    if message.full_name == TIMESTAMP:
        return Scalar("timestamp")
    if message.full_name in WRAPPERS:
        return _KINDS[message.fields[0].type]
    return _struct(message, where, inside)


def is_map_entry(message: "Descriptor") -> bool:
    return bool(message.GetOptions().map_entry)
