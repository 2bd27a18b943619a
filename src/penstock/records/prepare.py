"""Validation ahead of an append, where it is too long for the thread that owns the log.

Unpacking, packing and converting need the bytes and the topic's settings, and nothing of the log.
So they are done first, as if the batch came to offset 0, by any thread; what the log alone knows
(offset, leader epoch, log append time) is put into the finished bytes afterwards::

    prepared = PreparedAppend(data, policy, origin, now_ms) if is_heavy(data, policy) else None
    prepared.run()                                          # on any thread
    assigned = prepared.place(next_offset, leader_epoch, now_ms)
"""

from penstock.core.buffers import Buffer, WritableBuffer
from penstock.core.errors import KafkaError
from penstock.core.ids import NO_LEADER_EPOCH
from penstock.records.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    LEAST_ENTRY,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    TimestampType,
    set_base_offset_and_epoch,
    set_max_timestamp,
)
from penstock.records.compress import Compression, unpacked_bound
from penstock.records.validate import Append, AppendOrigin, AppendPolicy, Assigned, validate_any

HEAVY_PACKED = 64 * 1024
"""Bytes of a compressed batch that take some tenths of a millisecond to unpack and check."""
HEAVY_UNPACKED = 4 * 1024 * 1024
"""A small batch may unpack to this much at most before it counts as heavy all the same."""
HEAVY_REWRITE = 8 * 1024
"""Bytes of records that take some tenths of a millisecond to pack, with the slowest codec."""
HEAVY_REPACK = 1024
"""The same for records that come packed, and are larger than that."""

_ATTRIBUTES_AT = 22
_LEGACY_ATTRIBUTES_AT = 17


def is_heavy(buffer: Buffer, policy: AppendPolicy) -> bool:
    """Whether validation of what a client sent may take longer than about a millisecond.

    It looks at the first header only. What is no batch is refused quickly, so it is not heavy.
    """
    size = len(buffer)
    if size <= LEAST_ENTRY:
        return False
    magic = buffer[MAGIC_AT]
    if magic < MAGIC:
        packed = buffer[_LEGACY_ATTRIBUTES_AT] & CODEC_MASK
        return size > (HEAVY_REPACK if packed else HEAVY_REWRITE)
    if magic > MAGIC or size <= HEADER_SIZE:
        return False
    codec = buffer[_ATTRIBUTES_AT] & CODEC_MASK
    rewrites = policy.compression is not None and policy.compression != codec
    if codec == Compression.NONE:
        return rewrites and size > HEAVY_REWRITE
    if size > (HEAVY_REPACK if rewrites else HEAVY_PACKED):
        return True
    return unpacked_bound(codec, memoryview(buffer)[HEADER_SIZE:], HEAVY_UNPACKED) > HEAVY_UNPACKED


class PreparedAppend:
    """An append whose validation may run on another thread. The caller's bytes stay as they are.

    The records are judged by the settings, and by the time, of when it was made.
    """

    __slots__ = ("_assigned", "_error", "data", "now_ms", "origin", "policy")

    def __init__(
        self, data: WritableBuffer, policy: AppendPolicy, origin: AppendOrigin, now_ms: int
    ) -> None:
        self.data = data
        self.policy = policy
        self.origin = origin
        self.now_ms = now_ms
        self._assigned: Assigned | None = None
        self._error: KafkaError | None = None

    def run(self) -> None:
        """Validates, unpacks, packs, converts. `place` raises what is found wrong."""
        append = Append(0, NO_LEADER_EPOCH, self.now_ms, self.policy, self.origin)
        try:
            self._assigned = validate_any(memoryview(self.data).toreadonly(), append)
        except KafkaError as error:
            self._error = error

    def place(self, next_offset: int, leader_epoch: int, now_ms: int) -> Assigned:
        """The batches with their offsets; to be called once, after `run`."""
        if self._error is not None:
            raise self._error
        if self._assigned is None:
            raise RuntimeError("run the prepared append before it is placed")
        stamp = None
        if self.policy.timestamp_type is TimestampType.LOG_APPEND_TIME:
            stamp = now_ms
        buffer = self._assigned.buffer
        assert isinstance(buffer, bytearray), "what was read-only is copied before it is changed"
        headers: list[BatchHeader] = []
        position = 0
        for header in self._assigned.headers:
            if stamp is not None and header.max_timestamp != stamp:
                header = set_max_timestamp(
                    buffer, position, header, TimestampType.LOG_APPEND_TIME, stamp
                )
            base_offset = next_offset + header.base_offset
            set_base_offset_and_epoch(buffer, position, base_offset, leader_epoch)
            headers.append(
                header._replace(base_offset=base_offset, partition_leader_epoch=leader_epoch)
            )
            position += header.size
        return Assigned(buffer, headers)
