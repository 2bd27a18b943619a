"""The features that this broker supports, with their levels."""

from collections.abc import Mapping
from typing import Final

GROUP_VERSION: Final = "group.version"
TRANSACTION_VERSION: Final = "transaction.version"

SUPPORTED_FEATURES: Final[Mapping[str, tuple[int, int]]] = {
    GROUP_VERSION: (0, 1),
    TRANSACTION_VERSION: (0, 2),
}
"""`group.version` 1: consumer groups (KIP-848). `transaction.version` 2: every transaction has its
own epoch, and the broker adds partitions to it (KIP-890)."""

NEW_CLUSTER_FEATURES: Final[Mapping[str, int]] = {
    name: highest for name, (_, highest) in SUPPORTED_FEATURES.items()
}
"""The levels of a new cluster, unless brokers of Apache Kafka are to join it."""


def new_cluster_features(*, admits_kafka: bool) -> Mapping[str, int]:
    """Returns the levels of a new cluster.

    Kafka 3.9 knows none of the features: it refuses to start in a cluster that has one.
    """
    return {} if admits_kafka else NEW_CLUSTER_FEATURES
