"""Reads the partitions of one Fetch request from their logs.

The Fetch handler decides with the result whether to respond, to wait for more records, or to load
pages from the disk on a thread first. Nothing is decoded: the results have ranges of files.
"""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from penstock.broker.pacer import Steps
from penstock.broker.replica.fetch_sessions import (
    PARTITIONS_AT_ONCE,
    CachedPartition,
    FetchContext,
    FollowerChanges,
)
from penstock.broker.replica.partition_reader import PartitionReader, ReaderContext, empty_data
from penstock.broker.replica.replica import Replica
from penstock.broker.request import Request
from penstock.core.errors import KafkaError
from penstock.protocol.messages.fetch import FetchPartitionData, FetchRequest
from penstock.storage.log.log import Log
from penstock.storage.log.read_ahead import ReadAhead
from penstock.storage.segment.log_segment import LogSlice

PartitionResults: TypeAlias = list[tuple[CachedPartition, FetchPartitionData]]


class Ready:
    """The partitions that were read for one response."""

    __slots__ = ("must_respond", "partitions", "room", "size")

    def __init__(self, room: int, *, must_respond: bool) -> None:
        self.partitions: PartitionResults = []
        self.size = 0
        """Bytes of records in them."""
        self.room = room
        """Bytes of records that still fit; negative after a larger first batch."""
        self.must_respond = must_respond
        """Whether the response is full, has an error or no partitions, so that it must not wait."""

    def count(
        self,
        reader: PartitionReader,
        partition: CachedPartition,
        replica: Replica | None,
        data: FetchPartitionData,
        size: int,
    ) -> bool:
        """Counts the records of a partition; returns False if there was no room for any of them."""
        room = self.room
        if data.error_code or data.diverging_epoch.epoch >= 0 or data.preferred_read_replica >= 0:
            self.must_respond = True
        elif size:
            self.size += size
            self.room = room - size
            if room < partition.max_bytes and _is_cut(data, replica):
                self.must_respond = True
        elif self.size and room < partition.max_bytes and reader.has_more(partition, data, replica):
            self.must_respond = True
            return False
        return True


NOTHING_READ = Ready(0, must_respond=False)


class NeedsDisk(NamedTuple):
    """Finding the offsets needs index or log pages that are not in the page cache."""

    reads: list[ReadAhead]
    """To be run on a thread before the log is read again."""


class FetchReader:
    """Reads the partitions of one request, which may read several times while it waits."""

    __slots__ = ("_body", "_context", "_fetch_context", "_reader", "_request", "is_follower")

    def __init__(
        self,
        context: ReaderContext,
        request: Request,
        body: FetchRequest,
        fetch_context: FetchContext,
    ) -> None:
        self._context = context
        self._request = request
        self._body = body
        self._fetch_context = fetch_context
        self._reader = PartitionReader(context, request, body)
        self.is_follower = self._reader.is_follower
        """Whether a broker fetches: it reads up to the log end offset."""

    @property
    def is_committed(self) -> bool:
        """Whether the client reads up to the last stable offset only."""
        return self._reader.is_committed

    def is_held_back(self, replica: Replica) -> bool:
        """Whether a follower gets no records of this partition now, because it is throttled."""
        return self._reader.is_held_back(replica)

    def room(self) -> int:
        """Returns the most bytes of records in the response, except for a larger first batch."""
        room = min(self._body.max_bytes, self._context.config.int("fetch.max.bytes"))
        return room if self.is_follower else self._context.quotas.fetch_room(self._request, room)

    def read_cached(self) -> Steps[Ready | NeedsDisk]:
        """Reads all partitions unless that would block the event loop on a disk."""
        cold_reads: list[ReadAhead] = []
        result = yield from self._read(cold_reads)
        if cold_reads:
            return NeedsDisk(cold_reads)
        self._reader.records_progress = False
        return result

    def read(self) -> Steps[Ready]:
        """Reads all partitions; records that were just appended or loaded are in memory."""
        result = yield from self._read(None)
        self._reader.records_progress = False
        return result

    def _read(self, cold_reads: list[ReadAhead] | None) -> Steps[Ready]:
        """Reads all partitions; those that would block are added to `cold_reads` instead.

        In a session, partitions without anything new are left out. When the response is full, so
        are the partitions that follow: the next response begins with them.
        """
        reader, context = self._reader, self._fetch_context
        incremental, changes = context.incremental, context.changes
        response = Ready(self.room(), must_respond=not context.partitions)
        offset_changes: list[tuple[CachedPartition, Log]] = []
        until_pause = PARTITIONS_AT_ONCE
        topic: str | None = None
        allowed = False
        hosted: Mapping[int, Replica] = {}
        for partition in self._partitions_to_read(changes):
            until_pause -= 1
            if not until_pause:
                yield
                until_pause = PARTITIONS_AT_ONCE
                topic = None
            if partition.topic != topic:
                if not partition.topic:
                    # This broker did not know the topic id when the session began.
                    partition.topic = self._context.image.topic_names.get(partition.topic_id, "")
                topic = partition.topic or None  # each topic without a name is looked up
                allowed = reader.allows(partition.topic)
                hosted = self._context.replicas.by_topic.get(partition.topic, {})
            if incremental and response.room <= 0 < response.size:
                break
            replica = hosted.get(partition.index)
            if changes is not None and partition.changes is not None:
                if replica is not partition.watched_replica and replica is not None:
                    partition.watch(replica)
                changes.partitions[partition] = None
            try:
                if not allowed:
                    raise reader.authorization_error(partition.topic)
                if changes is not None:
                    log = reader.log_of_caught_up(partition, replica)
                    if log is not None:
                        if (
                            partition.high_watermark == log.high_watermark
                            and partition.log_start_offset == log.log_start_offset
                        ):
                            changes.partitions.pop(partition, None)
                        else:
                            offset_changes.append((partition, log))
                        continue
                elif incremental and reader.is_unchanged(partition, replica):
                    continue
                part = reader.read_tail(partition, replica, response.room) or reader.read(
                    partition,
                    response.room,
                    min_one=not response.size,
                    may_block=cold_reads is None,
                )
                if not isinstance(part, tuple):
                    assert cold_reads is not None
                    cold_reads.append(part)
                    continue
                data, size = part
            except KafkaError as error:
                data, size = reader.error_data(partition, error), 0
            if not response.count(reader, partition, replica, data, size) and incremental:
                break
            response.partitions.append((partition, data))
        if offset_changes and (response.size or response.must_respond or not self._may_wait):
            # A follower does not get new offsets of the leader at once, but with the next response.
            response.partitions += [
                (partition, empty_data(partition, log)) for partition, log in offset_changes
            ]
        return response

    @property
    def _may_wait(self) -> bool:
        """Whether a first read without records is followed by another one."""
        body = self._body
        return self._reader.records_progress and body.max_wait_ms > 0 and body.min_bytes > 0

    def _partitions_to_read(self, changes: FollowerChanges | None) -> list[CachedPartition]:
        """Returns all partitions; for a follower usually only those that have changed.

        Only the first read of a request records the follower's progress, so that is the one which
        may read all of them: an older request, which arrived late, may have recorded less.
        """
        if changes is None or (
            self._reader.records_progress
            and changes.is_full_read_due(self._context.clock.monotonic_ms())
        ):
            return list(self._fetch_context.partitions.values())
        return list(changes.partitions)


def _is_cut(data: FetchPartitionData, replica: Replica | None) -> bool:
    """Whether the log has more records than those that were read."""
    records = data.records
    if replica is None or not isinstance(records, LogSlice):
        return False
    active = replica.log_to_read.local.segments.active
    return records.file is not active.file or records.position + records.size < active.size
