"""From bytes to the keys and values that a consumer gives out."""

import json
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, runtime_checkable

from penstock.client.errors import ConfigError

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


@runtime_checkable
class Deserializer(Protocol):
    """Turns the bytes of a key or a value into what the program works with."""

    def deserialize(self, topic: str, headers: Headers, data: bytes) -> Any:
        """`data` is never None: a null key or value stays None. Raise for what cannot be read."""
        ...


class StringDeserializer:
    """Text."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self._encoding = encoding

    def deserialize(self, topic: str, headers: Headers, data: bytes) -> str:
        return data.decode(self._encoding)


class JsonDeserializer:
    """Whatever JSON text says."""

    def deserialize(self, topic: str, headers: Headers, data: bytes) -> Any:
        return json.loads(data)


class IntegerDeserializer:
    """A big-endian integer of `size` bytes: 4 as Kafka's Integer, 8 as its Long."""

    def __init__(self, size: int = 4) -> None:
        self._size = size

    def deserialize(self, topic: str, headers: Headers, data: bytes) -> int:
        if len(data) != self._size:
            raise ValueError(f"an integer of {self._size} bytes is expected, not {len(data)}")
        return int.from_bytes(data, "big", signed=True)


Deserialize: TypeAlias = Callable[[str, Headers, bytes], Any]


def deserialize_with(given: object, setting: str) -> Deserialize | None:
    """The function behind a setting: a Deserializer, its class, or a function of the bytes."""
    if given is None:
        return None
    if isinstance(given, type) and hasattr(given, "deserialize"):
        given = given()
    if isinstance(given, Deserializer):
        return given.deserialize
    if callable(given):
        function: Callable[[bytes], Any] = given
        return lambda _topic, _headers, data: function(data)
    raise ConfigError(
        f"{setting}={given!r}: it is a function from bytes, or an object with "
        "deserialize(topic, headers, data)"
    )
