"""Declarations read back: the fields of a message class, as the compilers want them."""

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
    """A field of a struct, with everything its declaration says."""

    name: str
    type: WireType
    versions: VersionRange
    nullable: VersionRange
    tag: int | None
    ignorable: bool
    flexible: bool
    default: object
    """The default value; a fresh one comes from the class, this one is only to compare with."""


@cache
def fields_of(cls: type[Struct]) -> tuple[Field, ...]:
    """The fields of `cls` in the order of the wire.

    Raises TypeError when the declaration is not one that a codec can be made of.
    """
    hints = get_type_hints(cls, include_extras=True)
    return tuple(_field(cls, info, hints[info.name]) for info in msgspec.structs.fields(cls))


def is_fixed(wire_type: WireType) -> bool:
    """Whether every value of the type has the same number of bytes."""
    return isinstance(wire_type, Scalar) and wire_type not in _VARIABLE


def size_of_fixed(scalar: Scalar) -> int:
    return struct.calcsize(">" + scalar.value)


def smallest_size(wire_type: WireType, version: int, flexible: bool) -> int:
    """The fewest bytes a value can take: what a count is multiplied with before it is believed."""
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
    says, hint = _split(hint)
    optional = False
    if get_origin(hint) in (Union, UnionType) and NoneType in get_args(hint):
        others = [arg for arg in get_args(hint) if arg is not NoneType]
        if len(others) != 1:
            raise TypeError(f"{where}: a field has one type, or that type and None")
        optional, hint = True, others[0]
    wire_type = _wire_type(where, hint)
    default = _default(where, info)
    nullable = says.nullable if says.nullable is not None else says.versions
    if default is None and not optional:
        raise TypeError(f"{where}: the default is null, the type says it never is")
    return Field(
        info.name,
        wire_type,
        says.versions,
        nullable if optional else NO_VERSIONS,
        says.tag,
        says.ignorable,
        says.flexible,
        default,
    )


def _split(hint: object) -> tuple[Wire, object]:
    """Take the `wire()` off an annotation; what is left may still be Annotated with a scalar."""
    if get_origin(hint) is not Annotated:
        return EVERY_VERSION, hint
    base, *marks = get_args(hint)
    says = next((mark for mark in marks if isinstance(mark, Wire)), EVERY_VERSION)
    scalar = next((mark for mark in marks if isinstance(mark, Scalar)), None)
    return says, base if scalar is None else Annotated[base, scalar]


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
    raise TypeError(f"{where}: every field has a default")
