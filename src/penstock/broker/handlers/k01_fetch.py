"""Fetch (1), versions 0 to 18: returns whole batches as stored, straight from the log files.

Batches are not decoded: the response holds file ranges, which the connection sends. A fetch that
finds less than `min_bytes` waits up to `max_wait_ms` in the purgatory (C1). Versions 0 to 3 return
older record formats, which `down_conversion` creates.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.pacer import Pacer, Steps, chunks, run_to_end
from penstock.broker.replica import down_conversion
from penstock.broker.replica.down_conversion import SEARCHED_BYTES, DownConversion
from penstock.broker.replica.fetch_sessions import (
    PARTITIONS_AT_ONCE,
    CachedPartition,
    FetchContext,
    FetchSessionCache,
)
from penstock.broker.replica.replica_manager import Replica, ReplicaManager
from penstock.broker.request import DelayedResponse, HandlerResult, Request, Response
from penstock.broker.security.client_quota_manager import ClientQuotaManager
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.broker.workers import Workers
from penstock.controller.image import ClusterImage
from penstock.core.clock import Clock
from penstock.core.errors import ErrorCode, KafkaError, OffsetOutOfRangeError
from penstock.protocol.fields import ZERO_UUID, Message
from penstock.protocol.messages.fetch import (
    AbortedTransaction,
    FetchEpochEndOffset,
    FetchLeaderIdAndEpoch,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
)
from penstock.replication.purgatory import DelayedFetch
from penstock.security.acl import AclOperation, ResourceType
from penstock.storage.log.log import Log
from penstock.storage.log.read_ahead import ReadAhead
from penstock.storage.log.results import FetchIsolation
from penstock.storage.segment.log_segment import LogSlice

_FIRST_WITH_LEADER = 12
_FIRST_WITH_TOPIC_IDS = 13
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
class Context:
    config: BrokerConfig
    clock: Clock
    workers: Workers
    pacer: Pacer
    image: ClusterImage
    replicas: ReplicaManager
    authorizer: RequestAuthorizer
    quotas: ClientQuotaManager
    fetch_sessions: FetchSessionCache


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


def handle(context: Context, request: Request, body: FetchRequest) -> HandlerResult:
    return context.pacer.run(_steps(context, request, body))


def _steps(context: Context, request: Request, body: FetchRequest) -> Steps[HandlerResult]:
    try:
        fetch_context = yield from context.fetch_sessions.open(
            body,
            uses_topic_ids=request.version >= _FIRST_WITH_TOPIC_IDS,
            name_of=lambda topic_id: context.image.topic_names.get(topic_id, ""),
            now_ms=context.clock.monotonic_ms(),
        )
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    fetch = _Fetch(context, request, body, fetch_context)
    if request.version <= down_conversion.LAST_VERSION:
        return fetch.respond_converted()
    result = yield from fetch.read()
    if isinstance(result, NeedsDisk):
        return fetch.respond_from_disk(result)
    return (yield from fetch.respond_or_wait(result))


class _Fetch:
    """One request. It may read twice: when it arrives and when its wait is over."""

    __slots__ = (
        "_body",
        "_context",
        "_fetch_context",
        "_is_converted",
        "_isolation",
        "_replica_id",
        "_request",
    )

    def __init__(
        self, context: Context, request: Request, body: FetchRequest, fetch_context: FetchContext
    ) -> None:
        self._context = context
        self._request = request
        self._body = body
        self._fetch_context = fetch_context
        committed = body.isolation_level == _READ_COMMITTED
        self._isolation = (
            FetchIsolation.TXN_COMMITTED if committed else FetchIsolation.HIGH_WATERMARK
        )
        self._replica_id = max(body.replica_id, body.replica_state.replica_id)
        """The broker that fetches; negative for consumers."""
        self._is_converted = request.version <= down_conversion.LAST_VERSION

    # --- responses

    def respond_or_wait(self, result: Ready) -> "Steps[FetchResponse | DelayedResponse]":
        if self._body.max_wait_ms <= 0 or self._missing_bytes(result) <= 0:
            return (yield from self._response(result))
        return (yield from self._wait(result))

    async def respond_from_disk(self, needs: NeedsDisk) -> "Response | DelayedResponse":
        result = await self._read_from_disk(needs)
        return await self._context.pacer.complete(self.respond_or_wait(result))

    def _missing_bytes(self, result: Ready) -> int:
        """Returns how many bytes more the response waits for: none if it must not wait."""
        if result.must_respond:
            return 0
        # More than fits into the response is not worth waiting for.
        return min(self._body.min_bytes, self._room()) - result.size

    def _room(self) -> int:
        """Returns the most bytes of records in the response, except for a larger first batch."""
        room = min(self._body.max_bytes, self._context.config.int("fetch.max.bytes"))
        return self._context.quotas.fetch_room(self._request, room)

    async def respond_converted(self) -> "Response | DelayedResponse":
        """Responds to a client that reads older formats than the log has."""
        context, body = self._context, self._body
        conversion = DownConversion(
            context.replicas,
            context.workers,
            self._request.version,
            body.max_bytes,
            self._fetch_context.partitions,
        )
        pacer = context.pacer
        result = await pacer.complete(self.read())
        if isinstance(result, NeedsDisk):
            result = await self._read_from_disk(result)
        delayed = await pacer.complete(self.respond_or_wait(result))
        if isinstance(delayed, FetchResponse):
            response = delayed
            has_content = await conversion.convert(response)
            if has_content or min(body.min_bytes, body.max_wait_ms) <= 0:
                return response
            try:
                delayed = await pacer.complete(self._wait(NOTHING_READ))
            except KafkaError:
                # A partition was removed during the conversion: the next fetch has the error.
                return response

        async def convert_delayed() -> Message:
            response = await delayed
            assert isinstance(response, FetchResponse)
            await conversion.convert(response)
            return response

        return asyncio.get_running_loop().create_task(convert_delayed())

    def _response(self, result: Ready) -> Steps[FetchResponse]:
        context = self._fetch_context
        throttle_ms = self._context.quotas.record_fetch(self._request, result.size)
        if throttle_ms > 0:
            # The records are not sent: the client fetches them again after the throttle time.
            return FetchResponse(throttle_ms, 0, context.session_id, [])
        context.open_session(self._context.clock.monotonic_ms())
        topics = yield from context.responses(result.partitions)
        return FetchResponse(0, 0, context.session_id, topics)

    def _wait(self, result: Ready) -> Steps[DelayedResponse]:
        """Delays the response until enough bytes can be read, or for `max_wait_ms`."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Message] = loop.create_future()
        close_callbacks = self._request.session.close_callbacks

        def complete() -> None:
            timer.cancel()
            close_callbacks.discard(cancel)
            try:
                response = self._context.pacer.run(self._read_and_respond())
            except Exception as error:  # noqa: BLE001 - the append that completes it must not fail
                future.set_exception(error)
                return
            if isinstance(response, FetchResponse):
                future.set_result(response)
            else:
                loop.create_task(response).add_done_callback(respond)

        def respond(done: "asyncio.Task[FetchResponse]") -> None:
            if done.cancelled() or future.done():
                return
            error = done.exception()
            if error is None:
                future.set_result(done.result())
            else:
                future.set_exception(error)

        def cancel() -> None:
            timer.cancel()
            delayed_fetch.cancel()
            future.cancel()

        delayed_fetch = DelayedFetch(self._missing_bytes(result), complete, self._count_missing)
        timer = loop.call_later(self._body.max_wait_ms / 1000, delayed_fetch.complete)
        close_callbacks.add(cancel)
        try:
            yield from self._watch(delayed_fetch)
        except KafkaError:
            cancel()
            raise
        return future

    def _read_and_respond(self) -> Steps[FetchResponse]:
        return (yield from self._response((yield from self._read(None))))

    def _watch(self, delayed_fetch: DelayedFetch) -> Steps[None]:
        """Adds the fetch to the purgatories of its partitions."""
        is_committed = self._isolation is FetchIsolation.TXN_COMMITTED
        find = self._context.replicas.find
        partitions = list(self._fetch_context.partitions.values())
        for chunk in chunks(partitions, PARTITIONS_AT_ONCE):
            replicas = [find(partition.topic, partition.index) for partition in chunk]
            delayed_fetch.watch(
                replica.delayed_committed_fetches if is_committed else replica.delayed_fetches
                for replica in replicas
            )
            if len(partitions) > PARTITIONS_AT_ONCE:
                yield
        if len(partitions) > PARTITIONS_AT_ONCE:
            # Records may have been appended during the pauses, while no partition was watched.
            result = yield from self._read(None)
            if self._missing_bytes(result) <= 0:
                delayed_fetch.complete()

    def _count_missing(self) -> int:
        if len(self._fetch_context.partitions) > PARTITIONS_AT_ONCE:
            return 0  # reading them all takes too long for the append that calls this
        return self._missing_bytes(run_to_end(self._read(None)))

    # --- reading

    def read(self) -> Steps[Ready | NeedsDisk]:
        """Reads all partitions unless that would block the event loop on a disk."""
        cold_reads: list[ReadAhead] = []
        result = yield from self._read(cold_reads)
        return NeedsDisk(cold_reads) if cold_reads else result

    async def _read_from_disk(self, needs: NeedsDisk) -> Ready:
        """Loads on a thread what the search for the offsets needs, then reads.

        The connection reads the records themselves, piece by piece as it sends them.
        """
        workers = self._context.workers
        for read in needs.reads:
            # A disk error shows again in the read itself, which reports it.
            with suppress(OSError):
                await workers.run(workers.flush, read.run)
        return await self._context.pacer.complete(self._read(None))

    def _read(self, cold_reads: list[ReadAhead] | None) -> Steps[Ready]:
        """Reads all partitions; those that would block are added to `cold_reads` instead.

        None reads them all: records that were just appended or loaded are in memory.

        In a session, partitions without anything new are left out. When the response is full, so
        are the partitions that follow: the next response begins with them.
        """
        results: PartitionResults = []
        incremental = self._fetch_context.incremental
        room = self._room()
        total = 0
        until_pause = PARTITIONS_AT_ONCE
        must_respond = not self._fetch_context.partitions
        topic: str | None = None
        allowed = False
        hosted: Mapping[int, Replica] = {}
        for partition in list(self._fetch_context.partitions.values()):
            until_pause -= 1
            if not until_pause:
                yield
                until_pause = PARTITIONS_AT_ONCE
                topic = None
            if partition.topic != topic:
                topic = partition.topic
                allowed = self._allows(topic)
                hosted = self._context.replicas.by_topic.get(topic, {})
            remaining = room - total
            if incremental and remaining <= 0 < total:
                break
            try:
                if not allowed:
                    raise self._authorization_error(topic)
                if incremental and self._is_unchanged(partition, hosted.get(partition.index)):
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
            if data.error_code or data.diverging_epoch.epoch >= 0:
                must_respond = True
            elif size:
                total += size
                if remaining < partition.max_bytes and _is_cut(data, hosted.get(partition.index)):
                    must_respond = True
            elif total and remaining < partition.max_bytes and self._has_more(partition, data):
                must_respond = True
                if incremental:
                    break
            results.append((partition, data))
        return Ready(results, total, must_respond)

    def _allows(self, topic: str) -> bool:
        """Consumers need READ on the topic, brokers CLUSTER_ACTION (X3)."""
        authorizer, session = self._context.authorizer, self._request.session
        if self._replica_id >= 0:
            return authorizer.allows_cluster(session, AclOperation.CLUSTER_ACTION)
        # An unknown topic id is not a secret.
        return not topic or authorizer.allows(session, AclOperation.READ, ResourceType.TOPIC, topic)

    def _authorization_error(self, topic: str) -> KafkaError:
        session = self._request.session
        if self._replica_id < 0:
            return self._context.authorizer.error(
                session, AclOperation.READ, ResourceType.TOPIC, topic
            )
        return KafkaError(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            f"{session.principal} at {session.host} may not fetch as broker {self._replica_id}",
            remedy="add an ACL that allows CLUSTER_ACTION, or fetch as a consumer, "
            "with replica id -1",
        )

    def _log_of(self, partition: CachedPartition) -> Log:
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
        log = replica.leader_log(partition.leader_epoch)
        if self._replica_id >= 0:
            # With the current epoch the follower may know of a reassignment first; it retries.
            raise KafkaError(
                ErrorCode.UNKNOWN_LEADER_EPOCH
                if partition.leader_epoch >= 0
                else ErrorCode.NOT_LEADER_OR_FOLLOWER,
                (f"broker {self._replica_id} has no replica of {replica.partition.key}"),
                remedy="fetch as a consumer, with replica id -1",
            )
        return log

    def _is_unchanged(self, cached: CachedPartition, replica: Replica | None) -> bool:
        """Whether the client has all records and the offsets of the last response still hold.

        Consumers have many partitions and most are quiet: with 500 of them a fetch takes 0.25 ms
        instead of the 2.2 ms of reading them all.
        """
        if (
            replica is None
            or replica is not cached.verified_replica
            or cached.last_fetched_epoch >= 0
        ):
            return False
        partition = replica.partition
        if not partition.is_leader or cached.leader_epoch not in (-1, partition.leader_epoch):
            return False
        log = replica.log
        end = log.high_watermark
        if cached.high_watermark != end or cached.log_start_offset != log.log_start_offset:
            return False
        if self._isolation is FetchIsolation.TXN_COMMITTED:
            end = log.last_stable_offset
        return cached.fetch_offset == end

    def _has_more(self, partition: CachedPartition, data: FetchPartitionData) -> bool:
        """Whether the partition has records that did not fit into the response."""
        committed = self._isolation is FetchIsolation.TXN_COMMITTED
        end = data.last_stable_offset if committed else data.high_watermark
        return partition.fetch_offset < end

    def _read_partition(
        self, partition: CachedPartition, room: int, *, min_one: bool, may_block: bool
    ) -> tuple[FetchPartitionData, int] | ReadAhead:
        """Returns the data and its size, or the read to run first if the read would block."""
        log = self._log_of(partition)
        if self._is_converted:
            down_conversion.check_topic(self._context.config, self._context.image, partition.topic)
            if self._request.version <= down_conversion.LAST_WITH_HARD_LIMIT:
                # The conversion truncates what is too large, so the first message is visible.
                min_one = partition.max_bytes > 0 and (min_one or room >= partition.max_bytes)
        if partition.last_fetched_epoch >= 0:
            diverging = _divergence(log, partition)
            if diverging is not None:
                nothing = FetchPartitionData(
                    partition.index,
                    0,
                    log.high_watermark,
                    log.last_stable_offset,
                    log.log_start_offset,
                    diverging_epoch=diverging,
                    records=b"",
                )
                return nothing, 0
        if not may_block:
            ahead = ReadAhead.of(log, partition.fetch_offset, SEARCHED_BYTES)
            if ahead is not None:
                return ahead
        limit = min(partition.max_bytes, max(room, 0))
        read = log.read(partition.fetch_offset, limit, self._isolation, min_one=min_one)
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


def _is_cut(data: FetchPartitionData, replica: Replica | None) -> bool:
    """Whether the log has more records than those that were read."""
    records = data.records
    if replica is None or not isinstance(records, LogSlice):
        return False
    active = replica.log.local.segments.active
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
