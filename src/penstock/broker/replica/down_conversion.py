"""Fetch 0 to 3: their clients read the message formats v0 and v1 only, so batches are converted.

Unlike batches of the log, which are sent from its files, converted records are held in memory until
the client has read them. So there is a limit to how many there may be at a time: beyond it, an
answer has one batch of one partition, and its client comes back for the rest.
"""

import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from penstock.broker.config.topic_config import effective_value
from penstock.broker.replica.fetch_sessions import Entry, EntryKey
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.messages.fetch import FetchPartitionData, FetchResponse
from penstock.protocol.primitives import size_of
from penstock.records.compress import Compression
from penstock.records.down_convert import down_convert
from penstock.storage.disk import OsFile
from penstock.storage.log.read_ahead import ReadAhead
from penstock.storage.log.results import FetchIsolation
from penstock.storage.segment.log_segment import LogSlice

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

LAST_VERSION = 3
_MAGIC = (0, 0, 1, 1)
"""The message format by the version of Fetch."""
LAST_WITH_HARD_LIMIT = 2
"""Up to here `max_bytes` of a partition holds even where not one message fits."""
SEARCHED_BYTES = 64 * 1024
"""More than the log looks at to find an offset from the index entry before it."""
MOST_BYTES = 64 * 1024 * 1024
"""Of converted records in memory. Beyond it an answer still has its first batch."""
_BLOCK = 1024 * 1024

logger = logging.getLogger("penstock.requests")


class _Held(bytearray):
    """Converted records. They go when they have been sent, or their connection has ended."""


_held: WeakValueDictionary[int, _Held] = WeakValueDictionary()
"""All that there are in this process."""


def held_bytes() -> int:
    """Bytes of converted records that have not been sent yet; any thread may ask."""
    # The list of references is made in one step, whatever other threads add or drop.
    return sum(len(held) for each in _held.valuerefs() if (held := each()) is not None)


def check_topic(broker: "Broker", topic: str) -> None:
    """KafkaError where the settings of a topic are against converting its batches."""
    own = broker.image.config("topics", topic)
    if broker.topic_config(topic).log.compression_type == Compression.ZSTD.codec_name:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"topic {topic!r} is packed with zstd, which this client does not read: use one that "
            f"fetches with version 10 (Kafka 2.1) or newer, or another compression.type",
        )
    setting = "message.downconversion.enable"
    if not effective_value(broker.config, own, setting):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{setting} is false for topic {topic!r}: use a client that fetches with version 4 "
            f"(Kafka 0.11) or newer",
        )


class DownConversion:
    """Converts the answers to one request."""

    __slots__ = ("_broker", "_entries", "_magic", "_max_bytes", "_version")

    def __init__(
        self, broker: "Broker", version: int, max_bytes: int, entries: Mapping[EntryKey, Entry]
    ) -> None:
        self._broker = broker
        self._version = version
        self._magic = _MAGIC[version]
        self._max_bytes = max_bytes
        self._entries = entries

    async def convert(self, response: FetchResponse) -> bool:
        """Puts messages in the place of batches; False where the answer then says nothing.

        That is so where only markers came, which old formats do not have: the client would ask
        again at once, and had better wait for more.
        """
        found: list[tuple[Entry, FetchPartitionData, LogSlice]] = []
        says_something = not response.responses
        for topic in response.responses:
            for data in topic.partitions:
                if isinstance(data.records, LogSlice):
                    entry = self._entries[topic.topic, data.partition_index]
                    found.append((entry, data, data.records))
                    data.records = b""
                says_something = says_something or bool(data.error_code)
        # Small records grow, which shall not take the answer beyond what the client wants.
        left = self._max_bytes
        reserved = sum(records.size for _, _, records in found)
        for entry, data, records in found:
            reserved -= records.size
            room = max(min(entry.max_bytes, left - reserved), records.size)
            await self._convert(entry, data, records, room, may_skip=left < self._max_bytes)
            left -= 0 if data.records is None else size_of(data.records)
            says_something = says_something or bool(data.records) or bool(data.error_code)
        return says_something

    async def _convert(
        self,
        entry: Entry,
        data: FetchPartitionData,
        records: LogSlice,
        room: int,
        *,
        may_skip: bool,
    ) -> None:
        """Converts the records of one partition. `may_skip`: the answer has some already."""
        try:
            data.records = await self._messages(entry, records, room, may_skip)
        except KafkaError as error:
            data.error_code = error.code
            data.high_watermark = -1
        except OSError as error:
            logger.error("%s-%d cannot be read: %s", entry.topic, entry.partition, error)
            # Clients of this age do not know KAFKA_STORAGE_ERROR.
            data.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            data.high_watermark = -1

    async def _messages(
        self, entry: Entry, found: LogSlice, room: int, may_skip: bool
    ) -> bytes | memoryview:
        workers = self._broker.workers
        slice_: LogSlice | None = found
        while slice_ is not None:
            try:
                piece = _Piece(slice_)
            except ValueError:
                # Its segment was deleted: the next request hears where the log begins now.
                return b""
            if not piece.is_cached:
                # A disk that fails is met again by the conversion, which says so.
                with suppress(OSError):
                    await workers.run(workers.flush, piece.warm)
            limit = None
            if self._version <= LAST_WITH_HARD_LIMIT and slice_.size > entry.max_bytes:
                limit = entry.max_bytes
            work = partial(piece.convert, self._magic, entry.fetch_offset, room, limit, may_skip)
            messages, next_offset = await workers.run(workers.compute, work)
            if messages or next_offset is None:
                return messages
            slice_ = await self._read(entry, next_offset, min(room, entry.max_bytes))
        return b""

    async def _read(self, entry: Entry, offset: int, limit: int) -> LogSlice | None:
        """What comes after batches of which nothing was left."""
        workers = self._broker.workers
        replica = self._broker.replicas.find(entry.topic, entry.partition)
        ahead = ReadAhead.of(replica.leading(), offset, SEARCHED_BYTES)
        if ahead is not None:
            with suppress(OSError):
                await workers.run(workers.flush, ahead.run)
        log = replica.leading()
        return log.read(offset, limit, FetchIsolation.HIGH_WATERMARK, min_one=True).records


class _Piece:
    """Batches in a file, through a handle of its own: the log may close its own meanwhile."""

    __slots__ = ("_file", "_position", "_size", "is_cached")

    def __init__(self, where: LogSlice) -> None:
        """`ValueError` where the log has closed its own already."""
        number = where.file.fileno()
        self.is_cached = where.file.is_cached(where.position, where.size)
        self._file = OsFile(os.dup(number))
        self._position = where.position
        self._size = where.size

    def warm(self) -> None:
        end = self._position + self._size
        for position in range(self._position, end, _BLOCK):
            self._file.read_at(position, min(_BLOCK, end - position))

    def convert(
        self, magic: int, first_offset: int, room: int, limit: int | None, may_skip: bool
    ) -> tuple[memoryview, int | None]:
        """Reads and converts, cuts at `limit`, and closes the handle.

        Messages and the offset after them; None for it where there was no memory to read any. Only
        one thread converts, so that each time it is known what the ones before have left.
        """
        try:
            memory = max(MOST_BYTES - held_bytes(), 0)
            if may_skip and not memory:
                return memoryview(b""), None
            data = self._file.read_at(self._position, self._size)
        finally:
            self._file.close()
        messages, next_offset = down_convert(data, magic, first_offset, room=min(room, memory))
        held = _Held(messages[:limit])
        _held[id(held)] = held
        return memoryview(held), next_offset
