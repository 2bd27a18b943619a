"""Says what is wrong with a message that would not encode.

Encoders do not look at values: this walks the message afterwards, field by field, and names the
first one that its declaration does not allow.
"""

import struct
from uuid import UUID

from penstock.core.errors import ProtocolError
from penstock.protocol.fields import Message, Scalar, Struct
from penstock.protocol.primitives import MAX_STRING
from penstock.protocol.schema import Array, Field, WireType, fields_of

_SHOWN = 60
_EXPECTED: dict[Scalar, tuple[type, ...]] = {
    Scalar.UUID: (UUID,),
    Scalar.STRING: (str,),
    Scalar.BYTES: (bytes, bytearray, memoryview),
    Scalar.FLOAT64: (float, int),
}


def explain(message: Message, version: int, error: Exception) -> ProtocolError:
    """The error to raise when encoding `message` ended in `error`."""
    title = f"{type(message).__name__} v{version}"
    found = _wrong_struct(message, version)
    return ProtocolError(f"{title} cannot be encoded: {found or error}")


def shortened(value: object) -> str:
    """A value as it is shown in an error: not in its full length."""
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _wrong_struct(value: Struct, version: int) -> str:
    """What is wrong inside a struct, led by the path to it; empty when nothing is."""
    for field in fields_of(type(value)):
        if version in field.versions:
            wrong = _wrong_field(field, getattr(value, field.name), version)
            if wrong:
                return f"{field.name}{wrong}"
    return ""


def _wrong_field(field: Field, value: object, version: int) -> str:
    if value is None:
        return "" if version in field.nullable else " is None, which this version does not allow"
    return _wrong_value(field.type, value, version)


def _wrong_value(wire_type: WireType, value: object, version: int) -> str:
    if isinstance(wire_type, Array):
        if not isinstance(value, (list, tuple)):
            return f" is {shortened(value)}, not a list"
        for index, item in enumerate(value):
            wrong = _wrong_value(wire_type.element, item, version)
            if wrong:
                return f"[{index}]{wrong}"
        return ""
    if isinstance(wire_type, Scalar):
        return _wrong_scalar(wire_type, value)
    if not isinstance(value, wire_type):
        return f" is {shortened(value)}, not {wire_type.__name__}"
    wrong = _wrong_struct(value, version)
    return f".{wrong}" if wrong else ""


def _wrong_scalar(scalar: Scalar, value: object) -> str:
    if scalar is Scalar.RECORDS:
        if isinstance(value, (bytes, bytearray, memoryview)) or hasattr(value, "size"):
            return ""
        return f" is {shortened(value)}, neither bytes nor an object with a size"
    expected = _EXPECTED.get(scalar, (int,))
    if not isinstance(value, expected):
        return f" is {shortened(value)}, not {' or '.join(kind.__name__ for kind in expected)}"
    if isinstance(value, str):
        return _wrong_string(value)
    if scalar in _EXPECTED:
        return ""
    try:
        struct.pack(">" + scalar.value, value)
    except struct.error:
        return f" is {shortened(value)}, which does not fit in {scalar.name.lower()}"
    return ""


def _wrong_string(value: str) -> str:
    try:
        encoded = value.encode()
    except UnicodeEncodeError:
        return f" is {shortened(value)}, which has no UTF-8 form"
    if len(encoded) > MAX_STRING:
        return f" is {len(encoded)} bytes long, a string has at most {MAX_STRING}"
    return ""
