"""Deserializers: from bytes to the keys and values of a consumer's records."""

import json
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, runtime_checkable

from penstock.client.errors import ConfigError

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


@runtime_checkable
class Deserializer(Protocol):
    """Converts the bytes of a key or a value."""

    def deserialize(self, topic: str, headers: Headers, data: bytes) -> Any:
        """Returns the value of `data`, which is never None. Raises if it is malformed."""
        ...


class StringDeserializer:
    """Converts to text."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self._encoding = encoding

    def deserialize(self, topic: str, headers: Headers, data: bytes) -> str:
        return data.decode(self._encoding)


class JsonDeserializer:
    """Parses JSON."""

    def deserialize(self, topic: str, headers: Headers, data: bytes) -> Any:
        return json.loads(data)


class IntegerDeserializer:
    """Converts a big-endian integer of `size` bytes: 4 for Kafka's Integer, 8 for its Long."""

    def __init__(self, size: int = 4) -> None:
        self._size = size

    def deserialize(self, topic: str, headers: Headers, data: bytes) -> int:
        if len(data) != self._size:
            raise ValueError(f"an integer must have {self._size} bytes, not {len(data)}")
        return int.from_bytes(data, "big", signed=True)


Deserialize: TypeAlias = Callable[[str, Headers, bytes], Any]


def deserialize_with(deserializer: object, setting: str) -> Deserialize | None:
    """Returns the function of a setting: a Deserializer, its class, or a function of the bytes."""
    if deserializer is None:
        return None
    if isinstance(deserializer, type) and hasattr(deserializer, "deserialize"):
        deserializer = deserializer()
    if isinstance(deserializer, Deserializer):
        return deserializer.deserialize
    if callable(deserializer):
        function: Callable[[bytes], Any] = deserializer
        return lambda _topic, _headers, data: function(data)
    raise ConfigError(
        f"{setting}={deserializer!r} is neither a function of bytes nor an object with "
        "deserialize(topic, headers, data)"
    )
