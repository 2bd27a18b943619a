"""The order in which Java walks through its hash maps.

Kafka's sticky assignors decide some ties by the order of a HashMap. Members of a group may be led
by a Java client in one generation and by this one in the next: only with the same order do both
keep partitions where they are.
"""

from collections.abc import Collection, Iterable

from penstock.core.ids import TopicPartition
from penstock.core.java_hash import bucket, partition_hash, string_hash, table_size


def in_hash_order(keys: Collection[str]) -> list[str]:
    """Keys of a `HashMap` made with its default size, in its order.

    `keys` are in the order in which they were put in, which decides between those of one bucket.
    """
    size = table_size(len(keys))
    return sorted(keys, key=lambda key: bucket(string_hash(key), size))


def first_in_hash_order(partitions: Collection[TopicPartition], largest: int) -> TopicPartition:
    """The first element of a `HashSet` that once had `largest` elements."""
    size = table_size(largest)
    return min(partitions, key=lambda partition: bucket(partition_hash(partition), size))


def string_order(text: str) -> bytes:
    """Sorts as `String.compareTo` does."""
    return text.encode("utf-16-be", "surrogatepass")


def sorted_strings(texts: Iterable[str]) -> list[str]:
    return sorted(texts, key=string_order)
