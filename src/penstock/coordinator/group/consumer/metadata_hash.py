"""The hash over a group's topics that shows whether they have changed, as in Kafka 4.3.

It is XXH3 over the stream of hash4j: numbers in little-endian order, a string as its UTF-16 units
followed by their count.
"""

import struct
from collections.abc import Iterable

from xxhash import xxh3_64_intdigest

from penstock.coordinator.group.topics import Topics

_MAGIC = b"\x00"


def metadata_hash(names: Iterable[str], topics: Topics) -> int:
    """Returns the hash of those topics that exist; 0 if none does."""
    hashes = [_topic_hash(name, topics) for name in sorted(names) if topics.topic_id(name)]
    if not hashes:
        return 0
    return _signed(xxh3_64_intdigest(struct.pack(f"<{len(hashes)}q", *hashes)))


def _topic_hash(name: str, topics: Topics) -> int:
    topic_id = topics.topic_id(name)
    assert topic_id is not None
    count = topics.partition_count(name)
    data = [_MAGIC, topic_id.bytes[7::-1], topic_id.bytes[:7:-1], _string(name), _int(count)]
    for partition in range(count):
        data.append(_int(partition))
        for rack in sorted(topics.partition_racks(name, partition)):
            text = _string(rack)
            data += [text[-4:], text]
    return _signed(xxh3_64_intdigest(b"".join(data)))


def _int(number: int) -> bytes:
    return number.to_bytes(4, "little")


def _string(text: str) -> bytes:
    units = text.encode("utf-16-le", "surrogatepass")
    return units + _int(len(units) // 2)


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number
