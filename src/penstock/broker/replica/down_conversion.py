"""Down-conversion for Fetch 0 to 3: record batches become messages of the formats v0 and v1.

Unlike batches of the log, which are sent from its files, converted records are held in memory until
the client has read them. `MAX_HELD_BYTES` limits them: beyond it, a response has one batch of one
partition, and the client fetches the rest later.
"""

import logging
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from weakref import WeakValueDictionary

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.topic_config import effective_value, topic_config
from penstock.broker.replica.fetch_sessions import CachedPartition, PartitionKey
from penstock.broker.replica.replica_manager import ReplicaManager
from penstock.broker.workers import Workers
from penstock.controller.image import ClusterImage
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.messages.fetch import FetchPartitionData, FetchResponse
from penstock.protocol.primitives import size_of
from penstock.records.compress import DEFAULT_DECOMPRESSED_LIMIT, Compression
from penstock.records.down_convert import down_convert
from penstock.storage.log.read_ahead import ReadAhead
from penstock.storage.log.results import FetchIsolation
from penstock.storage.segment.log_segment import LogSlice

LAST_VERSION = 3
_MAGIC = (0, 0, 1, 1)
"""The message format by the version of Fetch."""
LAST_WITH_HARD_LIMIT = 2
"""Up to this version `max_bytes` of a partition holds even if not one message fits."""
SEARCHED_BYTES = 64 * 1024
"""More than the log scans to find an offset from the index entry before it."""
MAX_HELD_BYTES = 64 * 1024 * 1024
"""Limit on converted records in memory. Beyond it a response still has its first batch."""
_BLOCK = 1024 * 1024

logger = logging.getLogger(__name__)


class _Held(bytearray):
    """Converted records; freed when they have been sent or their connection has closed."""


_held: WeakValueDictionary[int, _Held] = WeakValueDictionary()
"""All converted records in this process."""


def held_bytes() -> int:
    """Returns the bytes of converted records that are not sent yet. Thread-safe."""
    # `valuerefs` copies the list in one step, so other threads may add and drop records.
    return sum(len(held) for reference in _held.valuerefs() if (held := reference()) is not None)


def check_topic(config: BrokerConfig, image: ClusterImage, topic: str) -> None:
    """Raises KafkaError if the settings of a topic forbid the conversion of its batches."""
    own = image.config("topics", topic)
    if topic_config(config, own).log.compression_type == Compression.ZSTD.codec_name:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"topic {topic!r} is compressed with zstd, which this client does not read",
            remedy=(
                "use one that fetches with version 10 (Kafka 2.1) or newer, or another "
                "compression.type"
            ),
        )
    setting = "message.downconversion.enable"
    if not effective_value(config, own, setting):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{setting} is false for topic {topic!r}",
            remedy="use a client that fetches with version 4 (Kafka 0.11) or newer",
        )


class DownConversion:
    """Converts the responses to one request."""

    __slots__ = ("_magic", "_max_bytes", "_partitions", "_replicas", "_version", "_workers")

    def __init__(
        self,
        replicas: ReplicaManager,
        workers: Workers,
        version: int,
        max_bytes: int,
        partitions: Mapping[PartitionKey, CachedPartition],
    ) -> None:
        self._replicas = replicas
        self._workers = workers
        self._version = version
        self._magic = _MAGIC[version]
        self._max_bytes = max_bytes
        self._partitions = partitions

    async def convert(self, response: FetchResponse) -> bool:
        """Replaces batches by messages; returns False if the response then has no content.

        That happens when only markers were read, which old formats do not have: the client would
        fetch again at once, so the response had better wait for more.
        """
        slices: list[tuple[CachedPartition, FetchPartitionData, LogSlice]] = []
        has_content = not response.responses
        for topic in response.responses:
            for data in topic.partitions:
                if isinstance(data.records, LogSlice):
                    partition = self._partitions[topic.topic, data.partition_index]
                    slices.append((partition, data, data.records))
                    data.records = b""
                has_content = has_content or bool(data.error_code)
        # Small records grow; that must not take the response beyond what the client accepts.
        remaining = self._max_bytes
        reserved = sum(records.size for _, _, records in slices)
        for partition, data, records in slices:
            reserved -= records.size
            room = max(min(partition.max_bytes, remaining - reserved), records.size)
            may_skip = remaining < self._max_bytes
            await self._convert(partition, data, records, room, may_skip=may_skip)
            remaining -= 0 if data.records is None else size_of(data.records)
            has_content = has_content or bool(data.records) or bool(data.error_code)
        return has_content

    async def _convert(
        self,
        partition: CachedPartition,
        data: FetchPartitionData,
        records: LogSlice,
        room: int,
        *,
        may_skip: bool,
    ) -> None:
        """Converts the records of one partition. `may_skip`: the response has some already."""
        try:
            data.records = await self._messages(partition, records, room, may_skip)
        except KafkaError as error:
            data.error_code = error.code
            data.high_watermark = -1
        except OSError as error:
            logger.error("%s-%d cannot be read: %s", partition.topic, partition.index, error)
            # Clients of this age do not know KAFKA_STORAGE_ERROR.
            data.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            data.high_watermark = -1

    async def _messages(
        self, partition: CachedPartition, records: LogSlice, room: int, may_skip: bool
    ) -> bytes | memoryview:
        workers = self._workers
        slice_: LogSlice | None = records
        while slice_ is not None:
            try:
                piece = _Piece(slice_)
            except ValueError:
                # Its segment was deleted: the next fetch gets the new log start offset.
                return b""
            if not piece.is_cached:
                # A disk error shows again in the conversion, which reports it.
                with suppress(OSError):
                    await workers.run(workers.flush, piece.warm)
            limit = None
            if self._version <= LAST_WITH_HARD_LIMIT and slice_.size > partition.max_bytes:
                limit = partition.max_bytes
            work = partial(
                piece.convert, self._magic, partition.fetch_offset, room, limit, may_skip
            )
            # The batches as stored; the largest of them decompressed, and as messages.
            memory = slice_.size + 2 * DEFAULT_DECOMPRESSED_LIMIT
            messages, next_offset = await workers.compute_with(memory, work)
            if messages or next_offset is None:
                return messages
            slice_ = await self._read(partition, next_offset, min(room, partition.max_bytes))
        return b""

    async def _read(self, partition: CachedPartition, offset: int, limit: int) -> LogSlice | None:
        """Reads what follows batches of which no record was left."""
        workers = self._workers
        replica = self._replicas.find(partition.topic, partition.index)
        ahead = ReadAhead.of(replica.leader_log(to_read=True), offset, SEARCHED_BYTES)
        if ahead is not None:
            with suppress(OSError):
                await workers.run(workers.read_pool(ahead.file.path), ahead.run)
        log = replica.leader_log(to_read=True)
        return log.read(offset, limit, FetchIsolation.HIGH_WATERMARK, min_one=True).records


class _Piece:
    """Batches in a file that the log may close at any time: a thread that reads them finishes."""

    __slots__ = ("_file", "_position", "_size", "is_cached")

    def __init__(self, where: LogSlice) -> None:
        """Raises ValueError if the log has closed the file already."""
        self._file = where.file
        pinned = self._file.pin()
        self.is_cached = self._file.is_cached(where.position, where.size)
        del pinned
        self._position = where.position
        self._size = where.size

    def warm(self) -> None:
        end = self._position + self._size
        for position in range(self._position, end, _BLOCK):
            self._file.read_at(position, min(_BLOCK, end - position))

    def convert(
        self, magic: int, first_offset: int, room: int, limit: int | None, may_skip: bool
    ) -> tuple[memoryview, int | None]:
        """Reads, converts and truncates at `limit`.

        Returns the messages and the offset after them, which is None if there was no memory to read
        any. Only one thread converts, so `held_bytes` cannot grow between the check and the read.
        """
        memory = max(MAX_HELD_BYTES - held_bytes(), 0)
        if may_skip and not memory:
            return memoryview(b""), None
        data = self._file.read_at(self._position, self._size)
        messages, next_offset = down_convert(data, magic, first_offset, room=min(room, memory))
        held = _Held(messages[:limit])
        _held[id(held)] = held
        return memoryview(held), next_offset
