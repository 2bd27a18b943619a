"""Protobuf descriptors: finding a message, and the fields that it has for Spark."""

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
from penstock.spark.pipeline.nearest import suggestion

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.descriptor_pool import DescriptorPool

TIMESTAMP = "google.protobuf.Timestamp"
WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
"""Messages with the one field `value`; a column has that field's type and may be null."""

_TYPES: dict[int, DataType] = {
    1: Scalar("double"),
    2: Scalar("float"),
    3: Scalar("bigint"),
    # Spark has no unsigned numbers: these get the next type that holds all of them.
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
"""By FieldDescriptor.TYPE_…; enums become the names of their values."""


def load_message(path: str, message: str) -> "Descriptor":
    """Returns the message of this full name from a file of `protoc --descriptor_set_out`.

    Raises `OptionError` when the file cannot be read or does not contain the message.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise OptionError(f"the Protobuf descriptors {path} cannot be read: {error}") from None
    return find_message(content, message, path)


def find_message(content: bytes, message: str, path: str = "descriptors") -> "Descriptor":
    """Returns the message of this full name. `path` names the descriptors in errors."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import DecodeError

    try:
        files = FileDescriptorSet.FromString(content).file
    except DecodeError:
        raise OptionError(
            f"{path} is not a set of Protobuf descriptors",
            remedy="make it with `protoc --include_imports --descriptor_set_out=FILE your.proto`",
        ) from None
    pool = DescriptorPool()
    try:
        for file in files:
            pool.AddSerializedFile(file.SerializeToString())
    except (TypeError, KeyError, ValueError) as error:
        raise OptionError(
            f"the Protobuf descriptors {path} are not complete: {error}",
            remedy="add --include_imports to `protoc`",
        ) from None
    try:
        return pool.FindMessageTypeByName(message)
    except KeyError:
        names = [name for file in files for name in _message_names(pool, file.name)]
        raise OptionError(
            f"there is no message {message} in {path}{suggestion(message, names)}"
        ) from None


def protobuf_fields(message: "Descriptor") -> tuple[Field, ...]:
    """Returns the fields as Spark sees them. Raises `OptionError` if a message contains itself."""
    return _struct(message, message.full_name, ()).fields


def is_map_entry(message: "Descriptor") -> bool:
    """Returns whether the message is one that protoc generates for a map field."""
    return bool(message.GetOptions().map_entry)


def _message_names(pool: "DescriptorPool", file: str) -> list[str]:
    names: list[str] = []
    messages = list(pool.FindFileByName(file).message_types_by_name.values())
    while messages:
        message = messages.pop(0)
        names.append(message.full_name)
        messages += [nested for nested in message.nested_types if not is_map_entry(nested)]
    return names


def _struct(message: "Descriptor", where: str, parents: tuple[str, ...]) -> StructOf:
    if message.full_name in parents:
        raise OptionError(
            f"Protobuf field {where}: the message {message.full_name} contains itself, which no "
            "column can",
            remedy="use the format raw, and decode the value in a step",
        )
    parents = (*parents, message.full_name)
    if not message.fields:
        raise OptionError(f"Protobuf {where}: the message {message.full_name} has no fields")
    return StructOf(
        tuple(
            Field(field.name, _type(field, f"{where}.{field.name}", parents))
            for field in message.fields
        )
    )


def _type(field: "FieldDescriptor", where: str, parents: tuple[str, ...]) -> DataType:
    if field.message_type is not None and is_map_entry(field.message_type):
        key, value = field.message_type.fields
        return MapOf(_single_type(key, where, parents), _single_type(value, where, parents))
    single = _single_type(field, where, parents)
    return ArrayOf(single) if field.is_repeated else single


def _single_type(field: "FieldDescriptor", where: str, parents: tuple[str, ...]) -> DataType:
    message = field.message_type
    if message is None:
        return _TYPES[field.type]
    if message.full_name == TIMESTAMP:
        return Scalar("timestamp")
    if message.full_name in WRAPPERS:
        return _TYPES[message.fields[0].type]
    return _struct(message, where, parents)
