"""Java's hash codes, and the order in which its hash tables iterate.

Kafka stores and decides some things in that order: the coordinator of a group, the partitions in
transaction records, ties in sticky assignors. All hash codes here are unsigned 32-bit numbers.
"""

from penstock.core.ids import TopicPartition

_MASK = 0xFFFFFFFF


def string_hash(text: str) -> int:
    """Returns `String.hashCode()`."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & _MASK
    return value


def partition_hash(partition: TopicPartition, topic_hash: int | None = None) -> int:
    """Returns `TopicPartition.hashCode()`; a caller with many partitions passes the topic's
    hash."""
    if topic_hash is None:
        topic_hash = string_hash(partition.topic)
    return (31 * (31 + partition.partition) + topic_hash) & _MASK


def table_size(entries: int) -> int:
    """Returns the number of buckets of a `HashMap` that has grown to so many entries."""
    size = 16
    while 4 * entries > 3 * size:
        size *= 2
    return size


def bucket(hash_code: int, table_size: int) -> int:
    """Returns the bucket of a hash code; tables iterate bucket by bucket."""
    return (hash_code ^ hash_code >> 16) & (table_size - 1)
