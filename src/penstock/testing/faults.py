"""What a network does to the clients of a broker, for as long as a test wants it."""

from collections.abc import Callable
from typing import Any, NamedTuple


class Faults(NamedTuple):
    """All that is wrong at the moment."""

    refused: bool = False
    """Nobody can connect, and nobody is connected."""
    latency_ms: float = 0.0
    """Added to each round trip, one half in each direction."""
    bytes_per_second: float = 0.0
    """In each direction, for all connections together; 0: as many as there are."""
    losing: bool = False
    """Answers do not arrive."""
    lost_apis: tuple[int, ...] = ()
    """Only to requests of these kinds; none: of all kinds."""
    lost_times: int = -1
    """So many answers to each kind, then no more; -1: all."""
    lost_silently: bool = False
    """The connection stays open and says nothing more, instead of breaking at once."""

    @property
    def is_slow(self) -> bool:
        return self.latency_ms > 0 or self.bytes_per_second > 0

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Faults":
        return cls(**{**values, "lost_apis": tuple(values["lost_apis"])})


class LostReplies:
    """How many replies were lost, up to now or, afterwards, in all."""

    def __init__(self, ask: Callable[[], int]) -> None:
        self._ask = ask
        self._final: int | None = None

    @property
    def count(self) -> int:
        return self._ask() if self._final is None else self._final

    def settle(self) -> None:
        """The fault is over: the number stays what it is."""
        self._final = self.count
