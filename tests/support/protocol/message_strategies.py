"""Hypothesis strategies for messages, derived from their declarations."""

from functools import cache

from hypothesis import strategies as st

from penstock.protocol.fields import Message, Scalar, Struct
from penstock.protocol.schema import Array, Field, WireType, fields_of
from tests.support.protocol.message_samples import INTEGERS

_TEXT = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ["x" * 126, "x" * 127, "é" * 64, "z" * 0x7FFF]
)
_BYTES = st.binary(max_size=24) | st.sampled_from([bytes(126), bytes(127), bytes(20_000)])
_OTHERS: dict[Scalar, st.SearchStrategy[object]] = {
    Scalar.BOOL: st.booleans(),
    Scalar.FLOAT64: st.floats(allow_nan=False),
    Scalar.UUID: st.uuids(allow_nil=True),
    Scalar.STRING: _TEXT,
    Scalar.BYTES: _BYTES,
    Scalar.RECORDS: _BYTES,
}


def messages_of(cls: type[Message], version: int) -> st.SearchStrategy[Message]:
    """Generates messages of a version, with nulls, extremes and defaults."""
    return _structs(cls, version).map(lambda message: _as(cls, message))


def _as(cls: type[Message], message: Struct) -> Message:
    assert isinstance(message, cls)
    return message


@cache
def _structs(cls: type[Struct], version: int) -> st.SearchStrategy[Struct]:
    return st.builds(
        cls,
        **{
            field.name: _values_of_field(field, version)
            for field in fields_of(cls)
            if version in field.versions
        },
    )


def _values_of_field(field: Field, version: int) -> st.SearchStrategy[object]:
    values = _values(field.type, version)
    if field.tag is not None:
        values = st.just(field.default) | values
    if version in field.nullable:
        values = st.none() | values
    return values


@cache
def _values(wire_type: WireType, version: int) -> st.SearchStrategy[object]:
    if isinstance(wire_type, Array):
        return st.lists(_values(wire_type.element, version), max_size=3)
    if not isinstance(wire_type, Scalar):
        return _structs(wire_type, version)
    if wire_type in INTEGERS:
        low, high = INTEGERS[wire_type]
        return st.integers(low, high)
    return _OTHERS[wire_type]
