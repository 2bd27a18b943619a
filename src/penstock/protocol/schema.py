"""Reads the declarations of message classes, for the codec compilers."""

import struct
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec

from penstock.protocol.fields import EVERY_VERSION, Message, Scalar, Struct, Wire
from penstock.protocol.versions import NO_VERSIONS, VersionRange

_PLAIN = {
    bool: Scalar.BOOL,
    float: Scalar.FLOAT64,
    str: Scalar.STRING,
    bytes: Scalar.BYTES,
    UUID: Scalar.UUID,
}
_VARIABLE = {Scalar.STRING, Scalar.BYTES, Scalar.RECORDS}


@dataclass(frozen=True, slots=True)
class Array:
    """A list; `element` is a scalar or the class of a struct."""

    element: "Scalar | type[Struct]"


WireType = Scalar | Array | type[Struct]


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a struct, as declared."""

    name: str
    type: WireType
    versions: VersionRange
    nullable: VersionRange
    tag: int | None
    ignorable: bool
    flexible: bool
    default: object
    """The default value, for comparisons only; the class creates fresh ones."""


@cache
def fields_of(cls: type[Struct]) -> tuple[Field, ...]:
    """Returns the fields of `cls` in wire order.

    Raises TypeError if the declaration has no wire format.
    """
    hints = get_type_hints(cls, include_extras=True)
    return tuple(_field(cls, info, hints[info.name]) for info in msgspec.structs.fields(cls))


def is_fixed(wire_type: WireType) -> bool:
    """Returns whether all values of the type have the same size."""
    return isinstance(wire_type, Scalar) and wire_type not in _VARIABLE


def size_of_fixed(scalar: Scalar) -> int:
    return struct.calcsize(">" + scalar.value)


def smallest_size(wire_type: WireType, version: int, flexible: bool) -> int:
    """Returns the smallest size of a value, which bounds how many fit into a message."""
    if isinstance(wire_type, Array):
        return 1 if flexible else 4
    if isinstance(wire_type, Scalar):
        if is_fixed(wire_type):
            return size_of_fixed(wire_type)
        if flexible:
            return 1
        return 2 if wire_type is Scalar.STRING else 4
    size = 1 if flexible else 0
    for field in fields_of(wire_type):
        if version not in field.versions or field.tag is not None:
            continue
        if version in field.nullable and isinstance(field.type, type):
            size += 1
        else:
            size += smallest_size(field.type, version, flexible and field.flexible)
    return size


def _field(cls: type[Struct], info: msgspec.structs.FieldInfo, hint: object) -> Field:
    where = f"{cls.__name__}.{info.name}"
    wire, hint = _split(hint)
    optional = False
    if get_origin(hint) in (Union, UnionType) and NoneType in get_args(hint):
        types = [arg for arg in get_args(hint) if arg is not NoneType]
        if len(types) != 1:
            raise TypeError(f"{where}: a field must have one type, or one type and None")
        optional, hint = True, types[0]
    wire_type = _wire_type(where, hint)
    default = _default(where, info)
    nullable = wire.nullable if wire.nullable is not None else wire.versions
    if default is None and not optional:
        raise TypeError(f"{where}: the default is None, but the type does not allow None")
    return Field(
        info.name,
        wire_type,
        wire.versions,
        nullable if optional else NO_VERSIONS,
        wire.tag,
        wire.ignorable,
        wire.flexible,
        default,
    )


def _split(hint: object) -> tuple[Wire, object]:
    """Splits an annotation into its `wire()` and the type, which may be Annotated with a scalar."""
    if get_origin(hint) is not Annotated:
        return EVERY_VERSION, hint
    base, *marks = get_args(hint)
    wire = next((mark for mark in marks if isinstance(mark, Wire)), EVERY_VERSION)
    scalar = next((mark for mark in marks if isinstance(mark, Scalar)), None)
    return wire, base if scalar is None else Annotated[base, scalar]


def _wire_type(where: str, hint: object) -> WireType:
    if get_origin(hint) is list:
        element = _wire_type(where, get_args(hint)[0])
        if isinstance(element, Array):
            raise TypeError(f"{where}: an array of arrays needs a struct in between")
        return Array(element)
    if get_origin(hint) is Annotated:
        for mark in get_args(hint)[1:]:
            if isinstance(mark, Scalar):
                return mark
    if isinstance(hint, type):
        if hint in _PLAIN:
            return _PLAIN[hint]
        if issubclass(hint, Struct) and not issubclass(hint, Message):
            return hint
    raise TypeError(f"{where}: no wire type for {hint!r}")


def _default(where: str, info: msgspec.structs.FieldInfo) -> object:
    if info.default is not msgspec.NODEFAULT:
        return info.default
    if info.default_factory is not msgspec.NODEFAULT:
        return info.default_factory()
    raise TypeError(f"{where}: every field needs a default")
