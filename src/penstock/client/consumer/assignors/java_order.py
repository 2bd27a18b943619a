"""The iteration order of Java's hash maps.

Kafka's sticky assignors decide some ties by the order of a HashMap. A Java client may lead a group
in one generation and this client in the next: only with the same order do both of them leave the
partitions where they are.
"""

from collections.abc import Collection, Iterable

from penstock.core.ids import TopicPartition
from penstock.core.java_hash import bucket, partition_hash, string_hash, table_size


def in_hash_order(keys: Collection[str]) -> list[str]:
    """Returns the keys in the order of a `HashMap` with the default size.

    `keys` are in the order of their insertion, which is that of keys in the same bucket.
    """
    size = table_size(len(keys))
    return sorted(keys, key=lambda key: bucket(string_hash(key), size))


def first_in_hash_order(partitions: Collection[TopicPartition], largest: int) -> TopicPartition:
    """Returns the first element of a `HashSet` whose largest size was `largest`."""
    size = table_size(largest)
    return min(partitions, key=lambda partition: bucket(partition_hash(partition), size))


def string_order(text: str) -> bytes:
    """Sorts as `String.compareTo` does."""
    return text.encode("utf-16-be", "surrogatepass")


def sorted_strings(texts: Iterable[str]) -> list[str]:
    return sorted(texts, key=string_order)
