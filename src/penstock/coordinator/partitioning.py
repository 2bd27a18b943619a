"""The partition of a coordinator's topic that a group or transactional id belongs to (C3, P4)."""

from penstock.core.java_hash import string_hash

_SMALLEST_INT = 0x80000000


def partition_for(key: str, partitions: int) -> int:
    """Returns the partition whose leader coordinates a group id or transactional id.

    It is `Utils.abs(key.hashCode()) % partitions`. Kafka's `abs` of the smallest int is 0.
    """
    value = string_hash(key)
    if value == _SMALLEST_INT:
        return 0
    return (value if value < _SMALLEST_INT else (1 << 32) - value) % partitions
