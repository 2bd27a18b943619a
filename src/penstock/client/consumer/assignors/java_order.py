"""The order in which Java walks through its hash maps.

Kafka's sticky assignors decide some ties by the order of a HashMap. Members of a group may be led
by a Java client in one generation and by this one in the next: only with the same order do both
keep partitions where they are.
"""

from collections.abc import Collection, Iterable

from penstock.core.ids import TopicPartition

_MASK = 0xFFFFFFFF


def string_hash(text: str) -> int:
    """`String.hashCode`, as an unsigned number of 32 bits."""
    value = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(encoded), 2):
        value = (31 * value + (encoded[index] << 8) + encoded[index + 1]) & _MASK
    return value


def partition_hash(partition: TopicPartition) -> int:
    """`TopicPartition.hashCode`."""
    return (31 * (31 + partition.partition) + string_hash(partition.topic)) & _MASK


def in_hash_order(keys: Collection[str]) -> list[str]:
    """Keys of a `HashMap` made with its default size, in its order.

    `keys` are in the order in which they were put in, which decides between those of one bucket.
    """
    mask = _capacity(len(keys)) - 1
    return sorted(keys, key=lambda key: _bucket(string_hash(key), mask))


def first_in_hash_order(partitions: Collection[TopicPartition], largest: int) -> TopicPartition:
    """The first element of a `HashSet` that once had `largest` elements."""
    mask = _capacity(largest) - 1
    return min(partitions, key=lambda partition: _bucket(partition_hash(partition), mask))


def string_order(text: str) -> bytes:
    """Sorts as `String.compareTo` does."""
    return text.encode("utf-16-be", "surrogatepass")


def sorted_strings(texts: Iterable[str]) -> list[str]:
    return sorted(texts, key=string_order)


def _bucket(value: int, mask: int) -> int:
    return (value ^ (value >> 16)) & mask


def _capacity(size: int) -> int:
    capacity = 16
    while size > capacity * 3 // 4:
        capacity *= 2
    return capacity
