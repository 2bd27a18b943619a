"""Validation of an append on a worker thread, if it would block the event loop for too long.

Decompression, recompression and conversion need the bytes and the topic's settings, but not the
log. They run first, on any thread, as if the batch had offset 0. Offset, leader epoch and log
append time, which only the log knows, are written into the finished bytes afterwards::

    prepared = PreparedAppend(data, policy, origin, now_ms) if is_heavy(data, policy) else None
    prepared.run()                                          # on any thread
    assigned = prepared.assign(next_offset, leader_epoch, now_ms)
"""

from penstock.core.buffers import Buffer, WritableBuffer
from penstock.core.errors import KafkaError, drop_traceback
from penstock.core.ids import NO_LEADER_EPOCH
from penstock.records import legacy
from penstock.records.append_policy import AppendOrigin, AppendPolicy
from penstock.records.batch import (
    CODEC_MASK,
    FLAGS_AT,
    HEADER_SIZE,
    MAGIC,
    MAGIC_AT,
    MIN_ENTRY_SIZE,
    BatchHeader,
    TimestampType,
    set_base_offset_and_epoch,
    set_max_timestamp,
)
from penstock.records.compress import Compression, unpacked_bound
from penstock.records.validate import Append, Assigned, validate_any

HEAVY_PACKED = 64 * 1024
"""Size of a compressed batch that takes some tenths of a millisecond to decompress."""
HEAVY_UNPACKED = 4 * 1024 * 1024
"""Decompressed size from which a small batch counts as heavy, too."""
HEAVY_REWRITE = 8 * 1024
"""Size of records that take some tenths of a millisecond to compress."""
HEAVY_REPACK = 1024
"""The same for records that arrive compressed and are larger than that."""


def is_heavy(buffer: Buffer, policy: AppendPolicy) -> bool:
    """Returns whether validating a client's append may take longer than about a millisecond.

    Only the first header is read. Bytes that are not a batch are refused quickly, so they are
    not heavy.
    """
    size = len(buffer)
    if size <= MIN_ENTRY_SIZE:
        return False
    magic = buffer[MAGIC_AT]
    if magic < MAGIC:
        packed = buffer[legacy.ATTRIBUTES_AT] & CODEC_MASK
        return size > (HEAVY_REPACK if packed else HEAVY_REWRITE)
    if magic > MAGIC or size <= HEADER_SIZE:
        return False
    codec = buffer[FLAGS_AT] & CODEC_MASK
    rewrites = policy.compression is not None and policy.compression != codec
    if codec == Compression.NONE:
        return rewrites and size > HEAVY_REWRITE
    if size > (HEAVY_REPACK if rewrites else HEAVY_PACKED):
        return True
    return unpacked_bound(codec, memoryview(buffer)[HEADER_SIZE:], HEAVY_UNPACKED) > HEAVY_UNPACKED


class PreparedAppend:
    """An append whose validation may run on another thread. The caller's bytes do not change.

    The settings and the time of its creation apply to the records.
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

    @property
    def memory_bound(self) -> int:
        """The bytes that `run` may take at most."""
        data, policy = self.data, self.policy
        size = len(data)
        if data[MAGIC_AT] < MAGIC:
            codec = data[legacy.ATTRIBUTES_AT] & CODEC_MASK
            packed = memoryview(data)[legacy.ATTRIBUTES_AT :]
            rewrites = True
        else:
            codec = data[FLAGS_AT] & CODEC_MASK
            packed = memoryview(data)[HEADER_SIZE:]
            rewrites = policy.compression is not None and policy.compression != codec
        limit = policy.max_decompressed_bytes
        unpacked = size
        if codec != Compression.NONE:
            unpacked = min(unpacked_bound(codec, packed, limit), limit)
        # Records with wrong offsets are copied, and those with another codec compressed as well.
        return size + unpacked * (3 if rewrites else 2)

    def run(self) -> None:
        """Validates, recompresses and converts. An error is raised by `assign`."""
        append = Append(0, NO_LEADER_EPOCH, self.now_ms, self.policy, self.origin)
        try:
            self._assigned = validate_any(memoryview(self.data).toreadonly(), append)
        except KafkaError as error:
            self._error = drop_traceback(error)

    def assign(self, next_offset: int, leader_epoch: int, now_ms: int) -> Assigned:
        """Returns the batches with their offsets. Call it once, after `run`."""
        if self._error is not None:
            raise self._error
        assigned, self._assigned = self._assigned, None
        if assigned is None:
            raise RuntimeError("call run() before assign(), and assign() once")
        append_time = None
        if self.policy.timestamp_type is TimestampType.LOG_APPEND_TIME:
            append_time = now_ms
        buffer = assigned.buffer
        assert isinstance(buffer, bytearray), "a read-only buffer is copied before it is changed"
        headers: list[BatchHeader] = []
        position = 0
        for header in assigned.headers:
            if append_time is not None and header.max_timestamp != append_time:
                header = set_max_timestamp(
                    buffer, position, header, TimestampType.LOG_APPEND_TIME, append_time
                )
            base_offset = next_offset + header.base_offset
            set_base_offset_and_epoch(buffer, position, base_offset, leader_epoch)
            headers.append(
                header._replace(base_offset=base_offset, partition_leader_epoch=leader_epoch)
            )
            position += header.size
        return Assigned(buffer, headers)
