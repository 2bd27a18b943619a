"""Every message class, and sample messages built from the declarations."""

import math
import pkgutil
from collections.abc import Callable, Iterator
from importlib import import_module
from random import Random
from uuid import UUID

from penstock.protocol import messages, stored
from penstock.protocol.fields import Message, Scalar, Struct
from penstock.protocol.schema import Array, Field, WireType, fields_of

INTEGERS = {
    Scalar.INT8: (-(2**7), 2**7 - 1),
    Scalar.INT16: (-(2**15), 2**15 - 1),
    Scalar.UINT16: (0, 2**16 - 1),
    Scalar.INT32: (-(2**31), 2**31 - 1),
    Scalar.UINT32: (0, 2**32 - 1),
    Scalar.INT64: (-(2**63), 2**63 - 1),
}
TEXTS = ("", "a", "topic-1", "größe", "主題", "\U0001f40d", "\0", "x" * 126, "x" * 127, "y" * 300)


def message_classes() -> list[type[Message]]:
    """Returns all message classes, in the order of files and of classes in a file."""
    result: list[type[Message]] = []
    for package in (messages, stored):
        for module_info in pkgutil.iter_modules(package.__path__):
            module = import_module(f"{package.__name__}.{module_info.name}")
            for value in vars(module).values():
                if isinstance(value, type) and issubclass(value, Message) and value is not Message:
                    result.append(value)
    return result


def versions_of(cls: type[Message]) -> range:
    return range(cls.INFO.versions.low, cls.INFO.versions.high + 1)


def message_versions() -> Iterator[tuple[type[Message], int]]:
    for cls in message_classes():
        for version in versions_of(cls):
            yield cls, version


def structs_in(cls: type[Struct]) -> Iterator[type[Struct]]:
    """Yields `cls` and every struct in it, as often as it is used."""
    yield cls
    for field in fields_of(cls):
        part = field.type.element if isinstance(field.type, Array) else field.type
        if not isinstance(part, Scalar):
            yield from structs_in(part)


def random_message(cls: type[Message], version: int, random: Random) -> Message:
    """Returns a random message of a version, with empty, null and extreme values."""
    message = _struct(cls, version, random)
    assert isinstance(message, cls)
    return message


def full_message(cls: type[Message], version: int, elements: int = 1) -> Message:
    """Returns a message with every field of a version set and `elements` elements per array."""
    message = _full_struct(cls, version, elements)
    assert isinstance(message, cls)
    return message


def _struct(cls: type[Struct], version: int, random: Random) -> Struct:
    return _build(cls, version, lambda field: _field(field, version, random))


def _build(cls: type[Struct], version: int, value: Callable[[Field], object]) -> Struct:
    return cls(
        **{field.name: value(field) for field in fields_of(cls) if version in field.versions}
    )


def _field(field: Field, version: int, random: Random) -> object:
    if version in field.nullable and random.random() < 0.25:
        return None
    if field.tag is not None and random.random() < 0.4:
        return field.default
    return _value(field.type, version, random)


def _value(wire_type: WireType, version: int, random: Random) -> object:
    if isinstance(wire_type, Array):
        count = random.choice((0, 1, 1, 2, 3))
        return [_value(wire_type.element, version, random) for _ in range(count)]
    if not isinstance(wire_type, Scalar):
        return _struct(wire_type, version, random)
    if wire_type in INTEGERS:
        low, high = INTEGERS[wire_type]
        return random.choice((low, high, 0, 1, random.randint(low, high)))
    if wire_type is Scalar.BOOL:
        return random.random() < 0.5
    if wire_type is Scalar.FLOAT64:
        return random.choice((0.0, -1.5, math.pi, math.inf, 5e-324))
    if wire_type is Scalar.UUID:
        return UUID(int=random.choice((0, 1, 2**128 - 1, random.getrandbits(128))))
    if wire_type is Scalar.STRING:
        return random.choice(TEXTS)
    return random.randbytes(random.choice((0, 1, 20, 127, 200)))


def _full_struct(cls: type[Struct], version: int, elements: int) -> Struct:
    return _build(cls, version, lambda field: _full_value(field.type, version, elements))


def _full_value(wire_type: WireType, version: int, elements: int) -> object:
    if isinstance(wire_type, Array):
        return [_full_value(wire_type.element, version, elements) for _ in range(elements)]
    if not isinstance(wire_type, Scalar):
        return _full_struct(wire_type, version, elements)
    if wire_type in INTEGERS:
        return INTEGERS[wire_type][1] - 1
    samples = {
        Scalar.BOOL: True,
        Scalar.FLOAT64: 1.5,
        Scalar.UUID: UUID(int=7),
        Scalar.STRING: "näme",
        Scalar.BYTES: b"some",
        Scalar.RECORDS: b"batches",
    }
    return samples[wire_type]
