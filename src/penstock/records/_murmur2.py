"""Partitions of keys: murmur2 as Kafka's clients use it, for one key and for many.

Compiled if possible; see `_decode.py`.
"""

from types import SimpleNamespace

try:
    import cython
except ModuleNotFoundError:
    cython = SimpleNamespace(compiled=False)

if not cython.compiled:
    from penstock.records._pure import bytes_or_none, int32s_of, source_of_bytes

_MAX_INT32 = 2**31 - 1
_MASK_32 = 2**32 - 1


def _murmur2(p: memoryview, size: int) -> int:
    """Returns the hash as an unsigned 32-bit number."""
    h = (0x9747B28C ^ size) & _MASK_32
    at = 0
    while size - at >= 4:
        k = (p[at] | p[at + 1] << 8 | p[at + 2] << 16 | p[at + 3] << 24) & _MASK_32
        k = (k * 0x5BD1E995) & _MASK_32
        k ^= k >> 24
        k = (k * 0x5BD1E995) & _MASK_32
        h = (h * 0x5BD1E995) & _MASK_32
        h ^= k
        at += 4
    remaining = size - at
    if remaining == 3:
        h ^= p[at + 2] << 16
    if remaining >= 2:
        h ^= p[at + 1] << 8
    if remaining >= 1:
        h ^= p[at]
        h = (h * 0x5BD1E995) & _MASK_32
    h ^= h >> 13
    h = (h * 0x5BD1E995) & _MASK_32
    return h ^ (h >> 15)


def murmur2(data: bytes) -> int:
    """Returns the hash of a key as a signed 32-bit number, as Kafka's clients do."""
    h = _murmur2(source_of_bytes(data), len(data))
    return h if h <= _MAX_INT32 else h - 0x100000000


def partition_of_key(key: bytes, count: int) -> int:
    """Returns the partition, of `count`, that Kafka's clients choose for a key."""
    if count <= 0:
        raise ValueError(f"a topic cannot have {count} partitions")
    return (_murmur2(source_of_bytes(key), len(key)) & _MAX_INT32) % count


def partition_keys(
    keys: list[bytes | None],
    start: int,
    stop: int,
    count: int,
    order: memoryview,
    ends: memoryview,
) -> None:
    """Sorts records by the partition of their keys; the order within a partition is kept.

    Writes the indexes of the records `start` to `stop` (exclusive) to the same range of `order`
    (int32): first those without a key, then those of partition 0, 1 and so on. `ends` (int32,
    `count` + 1 items) receives where each of these groups ends in `order`.
    """
    if count <= 0 or not 0 <= start <= stop <= len(keys) or len(order) < stop:
        raise ValueError(f"keys {start} to {stop} of {len(keys)} for {count} partitions")
    if len(ends) != count + 1:
        raise ValueError(f"{len(ends)} ends for {count} partitions")
    numbers = int32s_of(order)
    tops = int32s_of(ends)
    scratch = memoryview(bytearray(4 * (stop - start))).cast("i")
    groups = int32s_of(scratch)
    for index in range(count + 1):
        tops[index] = 0
    for index in range(start, stop):
        key = bytes_or_none(keys, index)
        group = 0
        if key is not None:
            group = 1 + (_murmur2(source_of_bytes(key), len(key)) & _MAX_INT32) % count
        groups[index - start] = group
        tops[group] += 1
    # Replace the sizes by where each group starts; filling a group moves that to its end.
    at = start
    for group in range(count + 1):
        size = tops[group]
        tops[group] = at
        at += size
    for index in range(start, stop):
        group = groups[index - start]
        numbers[tops[group]] = index
        tops[group] += 1
