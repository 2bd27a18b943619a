"""Reads the partitions of one Fetch request from their logs.

The Fetch handler decides with the result whether to respond, to wait for more records, or to load
pages from the disk on a thread first. Nothing is decoded: the results have ranges of files.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.pacer import Steps
from penstock.broker.replica import down_conversion
from penstock.broker.replica.down_conversion import SEARCHED_BYTES
from penstock.broker.replica.fetch_sessions import (
    PARTITIONS_AT_ONCE,
    CachedPartition,
    FetchContext,
    FollowerChanges,
)
from penstock.broker.replica.isr_manager import IsrManager
from penstock.broker.replica.leader_throttle import LeaderThrottle
from penstock.broker.replica.replica import Replica
from penstock.broker.replica.replica_manager import ReplicaManager
from penstock.broker.request import Request
from penstock.broker.security.client_quota_manager import ClientQuotaManager
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.controller.image import ClusterImage
from penstock.core.clock import Clock
from penstock.core.errors import ErrorCode, KafkaError, OffsetOutOfRangeError
from penstock.protocol.fields import ZERO_UUID
from penstock.protocol.messages.fetch import (
    AbortedTransaction,
    FetchEpochEndOffset,
    FetchLeaderIdAndEpoch,
    FetchPartitionData,
    FetchRequest,
)
from penstock.replication.follower_state import FollowerState
from penstock.replication.replica_selector import RACK_AWARE_SELECTOR, preferred_read_replica
from penstock.security.acl import AclOperation, ResourceType
from penstock.storage.log.log import Log
from penstock.storage.log.read_ahead import ReadAhead
from penstock.storage.log.results import FetchIsolation
from penstock.storage.segment.log_segment import LogSlice

_FIRST_WITH_RACK = 11
_FIRST_WITH_LEADER = 12
_READ_COMMITTED = 1
_LAST_WITHOUT_STORAGE_ERROR = 5
_REFUSED_BEFORE_THE_LOG = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""With these errors the list of aborted transactions is empty, with all others it is null."""

PartitionResults: TypeAlias = list[tuple[CachedPartition, FetchPartitionData]]


@dataclass(frozen=True, slots=True)
class ReaderContext:
    """The parts of the broker that a reader uses."""

    config: BrokerConfig
    clock: Clock
    image: ClusterImage
    replicas: ReplicaManager
    isr_manager: IsrManager
    leader_throttle: LeaderThrottle
    authorizer: RequestAuthorizer
    quotas: ClientQuotaManager


class Ready(NamedTuple):
    """The log was read."""

    partitions: PartitionResults
    size: int
    """Bytes of records in them."""
    must_respond: bool
    """The response must not wait for more records: it is full, has an error, or no partitions."""


NOTHING_READ = Ready([], 0, must_respond=False)


class NeedsDisk(NamedTuple):
    """Finding the offsets needs index or log pages that are not in the page cache."""

    reads: list[ReadAhead]
    """To be run on a thread before the log is read again."""


class FetchReader:
    """Reads the partitions of one request, which may read several times while it waits."""

    __slots__ = (
        "_body",
        "_context",
        "_fetch_context",
        "_is_converted",
        "_isolation",
        "_needs_leader",
        "_rack",
        "_records_progress",
        "_replica_id",
        "_request",
        "is_committed",
        "is_follower",
    )

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
        self._replica_id = max(body.replica_id, body.replica_state.replica_id)
        """The broker that fetches; negative for consumers."""
        self.is_follower = self._replica_id >= 0
        """Whether a broker fetches: it reads up to the log end offset."""
        self.is_committed = body.isolation_level == _READ_COMMITTED and not self.is_follower
        """Whether the client reads up to the last stable offset only."""
        if self.is_follower:
            self._isolation = FetchIsolation.LOG_END
        elif self.is_committed:
            self._isolation = FetchIsolation.TXN_COMMITTED
        else:
            self._isolation = FetchIsolation.HIGH_WATERMARK
        self._needs_leader = self.is_follower or request.version < _FIRST_WITH_RACK
        """Consumers of newer versions may read from followers too (KIP-392)."""
        self._rack = ""
        """The rack of a consumer whose reads may be redirected."""
        if not self._needs_leader and body.rack_id:
            selector = context.config.text("replica.selector.class")
            self._rack = body.rack_id if selector == RACK_AWARE_SELECTOR else ""
        self._records_progress = self.is_follower
        """Whether reading a partition still has to update what is known about the follower."""
        self._is_converted = request.version <= down_conversion.LAST_VERSION

    def room(self) -> int:
        """Returns the most bytes of records in the response, except for a larger first batch."""
        room = min(self._body.max_bytes, self._context.config.int("fetch.max.bytes"))
        return room if self.is_follower else self._context.quotas.fetch_room(self._request, room)

    def is_held_back(self, replica: Replica) -> bool:
        """Whether a follower gets no records of this partition now, because it is throttled."""
        return self.is_follower and self._context.leader_throttle.holds_back(
            replica, self._replica_id
        )

    def read_cached(self) -> Steps[Ready | NeedsDisk]:
        """Reads all partitions unless that would block the event loop on a disk."""
        cold_reads: list[ReadAhead] = []
        result = yield from self._read(cold_reads)
        if cold_reads:
            return NeedsDisk(cold_reads)
        self._records_progress = False
        return result

    def read(self) -> Steps[Ready]:
        """Reads all partitions; records that were just appended or loaded are in memory."""
        result = yield from self._read(None)
        self._records_progress = False
        return result

    def _read(self, cold_reads: list[ReadAhead] | None) -> Steps[Ready]:
        """Reads all partitions; those that would block are added to `cold_reads` instead.

        In a session, partitions without anything new are left out. When the response is full, so
        are the partitions that follow: the next response begins with them.
        """
        results: PartitionResults = []
        incremental = self._fetch_context.incremental
        room = self.room()
        total = 0
        until_pause = PARTITIONS_AT_ONCE
        changes = self._fetch_context.changes
        must_respond = not self._fetch_context.partitions
        offset_changes: list[tuple[CachedPartition, Log]] = []
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
                allowed = self._allows(partition.topic)
                hosted = self._context.replicas.by_topic.get(partition.topic, {})
            remaining = room - total
            if incremental and remaining <= 0 < total:
                break
            replica = hosted.get(partition.index)
            if changes is not None and partition.changes is not None:
                if replica is not partition.watched_replica and replica is not None:
                    partition.watch(replica)
                changes.partitions.setdefault(partition.key, partition)
            try:
                if not allowed:
                    raise self._authorization_error(partition.topic)
                if changes is not None:
                    log = self._log_of_caught_up(partition, replica)
                    if log is not None:
                        if (
                            partition.high_watermark == log.high_watermark
                            and partition.log_start_offset == log.log_start_offset
                        ):
                            changes.partitions.pop(partition.key, None)
                        else:
                            offset_changes.append((partition, log))
                        continue
                elif incremental and self._is_unchanged(partition, replica):
                    continue
                part = self._read_partition(
                    partition, remaining, min_one=total == 0, may_block=cold_reads is None
                )
                if not isinstance(part, tuple):
                    assert cold_reads is not None
                    cold_reads.append(part)
                    continue
                data, size = part
            except KafkaError as error:
                data, size = self._error_data(partition, error), 0
            if (
                data.error_code
                or data.diverging_epoch.epoch >= 0
                or data.preferred_read_replica >= 0
            ):
                must_respond = True
            elif size:
                total += size
                if remaining < partition.max_bytes and _is_cut(data, replica):
                    must_respond = True
            elif (
                total
                and remaining < partition.max_bytes
                and self._has_more(partition, data, hosted.get(partition.index))
            ):
                must_respond = True
                if incremental:
                    break
            results.append((partition, data))
        if offset_changes and (total or must_respond or not self._may_wait):
            # A follower does not get new offsets of the leader at once, but with the next response.
            results += [
                (partition, _empty_data(partition, log)) for partition, log in offset_changes
            ]
        return Ready(results, total, must_respond)

    @property
    def _may_wait(self) -> bool:
        """Whether a first read without records is followed by another one."""
        body = self._body
        return self._records_progress and body.max_wait_ms > 0 and body.min_bytes > 0

    def _partitions_to_read(self, changes: FollowerChanges | None) -> list[CachedPartition]:
        """Returns all partitions; for a follower usually only those that have changed."""
        if changes is None or changes.is_full_read_due(self._context.clock.monotonic_ms()):
            return list(self._fetch_context.partitions.values())
        return list(changes.partitions.values())

    def _allows(self, topic: str) -> bool:
        """Consumers need READ on the topic, brokers CLUSTER_ACTION (X3)."""
        authorizer, session = self._context.authorizer, self._request.session
        if self.is_follower:
            return authorizer.allows_cluster(session, AclOperation.CLUSTER_ACTION)
        # An unknown topic id is not a secret.
        return not topic or authorizer.allows(session, AclOperation.READ, ResourceType.TOPIC, topic)

    def _authorization_error(self, topic: str) -> KafkaError:
        session = self._request.session
        if not self.is_follower:
            return self._context.authorizer.error(
                session, AclOperation.READ, ResourceType.TOPIC, topic
            )
        return KafkaError(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            f"{session.principal} at {session.host} may not fetch as broker {self._replica_id}",
            remedy="add an ACL that allows CLUSTER_ACTION, or fetch as a consumer, "
            "with replica id -1",
        )

    def _replica_of(self, partition: CachedPartition) -> Replica:
        if not partition.topic:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_ID,
                f"no topic has the id {partition.topic_id}: it was deleted; refresh the metadata",
            )
        replica = self._context.replicas.find(partition.topic, partition.index)
        if replica is not partition.verified_replica:
            if replica.partition.topic_id != partition.topic_id != ZERO_UUID:
                raise KafkaError(
                    ErrorCode.INCONSISTENT_TOPIC_ID,
                    f"topic {partition.topic!r} was deleted and created again",
                    remedy="refresh the metadata",
                )
            partition.verified_replica = replica
        return replica

    def _follower(self, partition: CachedPartition, replica: Replica) -> FollowerState:
        """Returns the state of the broker that fetches; raises KafkaError if it has no replica."""
        follower = replica.partition.followers.get(self._replica_id)
        if follower is None:
            # With the current epoch the follower may know of a reassignment first; it retries.
            raise KafkaError(
                ErrorCode.UNKNOWN_LEADER_EPOCH
                if partition.leader_epoch >= 0
                else ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {self._replica_id} has no replica of {replica.partition.key}",
                remedy="fetch as a consumer, with replica id -1",
            )
        return follower

    def _record_progress(
        self, partition: CachedPartition, replica: Replica, follower: FollowerState, end: int
    ) -> None:
        """Updates what the leader knows about the follower; `end` was the log's when it was read.

        Only the first read of a request does: the follower's log is as it was at that time.
        """
        self._context.isr_manager.record_fetch(
            replica,
            follower,
            partition.fetch_offset,
            partition.follower_log_start_offset,
            end,
            self._body.replica_state.replica_epoch,
        )

    def _log_of_caught_up(self, cached: CachedPartition, replica: Replica | None) -> Log | None:
        """Returns the log if a follower has all of its records; None if it must be read."""
        if replica is None or replica is not cached.verified_replica:
            return None
        partition = replica.partition
        if not partition.is_leader or cached.leader_epoch not in (-1, partition.leader_epoch):
            return None
        log = replica.log_to_read
        if cached.fetch_offset != log.log_end_offset:
            return None
        latest_epoch = log.epochs.latest_epoch
        if cached.last_fetched_epoch != latest_epoch and cached.agreed_epochs != (
            cached.fetch_offset,
            cached.last_fetched_epoch,
            latest_epoch,
        ):
            # The leader has no record of its latest epoch yet, or the logs diverge.
            return None
        if self._records_progress:
            follower = self._follower(cached, replica)
            self._record_progress(cached, replica, follower, cached.fetch_offset)
        return log

    def _is_unchanged(self, cached: CachedPartition, replica: Replica | None) -> bool:
        """Whether a consumer has all records and the offsets of the last response still hold.

        Consumers have many partitions and most are quiet: with 500 of them a fetch takes 0.25 ms
        instead of the 2.2 ms of reading them all.
        """
        if replica is None or replica is not cached.verified_replica or self._rack:
            return False
        partition = replica.partition
        if not partition.is_leader or cached.leader_epoch not in (-1, partition.leader_epoch):
            return False
        log = replica.log_to_read
        high_watermark = log.high_watermark
        end = log.last_stable_offset if self.is_committed else high_watermark
        return (
            cached.last_fetched_epoch < 0
            and cached.fetch_offset == end
            and cached.high_watermark == high_watermark
            and cached.log_start_offset == log.log_start_offset
        )

    def _has_more(
        self, partition: CachedPartition, data: FetchPartitionData, replica: Replica | None
    ) -> bool:
        """Whether the partition has records that did not fit into the response."""
        if self.is_follower:
            return replica is not None and partition.fetch_offset < replica.log.log_end_offset
        end = data.last_stable_offset if self.is_committed else data.high_watermark
        return partition.fetch_offset < end

    def _preferred_replica(self, partition: CachedPartition, replica: Replica) -> int | None:
        """Returns the follower that a consumer of a rack should read from; None for this broker."""
        if not self._rack or not replica.partition.is_leader:
            return None
        brokers, listener = self._context.image.brokers, self._request.session.listener

        def rack_of(broker_id: int) -> str | None:
            record = brokers.get(broker_id)
            if record is None or all(
                endpoint.listener != listener for endpoint in record.endpoints
            ):
                return None
            return record.rack

        return preferred_read_replica(
            replica.partition, partition.fetch_offset, self._rack, rack_of
        )

    def _read_partition(
        self, partition: CachedPartition, room: int, *, min_one: bool, may_block: bool
    ) -> tuple[FetchPartitionData, int] | ReadAhead:
        """Returns the data and its size, or the read to run first if the read would block."""
        replica = self._replica_of(partition)
        preferred = self._preferred_replica(partition, replica)
        if preferred is not None:
            log = replica.readable_log(partition.leader_epoch)
            data = _empty_data(partition, log)
            data.preferred_read_replica = preferred
            return data, 0
        if self._needs_leader:
            log = replica.leader_log(partition.leader_epoch, to_read=not self.is_follower)
        else:
            log = replica.readable_log(partition.leader_epoch)
        if partition.fetch_offset > log.log_end_offset and not self.is_follower:
            self._check_log_end(replica, partition.fetch_offset)
        follower = self._follower(partition, replica) if self.is_follower else None
        if self._is_converted:
            down_conversion.check_topic(self._context.config, self._context.image, partition.topic)
            if self._request.version <= down_conversion.LAST_WITH_HARD_LIMIT:
                # The conversion truncates what is too large, so the first message is visible.
                min_one = partition.max_bytes > 0 and (min_one or room >= partition.max_bytes)
        if partition.last_fetched_epoch >= 0:
            diverging = _divergence(log, partition)
            if diverging is not None:
                data = _empty_data(partition, log)
                data.diverging_epoch = diverging
                return data, 0
        if not may_block:
            ahead = ReadAhead.of(log, partition.fetch_offset, SEARCHED_BYTES)
            if ahead is not None:
                return ahead
        limit = min(partition.max_bytes, max(room, 0))
        end = log.log_end_offset
        read = log.read(partition.fetch_offset, limit, self._isolation, min_one=min_one)
        if follower is not None:
            partition.agreed_epochs = (
                partition.fetch_offset,
                partition.last_fetched_epoch,
                log.epochs.latest_epoch,
            )
            if self._records_progress:
                self._record_progress(partition, replica, follower, end)
            partition.is_held_back = read.size > 0 and self.is_held_back(replica)
            if partition.is_held_back:
                return _empty_data(partition, log), 0
        aborted = None
        if read.aborted_transactions is not None:
            aborted = [
                AbortedTransaction(transaction.producer_id, transaction.first_offset)
                for transaction in read.aborted_transactions
            ]
        data = FetchPartitionData(
            partition.index,
            0,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            aborted_transactions=aborted,
            # Some clients do not expect null here.
            records=read.records or b"",
        )
        return data, read.size

    def _check_log_end(self, replica: Replica, offset: int) -> None:
        """Raises NOT_LEADER_OR_FOLLOWER if another replica may have an offset above this log's end.

        A consumer must not take a replica that lags for a log that has lost records: it would reset
        its position.
        """
        partition = replica.partition
        if not partition.is_leader:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"this follower of {partition.key} has not replicated offset {offset} yet",
                remedy="refresh the metadata and fetch from the leader",
            )
        if not partition.confirm_leader(offset, self._context.clock.monotonic_ms()):
            replica.wake_followers()
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"the log of {partition.key} ends before offset {offset}, and another replica may "
                "have been elected",
                remedy="refresh the metadata and retry",
            )

    def _error_data(self, partition: CachedPartition, error: KafkaError) -> FetchPartitionData:
        code = error.code
        if code is ErrorCode.KAFKA_STORAGE_ERROR and (
            self._request.version <= _LAST_WITHOUT_STORAGE_ERROR
        ):
            # Clients that do not know the code would give up; with this one they refresh metadata.
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        data = FetchPartitionData(partition.index, code, -1, -1, -1, records=b"")
        if error.code not in _REFUSED_BEFORE_THE_LOG:
            data.aborted_transactions = None
        moved = error.code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
        if moved and self._request.version >= _FIRST_WITH_LEADER:
            data.current_leader = FetchLeaderIdAndEpoch(
                *self._context.image.leader_of(partition.topic, partition.index)
            )
        return data


def _empty_data(partition: CachedPartition, log: Log) -> FetchPartitionData:
    """Returns the offsets of the log without records."""
    return FetchPartitionData(
        partition.index,
        0,
        log.high_watermark,
        log.last_stable_offset,
        log.log_start_offset,
        records=b"",
    )


def _is_cut(data: FetchPartitionData, replica: Replica | None) -> bool:
    """Whether the log has more records than those that were read."""
    records = data.records
    if replica is None or not isinstance(records, LogSlice):
        return False
    active = replica.log_to_read.local.segments.active
    return records.file is not active.file or records.position + records.size < active.size


def _divergence(log: Log, partition: CachedPartition) -> FetchEpochEndOffset | None:
    """Returns where the client's history leaves the log's (R4); None if they agree."""
    end = log.end_offset_for_epoch(partition.last_fetched_epoch)
    if end is None:
        raise OffsetOutOfRangeError(
            f"{log.partition} has no epoch {partition.last_fetched_epoch}",
            remedy="reset the offset",
        )
    if end.leader_epoch < partition.last_fetched_epoch or end.offset < partition.fetch_offset:
        return FetchEpochEndOffset(end.leader_epoch, end.offset)
    return None
