"""Verifies the batches of a Fetch response, for a follower that appends them as they are.

Compiled if possible; see `_decode.py`. The headers of small batches as objects took longer than
everything else that a follower does with them.
"""

from array import array
from types import SimpleNamespace

from crc32c import crc32c

from penstock.core.buffers import Buffer

try:
    import cython
except ModuleNotFoundError:
    cython = SimpleNamespace(compiled=False)

if not cython.compiled:
    from penstock.records._pure import int32_at, int64_at, int64s_of, source_of, view_of

_HEADER_SIZE = 61
_MIN_BATCH_LENGTH = 49
_LOG_OVERHEAD = 12
_MAGIC = 2
_TRANSACTIONAL_OR_CONTROL = 0x30
_MAX_OFFSET = 2**62


def scan_plain_batches(buffer: Buffer, leader_epoch: int) -> "tuple[array[int], int] | None":
    """Returns the numbers of the batches, and the size of the whole ones; None if one is unusual.

    There are five numbers for each batch, one kind after the other: base offsets, last offsets,
    positions, the latest timestamp up to this batch, and the last offset of the batch that has it.
    Unusual are other formats than v2, damaged batches, another leader epoch, offsets that do not
    increase, and batches with a producer id, of transactions or with control records.
    """
    view = view_of(buffer, 0, len(buffer))
    p = source_of(view)
    end = len(view)
    count = 0
    position = 0
    while end - position >= _HEADER_SIZE:
        length = int32_at(p, position + 8)
        if length < _MIN_BATCH_LENGTH or p[position + 16] != _MAGIC:
            return None
        if length > end - position - _LOG_OVERHEAD:
            break
        count += 1
        position += length + _LOG_OVERHEAD
    if not count:
        return None
    numbers = array("q", bytes(40 * count))
    q = int64s_of(memoryview(numbers))
    position = 0
    last_offset = -1
    max_timestamp = 0
    max_timestamp_offset = 0
    for index in range(count):
        base_offset = int64_at(p, position)
        delta = int32_at(p, position + 23)
        if (
            int32_at(p, position + 12) != leader_epoch
            or int64_at(p, position + 43) >= 0
            or p[position + 22] & _TRANSACTIONAL_OR_CONTROL
            or not 0 <= base_offset <= _MAX_OFFSET
            or delta < 0
            or base_offset + delta <= last_offset
        ):
            return None
        following = position + int32_at(p, position + 8) + _LOG_OVERHEAD
        expected_crc = int32_at(p, position + 17) & 0xFFFFFFFF
        if crc32c(view[position + 21 : following]) != expected_crc:
            return None
        last_offset = base_offset + delta
        timestamp = int64_at(p, position + 35)
        if not index or timestamp > max_timestamp:
            max_timestamp = timestamp
            max_timestamp_offset = last_offset
        q[index] = base_offset
        q[count + index] = last_offset
        q[2 * count + index] = position
        q[3 * count + index] = max_timestamp
        q[4 * count + index] = max_timestamp_offset
        position = following
    return numbers, position
