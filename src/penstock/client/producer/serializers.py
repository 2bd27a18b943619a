"""Serializers of keys and values: Kafka's, and those of the user."""

from collections.abc import Callable
from struct import Struct
from struct import error as struct_error
from typing import Protocol, cast, runtime_checkable
from uuid import UUID

from penstock.client.errors import ConfigError, SerializationError


@runtime_checkable
class Serializer(Protocol):
    """Serializes a key or value. None stays null."""

    def serialize(self, topic: str, data: object) -> bytes | None: ...


class BytesSerializer:
    """Passes bytes, bytearray and memoryview on unchanged."""

    def serialize(self, topic: str, data: object) -> bytes | None:
        if data is None or isinstance(data, bytes):
            return data
        if isinstance(data, bytearray | memoryview):
            return bytes(data)
        raise SerializationError(f"bytes are needed, not {type(data).__name__}")


class StringSerializer:
    """Serializes str in an encoding, UTF-8 by default."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self._encoding = encoding

    def serialize(self, topic: str, data: object) -> bytes | None:
        if data is None:
            return None
        if not isinstance(data, str):
            raise SerializationError(f"a str is needed, not {type(data).__name__}")
        return data.encode(self._encoding)


class _NumberSerializer:
    """Serializes a number in a fixed size, big-endian."""

    _layout: Struct
    _types: tuple[type, ...] = (int,)

    def serialize(self, topic: str, data: object) -> bytes | None:
        if data is None:
            return None
        if not isinstance(data, self._types) or isinstance(data, bool):
            expected = " or ".join(expected_type.__name__ for expected_type in self._types)
            raise SerializationError(f"{expected} is needed, not {type(data).__name__}")
        try:
            return self._layout.pack(data)
        except (struct_error, OverflowError):
            raise SerializationError(
                f"{data} does not fit into {self._layout.size} bytes"
            ) from None


class ShortSerializer(_NumberSerializer):
    """Serializes int in 2 bytes."""

    _layout = Struct(">h")


class IntegerSerializer(_NumberSerializer):
    """Serializes int in 4 bytes."""

    _layout = Struct(">i")


class LongSerializer(_NumberSerializer):
    """Serializes int in 8 bytes."""

    _layout = Struct(">q")


class FloatSerializer(_NumberSerializer):
    """Serializes float in 4 bytes."""

    _layout = Struct(">f")
    _types = (float, int)


class DoubleSerializer(_NumberSerializer):
    """Serializes float in 8 bytes."""

    _layout = Struct(">d")
    _types = (float, int)


class BooleanSerializer:
    """Serializes bool as one byte, 1 or 0."""

    def serialize(self, topic: str, data: object) -> bytes | None:
        if data is None:
            return None
        if not isinstance(data, bool):
            raise SerializationError(f"a bool is needed, not {type(data).__name__}")
        return b"\x01" if data else b"\x00"


class UUIDSerializer:
    """Serializes UUID as its text with dashes."""

    def serialize(self, topic: str, data: object) -> bytes | None:
        if data is None:
            return None
        if not isinstance(data, UUID):
            raise SerializationError(f"a UUID is needed, not {type(data).__name__}")
        return str(data).encode()


class VoidSerializer:
    """Accepts only None."""

    def serialize(self, topic: str, data: object) -> bytes | None:
        if data is not None:
            raise SerializationError(f"None is needed, not {type(data).__name__}")
        return None


class _CheckedSerializer:
    """A serializer of the user whose exceptions become SerializationErrors, and whose results are
    checked to be bytes."""

    def __init__(self, serialize: Callable[[str, object], object], name: str, what: str) -> None:
        self._serialize = serialize
        self._name = name
        self._what = what

    def serialize(self, topic: str, data: object) -> bytes | None:
        try:
            serialized = self._serialize(topic, data)
        except Exception as error:
            detail = str(error) or type(error).__name__
            raise SerializationError(
                f"the {self._what} for topic {topic!r} (a {type(data).__name__}) cannot be "
                f"serialized by {self._name}: {detail}"
            ) from error
        if serialized is None or type(serialized) is bytes:
            return serialized
        if isinstance(serialized, bytes | bytearray | memoryview):
            return bytes(serialized)
        raise SerializationError(
            f"the {self._what}_serializer {self._name} returned a {type(serialized).__name__}: it "
            "must return bytes or None"
        )


def serializer_of(setting: object, what: str) -> Serializer | None:
    """Returns the serializer of a setting; None if bytes are passed on unchanged.

    The setting is a serializer (the object or its class) or a function that returns bytes; `what`
    is "key" or "value". Exceptions of the serializer become SerializationErrors.
    """
    if setting is None:
        return None
    if isinstance(setting, type) and hasattr(setting, "serialize"):
        setting = setting()
    serialize = getattr(setting, "serialize", None)
    if serialize is not None:
        return _CheckedSerializer(serialize, type(setting).__name__, what)
    if callable(setting):
        function = cast("Callable[[object], object]", setting)
        name = getattr(setting, "__name__", type(setting).__name__)
        return _CheckedSerializer(lambda topic, data: function(data), name, what)
    raise ConfigError(
        f"{what}_serializer is a {type(setting).__name__}",
        remedy=f"use a function from the {what} to bytes, or an object with serialize(topic, "
        "data), such as StringSerializer()",
    )


def check_bytes(data: object, what: str) -> bytes | None:
    """Returns the bytes of a key or value that is sent without a serializer.

    Raises SerializationError unless it is bytes-like or None; `what` is "key" or "value".
    """
    if data is None or type(data) is bytes:
        return data
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise SerializationError(
        f"the {what} is a {type(data).__name__}, not bytes",
        remedy=f"set {what}_serializer, such as {what}_serializer=StringSerializer() for str, or "
        "encode it first",
    )
