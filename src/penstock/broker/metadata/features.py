"""The cluster features that this broker knows, with the levels it can run at."""

from collections.abc import Mapping
from typing import Final

GROUP_VERSION: Final = "group.version"
TRANSACTION_VERSION: Final = "transaction.version"

SUPPORTED_FEATURES: Final[Mapping[str, tuple[int, int]]] = {
    GROUP_VERSION: (0, 1),
    TRANSACTION_VERSION: (0, 2),
}
"""`group.version` 1: consumer groups (KIP-848). `transaction.version` 2: every transaction has an
epoch of its own, and the broker adds partitions (KIP-890)."""

NEW_CLUSTER_FEATURES: Final[Mapping[str, int]] = {
    name: highest for name, (_, highest) in SUPPORTED_FEATURES.items()
}
"""The levels that a cluster starts with."""
