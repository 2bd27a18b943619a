"""Finds out why a message could not be encoded.

Encoders do not check values. After a failure, this module checks the message field by field and
names the first value that its declaration does not allow.
"""

import struct
from uuid import UUID

from penstock.core.errors import ProtocolError
from penstock.protocol.fields import Message, Scalar, Struct
from penstock.protocol.primitives import MAX_STRING
from penstock.protocol.schema import Array, Field, WireType, fields_of

_MAX_LENGTH = 60
_EXPECTED: dict[Scalar, tuple[type, ...]] = {
    Scalar.UUID: (UUID,),
    Scalar.STRING: (str,),
    Scalar.BYTES: (bytes, bytearray, memoryview),
    Scalar.FLOAT64: (float, int),
}


def explain(message: Message, version: int, error: Exception) -> ProtocolError:
    """Returns the exception to raise if encoding `message` failed with `error`."""
    title = f"{type(message).__name__} v{version}"
    problem = _struct_problem(message, version)
    return ProtocolError(f"{title} cannot be encoded: {problem or error}")


def shortened(value: object) -> str:
    """Returns the repr of a value for an error message, cut if it is long."""
    text = repr(value)
    return text if len(text) <= _MAX_LENGTH else text[: _MAX_LENGTH - 1] + "…"


def _struct_problem(value: Struct, version: int) -> str:
    """Returns the path to the first invalid value and its problem; empty if there is none."""
    for field in fields_of(type(value)):
        if version in field.versions:
            problem = _field_problem(field, getattr(value, field.name), version)
            if problem:
                return f"{field.name}{problem}"
    return ""


def _field_problem(field: Field, value: object, version: int) -> str:
    if value is None:
        return "" if version in field.nullable else " is None, which this version does not allow"
    return _value_problem(field.type, value, version)


def _value_problem(wire_type: WireType, value: object, version: int) -> str:
    if isinstance(wire_type, Array):
        if not isinstance(value, (list, tuple)):
            return f" is {shortened(value)}, not a list"
        for index, element in enumerate(value):
            problem = _value_problem(wire_type.element, element, version)
            if problem:
                return f"[{index}]{problem}"
        return ""
    if isinstance(wire_type, Scalar):
        return _scalar_problem(wire_type, value)
    if not isinstance(value, wire_type):
        return f" is {shortened(value)}, not {wire_type.__name__}"
    problem = _struct_problem(value, version)
    return f".{problem}" if problem else ""


def _scalar_problem(scalar: Scalar, value: object) -> str:
    if scalar is Scalar.RECORDS:
        if isinstance(value, (bytes, bytearray, memoryview)) or hasattr(value, "size"):
            return ""
        return f" is {shortened(value)}, neither bytes nor an object with a size"
    expected = _EXPECTED.get(scalar, (int,))
    if not isinstance(value, expected):
        return f" is {shortened(value)}, not {' or '.join(kind.__name__ for kind in expected)}"
    if isinstance(value, str):
        return _string_problem(value)
    if scalar in _EXPECTED:
        return ""
    try:
        struct.pack(">" + scalar.value, value)
    except struct.error:
        return f" is {shortened(value)}, which does not fit in {scalar.name.lower()}"
    return ""


def _string_problem(value: str) -> str:
    try:
        encoded = value.encode()
    except UnicodeEncodeError:
        return f" is {shortened(value)}, which has no UTF-8 form"
    if len(encoded) > MAX_STRING:
        return f" is {len(encoded)} bytes long, but a string has at most {MAX_STRING}"
    return ""
