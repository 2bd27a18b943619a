"""From keys and values to bytes: Kafka's serializers, and what a user brings."""

from collections.abc import Callable
from struct import Struct
from struct import error as struct_error
from typing import Protocol, cast, runtime_checkable
from uuid import UUID

from penstock.client.errors import ConfigError, SerializationError


@runtime_checkable
class Serializer(Protocol):
    """Makes the bytes of a key or value; None stays null."""

    def serialize(self, topic: str, data: object) -> bytes | None: ...


class BytesSerializer:
    """bytes, bytearray and memoryview as they are."""

    def serialize(self, topic: str, data: object) -> bytes | None:
        if data is None or isinstance(data, bytes):
            return data
        if isinstance(data, bytearray | memoryview):
            return bytes(data)
        raise SerializationError(f"bytes are needed, not {type(data).__name__}")


class StringSerializer:
    """str in an encoding, UTF-8 unless told otherwise."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self._encoding = encoding

    def serialize(self, topic: str, data: object) -> bytes | None:
        if data is None:
            return None
        if not isinstance(data, str):
            raise SerializationError(f"a str is needed, not {type(data).__name__}")
        return data.encode(self._encoding)


class _NumberSerializer:
    """A number of fixed size, the high byte first."""

    _layout: Struct
    _kinds: tuple[type, ...] = (int,)

    def serialize(self, topic: str, data: object) -> bytes | None:
        if data is None:
            return None
        if not isinstance(data, self._kinds) or isinstance(data, bool):
            wanted = " or ".join(kind.__name__ for kind in self._kinds)
            raise SerializationError(f"{wanted} is needed, not {type(data).__name__}")
        try:
            return self._layout.pack(data)
        except (struct_error, OverflowError):
            raise SerializationError(
                f"{data} does not fit into {self._layout.size} bytes"
            ) from None


class ShortSerializer(_NumberSerializer):
    """int in 2 bytes."""

    _layout = Struct(">h")


class IntegerSerializer(_NumberSerializer):
    """int in 4 bytes."""

    _layout = Struct(">i")


class LongSerializer(_NumberSerializer):
    """int in 8 bytes."""

    _layout = Struct(">q")


class FloatSerializer(_NumberSerializer):
    """float in 4 bytes."""

    _layout = Struct(">f")
    _kinds = (float, int)


class DoubleSerializer(_NumberSerializer):
    """float in 8 bytes."""

    _layout = Struct(">d")
    _kinds = (float, int)


class BooleanSerializer:
    """bool as one byte, 1 or 0."""

    def serialize(self, topic: str, data: object) -> bytes | None:
        if data is None:
            return None
        if not isinstance(data, bool):
            raise SerializationError(f"a bool is needed, not {type(data).__name__}")
        return b"\x01" if data else b"\x00"


class UUIDSerializer:
    """UUID as its text with dashes."""

    def serialize(self, topic: str, data: object) -> bytes | None:
        if data is None:
            return None
        if not isinstance(data, UUID):
            raise SerializationError(f"a UUID is needed, not {type(data).__name__}")
        return str(data).encode()


class VoidSerializer:
    """Only null."""

    def serialize(self, topic: str, data: object) -> bytes | None:
        if data is not None:
            raise SerializationError(f"None is needed, not {type(data).__name__}")
        return None


class _Guarded:
    """A serializer whose failures say what they were about, and whose results are bytes."""

    def __init__(self, serialize: Callable[[str, object], object], name: str, what: str) -> None:
        self._serialize = serialize
        self._name = name
        self._what = what

    def serialize(self, topic: str, data: object) -> bytes | None:
        try:
            made = self._serialize(topic, data)
        except Exception as error:
            detail = str(error) or type(error).__name__
            raise SerializationError(
                f"the {self._what} for topic {topic!r} (a {type(data).__name__}) cannot be "
                f"serialized by {self._name}: {detail}"
            ) from error
        if made is None or type(made) is bytes:
            return made
        if isinstance(made, bytes | bytearray | memoryview):
            return bytes(made)
        raise SerializationError(
            f"the {self._what}_serializer {self._name} made a {type(made).__name__}: it must "
            "return bytes or None"
        )


def serializer_of(given: object, what: str) -> Serializer | None:
    """The serializer that a setting means; None where bytes are to be passed as they are.

    `given` is a serializer (the object or its class) or a function from the object to bytes;
    `what` is "key" or "value". What it raises becomes a `SerializationError`.
    """
    if given is None:
        return None
    if isinstance(given, type) and hasattr(given, "serialize"):
        given = given()
    serialize = getattr(given, "serialize", None)
    if serialize is not None:
        return _Guarded(serialize, type(given).__name__, what)
    if callable(given):
        function = cast("Callable[[object], object]", given)
        name = getattr(given, "__name__", type(given).__name__)
        return _Guarded(lambda topic, data: function(data), name, what)
    raise ConfigError(
        f"{what}_serializer is a {type(given).__name__}: give a function from the {what} to bytes, "
        "or an object with serialize(topic, data), such as StringSerializer()"
    )


def check_bytes(data: object, what: str) -> bytes | None:
    """What is sent without a serializer: bytes-like or None; `what` is "key" or "value"."""
    if data is None or type(data) is bytes:
        return data
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise SerializationError(
        f"the {what} is a {type(data).__name__}, not bytes: "
        f"set {what}_serializer, such as {what}_serializer=StringSerializer() for str, or "
        "encode it before"
    )
