"""A decoded record."""

from typing import NamedTuple


class Record(NamedTuple):
    """A record with its absolute offset and timestamp."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
