"""Ranges of message versions in Kafka's notation: `0+`, `2-5`, `7`, `none`."""

from dataclasses import dataclass
from typing import Final

_LATEST: Final = 0x7FFF


@dataclass(frozen=True, slots=True)
class VersionRange:
    """The versions `low` to `high`, inclusive; empty if `low` is larger than `high`."""

    low: int
    high: int

    @classmethod
    def parse(cls, text: str) -> "VersionRange":
        """Parses `0+`, `2-5`, `7` or `none`."""
        if text == "none":
            return NO_VERSIONS
        low, dash, high = text.partition("-")
        if dash:
            return cls(int(low), int(high))
        if text.endswith("+"):
            return cls(int(text[:-1]), _LATEST)
        return cls(int(text), int(text))

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high

    def __str__(self) -> str:
        if self.low > self.high:
            return "none"
        if self.high == _LATEST:
            return f"{self.low}+"
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"


NO_VERSIONS: Final = VersionRange(0, -1)
ALL_VERSIONS: Final = VersionRange(0, _LATEST)
