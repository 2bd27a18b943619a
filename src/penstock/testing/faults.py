"""The faults of the network between a broker and its clients, as data."""

from collections.abc import Callable
from typing import Any, NamedTuple


class Faults(NamedTuple):
    """All faults that are active."""

    refuses: bool = False
    """Connections are reset, and new ones are refused."""
    latency_ms: float = 0.0
    """Added to each round trip, one half in each direction."""
    bytes_per_second: float = 0.0
    """The throughput in each direction, for all connections together; 0: unlimited."""
    loses_responses: bool = False
    lost_apis: tuple[int, ...] = ()
    """The API keys whose responses are lost; without any, all."""
    max_lost: int = -1
    """How many responses of each API are lost; -1: all."""
    loses_silently: bool = False
    """Whether the connection stays open and silent, instead of being reset."""

    @property
    def is_slow(self) -> bool:
        return self.latency_ms > 0 or self.bytes_per_second > 0

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Faults":
        return cls(**{**values, "lost_apis": tuple(values["lost_apis"])})


class LostReplies:
    """The number of lost responses: up to now, or in total once the fault is over."""

    def __init__(self, read_count: Callable[[], int]) -> None:
        self._read_count = read_count
        self._final_count: int | None = None

    @property
    def count(self) -> int:
        return self._read_count() if self._final_count is None else self._final_count

    def freeze(self) -> None:
        """Fixes the count, at the end of the fault."""
        self._final_count = self.count
