"""The cluster features that this broker knows, with the levels it can run at."""

from collections.abc import Mapping
from typing import Final

SUPPORTED_FEATURES: Final[Mapping[str, tuple[int, int]]] = {
    "group.version": (0, 0),
    "transaction.version": (0, 0),
}
"""Level 0 is a feature that is off: classic groups only, no transactions of version 2."""
