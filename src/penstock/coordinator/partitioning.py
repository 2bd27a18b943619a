"""Which partition of `__consumer_offsets` a group belongs to (C3)."""

_SIGN = 0x80000000


def partition_of(group_id: str, partitions: int) -> int:
    """The partition whose leader coordinates the group: `abs(hash(group)) % partitions`.

    The hash is Java's of a string, over its UTF-16 units. Kafka's `abs` of the smallest int is 0.
    """
    return java_abs(java_hash(group_id)) % partitions


def java_hash(text: str) -> int:
    """`String.hashCode()`: a signed 32-bit number."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value & _SIGN else value


def java_abs(number: int) -> int:
    """Kafka's `Utils.abs`, which gives 0 where Java's own gives a negative number."""
    return 0 if number == -_SIGN else abs(number)
