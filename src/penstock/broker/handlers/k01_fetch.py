"""Fetch (1): versions 0 to 18 read whole batches as they lie in the log, straight from its files.

Batches are not decoded: the answer holds file ranges, which the connection sends. A fetch that
finds less than `min_bytes` waits up to `max_wait_ms` in the purgatory (C1). For versions 0 to 3,
which want older record formats, `down_conversion` makes messages of what was found.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.broker.replica import down_conversion
from penstock.broker.replica.down_conversion import SEARCHED_BYTES, DownConversion
from penstock.broker.replica.fetch_sessions import Entry, FetchContext
from penstock.broker.replica.replica_manager import Replica
from penstock.broker.request import DelayedResponse, HandlerResult, Request, Response
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
from penstock.replication.purgatory import Waiter, WatchList
from penstock.security.acl import AclOperation, ResourceType
from penstock.storage.log.log import Log
from penstock.storage.log.read_ahead import ReadAhead
from penstock.storage.log.results import FetchIsolation

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

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
"""These answers have an empty list of aborted transactions, all other errors have none."""


def handle(broker: "Broker", request: Request, body: FetchRequest) -> HandlerResult:
    try:
        context = broker.fetch_sessions.open(
            body,
            uses_topic_ids=request.version >= _FIRST_WITH_TOPIC_IDS,
            name_of=lambda topic_id: broker.image.topic_names.get(topic_id, ""),
            now_ms=broker.clock.monotonic_ms(),
        )
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    fetch = _Fetch(broker, request, body, context)
    if fetch.conversion is not None:
        return fetch.reply_converted(fetch.conversion)
    reply = fetch.reply()
    return fetch.reply_once_warm() if reply is None else reply


class _Fetch:
    """One request: it may read twice, when it comes and when its wait is over."""

    __slots__ = (
        "_body",
        "_broker",
        "_cold",
        "_context",
        "_isolation",
        "_replica_id",
        "_request",
        "conversion",
    )

    def __init__(
        self, broker: "Broker", request: Request, body: FetchRequest, context: FetchContext
    ) -> None:
        self._broker = broker
        self._request = request
        self._body = body
        self._context = context
        committed = body.isolation_level == _READ_COMMITTED
        self._isolation = (
            FetchIsolation.TXN_COMMITTED if committed else FetchIsolation.HIGH_WATERMARK
        )
        self._replica_id = max(body.replica_id, body.replica_state.replica_id)
        """The broker that fetches; negative for consumers."""
        self.conversion: DownConversion | None = None
        if request.version <= down_conversion.LAST_VERSION:
            self.conversion = DownConversion(
                broker, request.version, body.max_bytes, context.entries
            )
        self._cold: list[ReadAhead] | None = []
        """What must come from the disk before it can be found; None once it has."""

    def reply(self) -> "Message | asyncio.Future[Message] | None":
        """The answer, or the wait for one; None where cold data must be read first."""
        found, size, complete = self.read()
        if self._cold:
            return None
        # More than fits into the answer is not worth waiting for.
        min_bytes = min(self._body.min_bytes, self._body.max_bytes)
        if complete or size >= min_bytes or self._body.max_wait_ms <= 0:
            return self.answer(found, size)
        return self.wait(min_bytes - size)

    async def reply_once_warm(self) -> "Response | DelayedResponse":
        """Reads on a thread what the search for the offsets needs, then replies.

        The records themselves are the connection's to read: it sends them piece by piece.
        """
        workers = self._broker.workers
        for each in self._cold or []:
            # A disk that fails is met again by the read itself, which says so.
            with suppress(OSError):
                await workers.run(workers.flush, each.run)
        self._cold = None
        reply = self.reply()
        assert reply is not None
        return reply

    async def reply_converted(self, conversion: DownConversion) -> "Response | DelayedResponse":
        """`reply` for a client that reads older formats than the log has."""
        reply = self.reply()
        waiting = await self.reply_once_warm() if reply is None else reply
        if isinstance(waiting, FetchResponse):
            answer = waiting
            says_something = await conversion.convert(answer)
            if says_something or min(self._body.min_bytes, self._body.max_wait_ms) <= 0:
                return answer
            try:
                waiting = self.wait(self._body.min_bytes)
            except KafkaError:
                # A partition went while others were converted: the next fetch is told.
                return answer
        assert isinstance(waiting, asyncio.Future)

        async def converted() -> Message:
            answer = await waiting
            assert isinstance(answer, FetchResponse)
            await conversion.convert(answer)
            return answer

        return asyncio.get_running_loop().create_task(converted())

    def read(self) -> tuple[list[tuple[Entry, FetchPartitionData]], int, bool]:
        """What there is for each partition, its size, and whether the answer cannot wait.

        In a session, partitions are left out of which there is nothing new to say. Where the answer
        is full, so are those that come next: they have their turn in the following one.
        """
        found = []
        incremental = self._context.incremental
        room = min(self._body.max_bytes, self._broker.config.int("fetch.max.bytes"))
        room = self._broker.quotas.fetch_room(self._request, room)
        total = 0
        # An error cannot wait, and a client that asks for nothing shall not.
        complete = not self._context.entries
        topic: str | None = None
        allowed = False
        hosted: Mapping[int, Replica] = {}
        for entry in self._context.entries.values():
            if entry.topic != topic:
                topic = entry.topic
                allowed = self._allows(topic)
                hosted = self._broker.replicas.by_topic.get(topic, {})
            left = room - total
            if incremental and left <= 0 < total:
                break
            try:
                if not allowed:
                    raise self._refusal(topic)
                if incremental and self._is_old_news(entry, hosted.get(entry.partition)):
                    continue
                data, size = self._read_one(entry, left, min_one=total == 0)
            except KafkaError as error:
                data, size = self._failed(entry, error), 0
            if data.error_code or data.diverging_epoch.epoch >= 0:
                complete = True
            elif size:
                total += size
            elif incremental and total and left < entry.max_bytes and self._has_more(entry, data):
                break
            found.append((entry, data))
        return found, total, complete

    def _allows(self, topic: str) -> bool:
        """Consumers need READ of the topic, brokers CLUSTER_ACTION (X3)."""
        authorizer, session = self._broker.authorizer, self._request.session
        if self._replica_id >= 0:
            return authorizer.allows_cluster(session, AclOperation.CLUSTER_ACTION)
        # A topic id that nobody knows is no secret.
        return not topic or authorizer.allows(session, AclOperation.READ, ResourceType.TOPIC, topic)

    def _refusal(self, topic: str) -> KafkaError:
        session = self._request.session
        if self._replica_id < 0:
            return self._broker.authorizer.refusal(
                session, AclOperation.READ, ResourceType.TOPIC, topic
            )
        return KafkaError(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            f"{session.principal} at {session.host} may not fetch as broker {self._replica_id}: "
            f"add an ACL that allows CLUSTER_ACTION, or fetch as a consumer, with replica id -1",
        )

    def _log_of(self, entry: Entry) -> Log:
        if not entry.topic:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_ID,
                f"no topic has the id {entry.topic_id}: it was deleted; refresh the metadata",
            )
        replica = self._broker.replicas.find(entry.topic, entry.partition)
        if replica is not entry.checked:
            if replica.partition.topic_id != entry.topic_id != ZERO_UUID:
                raise KafkaError(
                    ErrorCode.INCONSISTENT_TOPIC_ID,
                    f"topic {entry.topic!r} was deleted and made again: refresh the metadata",
                )
            entry.checked = replica
        log = replica.leading(entry.leader_epoch)
        if self._replica_id >= 0:
            # With an epoch, which is ours, it may know of a change before us; it tries again.
            raise KafkaError(
                ErrorCode.UNKNOWN_LEADER_EPOCH
                if entry.leader_epoch >= 0
                else ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {self._replica_id} has no replica of {replica.partition.key}: fetch as a "
                f"consumer, with replica id -1",
            )
        return log

    def _is_old_news(self, entry: Entry, replica: Replica | None) -> bool:
        """Whether the client has read all and was told what else there is to say.

        Consumers have many partitions and most are quiet, so this takes no detours.
        """
        if replica is None or replica is not entry.checked or entry.last_fetched_epoch >= 0:
            return False
        partition = replica.partition
        if not partition.is_leader or entry.leader_epoch not in (-1, partition.leader_epoch):
            return False
        log = replica.log
        end = log.high_watermark
        if entry.high_watermark != end or entry.log_start_offset != log.log_start_offset:
            return False
        if self._isolation is FetchIsolation.TXN_COMMITTED:
            end = log.last_stable_offset
        return entry.fetch_offset == end

    def _has_more(self, entry: Entry, data: FetchPartitionData) -> bool:
        """Whether there are records that did not fit."""
        committed = self._isolation is FetchIsolation.TXN_COMMITTED
        return entry.fetch_offset < (data.last_stable_offset if committed else data.high_watermark)

    def _read_one(
        self, entry: Entry, room: int, *, min_one: bool
    ) -> tuple[FetchPartitionData, int]:
        log = self._log_of(entry)
        if self.conversion is not None:
            down_conversion.check_topic(self._broker, entry.topic)
            if self._request.version <= down_conversion.LAST_WITH_HARD_LIMIT:
                # What is too large is cut after the conversion, and so the first message is seen.
                min_one = entry.max_bytes > 0 and (min_one or room >= entry.max_bytes)
        if entry.last_fetched_epoch >= 0:
            diverging = _divergence(log, entry)
            if diverging is not None:
                nothing = FetchPartitionData(
                    entry.partition,
                    0,
                    log.high_watermark,
                    log.last_stable_offset,
                    log.log_start_offset,
                    diverging_epoch=diverging,
                    records=b"",
                )
                return nothing, 0
        if self._cold is not None:
            ahead = ReadAhead.of(log, entry.fetch_offset, SEARCHED_BYTES)
            if ahead is not None:
                self._cold.append(ahead)
                return FetchPartitionData(entry.partition, records=b""), 0
        limit = min(entry.max_bytes, max(room, 0))
        read = log.read(entry.fetch_offset, limit, self._isolation, min_one=min_one)
        aborted = None
        if read.aborted_transactions is not None:
            aborted = [
                AbortedTransaction(each.producer_id, each.first_offset)
                for each in read.aborted_transactions
            ]
        data = FetchPartitionData(
            entry.partition,
            0,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            aborted_transactions=aborted,
            # Some clients do not expect null here.
            records=read.records or b"",
        )
        return data, read.size

    def _failed(self, entry: Entry, error: KafkaError) -> FetchPartitionData:
        code = error.code
        if code is ErrorCode.KAFKA_STORAGE_ERROR and (
            self._request.version <= _LAST_WITHOUT_STORAGE_ERROR
        ):
            # Clients that do not know it would give up; so they refresh their metadata.
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        data = FetchPartitionData(entry.partition, code, -1, -1, -1, records=b"")
        if error.code not in _REFUSED_BEFORE_THE_LOG:
            data.aborted_transactions = None
        moved = error.code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
        if moved and self._request.version >= _FIRST_WITH_LEADER:
            data.current_leader = FetchLeaderIdAndEpoch(
                *self._broker.leader_of(entry.topic, entry.partition)
            )
        return data

    def answer(self, found: Iterable[tuple[Entry, FetchPartitionData]], size: int) -> FetchResponse:
        context = self._context
        throttle_ms = self._broker.quotas.fetched(self._request, size)
        if throttle_ms > 0:
            # The records stay where they are: the client asks again when its time has come.
            return FetchResponse(throttle_ms, 0, context.session_id, [])
        return FetchResponse(0, 0, context.session_id, context.responses(found))

    def wait(self, missing: int) -> "asyncio.Future[Message]":
        """Answers when `missing` bytes more have come, or time is up."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Message] = loop.create_future()
        # What comes meanwhile is in memory, and there was nothing else to read.
        self._cold = None

        left = self._request.session.left

        def finished() -> None:
            timer.cancel()
            left.discard(gone)
            try:
                found, size, _ = self.read()
                future.set_result(self.answer(found, size))
            except Exception as error:  # noqa: BLE001 - it is not the fault of who woke it
                future.set_exception(error)

        def gone() -> None:
            timer.cancel()
            waiter.abandon()
            future.cancel()

        waiter = Waiter(missing, finished)
        timer = loop.call_later(self._body.max_wait_ms / 1000, waiter.finish)
        left.add(gone)
        waiter.watch(self._watch_lists())
        return future

    def _watch_lists(self) -> Iterable[WatchList]:
        for entry in self._context.entries.values():
            replica = self._broker.replicas.find(entry.topic, entry.partition)
            if self._isolation is FetchIsolation.TXN_COMMITTED:
                yield replica.committed_waiters
            else:
                yield replica.waiters


def _divergence(log: Log, entry: Entry) -> FetchEpochEndOffset | None:
    """Where the client's history left the log's (R4); None where they agree."""
    end = log.end_offset_for_epoch(entry.last_fetched_epoch)
    if end is None:
        raise OffsetOutOfRangeError(
            f"{log.partition} knows nothing of epoch {entry.last_fetched_epoch}: reset the offset"
        )
    if end.leader_epoch < entry.last_fetched_epoch or end.offset < entry.fetch_offset:
        return FetchEpochEndOffset(end.leader_epoch, end.offset)
    return None
