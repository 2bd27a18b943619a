"""Produce responses that wait until all in-sync replicas have the records, or they are durable.

Both have the timeout of the request, and nothing waits for a client that has disconnected.
"""

import asyncio
from typing import Final, TypeAlias

from penstock.broker.expiry_timer import ExpiryTimer
from penstock.broker.metadata.leader_endpoints import add_produce_endpoints
from penstock.broker.replica.log_flusher import LogFlusher
from penstock.broker.replica.replica import Replica
from penstock.broker.request import Request, Session, WaitingResponse
from penstock.controller.image import ClusterImage
from penstock.core.errors import ErrorCode
from penstock.protocol.fields import Message
from penstock.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceLeaderIdAndEpoch,
    ProduceResponse,
)
from penstock.storage.log.results import LogAppendInfo

_FIRST_WITH_LEADER = 10

# --- replication


class CommitWait:
    """The `OffsetWait` of one batch with acks=all until all in-sync replicas have it."""

    __slots__ = ("offset", "owner", "partition", "replica")

    owner: "CommittedResponse"

    def __init__(self, replica: Replica, offset: int, partition: PartitionProduceResponse) -> None:
        """`offset` is the one after the last record of the batch."""
        self.offset = offset
        self.replica = replica
        self.partition = partition

    def complete(self, code: ErrorCode) -> None:
        self.owner.end_wait(self, code)


class CommittedResponse(WaitingResponse):
    """A response that waits until each batch is committed or has an error."""

    __slots__ = (
        "_close_callbacks",
        "_expiry",
        "_image",
        "_listener",
        "_produce_response",
        "_version",
        "_waits",
        "deadline",
    )

    def __init__(
        self,
        image: ClusterImage,
        request: Request,
        response: ProduceResponse,
        expiry: ExpiryTimer,
    ) -> None:
        super().__init__()
        self.deadline = 0.0
        self._image = image
        self._version = request.version
        self._produce_response = response
        self._listener = request.session.listener
        self._close_callbacks = request.session.close_callbacks
        self._expiry = expiry
        self._waits: list[CommitWait] = []

    def start(self, uncommitted: list[CommitWait], timeout_ms: int) -> bool:
        """Begins the waits; returns False if there are none: the response is complete."""
        for wait in uncommitted:
            replica = wait.replica
            code = replica.commit_result(wait.offset)
            if code is None:
                wait.owner = self
                replica.commit_watchers.add_wait(wait)
                self._waits.append(wait)
            else:
                # The replicas were faster than the appends to the other partitions.
                self._set_result(wait, code)
        if not self._waits:
            return False
        self._close_callbacks.add(self._cancel)
        self._expiry.add(self, timeout_ms / 1000 if timeout_ms > 0 else 0)
        return True

    def end_wait(self, wait: CommitWait, code: ErrorCode) -> None:
        waits = self._waits
        waits.remove(wait)
        if code is not ErrorCode.NONE:
            self._set_result(wait, code)
        if not waits:
            self._expiry.discard(self)
            self._complete()

    def expire(self) -> None:
        """Ends the remaining waits with REQUEST_TIMED_OUT."""
        for wait in self._end_waits():
            self._set_result(wait, ErrorCode.REQUEST_TIMED_OUT)
        self._complete()

    def _set_result(self, wait: CommitWait, code: ErrorCode) -> None:
        set_commit_result(self._image, self._version, wait.replica, wait.partition, code)
        if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            add_produce_endpoints(self._produce_response, self._image, self._listener)

    def _complete(self) -> None:
        self._close_callbacks.discard(self._cancel)
        self.complete(self._produce_response)

    def _cancel(self) -> None:
        """Ends the waits without results: the client has disconnected."""
        self._end_waits()
        self._expiry.discard(self)
        self.cancel()

    def _end_waits(self) -> list[CommitWait]:
        waits, self._waits = self._waits, []
        for wait in waits:
            wait.replica.commit_watchers.discard(wait)
        return waits


_COMMIT_ERRORS: Final = {
    ErrorCode.REQUEST_TIMED_OUT: "the records are appended, but not all in-sync replicas had them "
    "within the request's timeout",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "the records are appended, but fewer replicas than "
    "min.insync.replicas are in sync",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "another broker became the leader before all in-sync "
    "replicas had the records",
    ErrorCode.KAFKA_STORAGE_ERROR: "the log failed before all in-sync replicas had the records",
}


def set_commit_result(
    image: ClusterImage,
    version: int,
    replica: Replica,
    partition: PartitionProduceResponse,
    code: ErrorCode,
) -> None:
    """Adds the outcome of the replication to the response for an appended batch."""
    if code is ErrorCode.NONE:
        return
    topic, index = replica.partition.key
    partition.error_code = code
    partition.error_message = f"{topic}-{index}: {_COMMIT_ERRORS.get(code, code.name)}"
    if code is ErrorCode.NOT_LEADER_OR_FOLLOWER and version >= _FIRST_WITH_LEADER:
        leader, epoch = image.leader_of(topic, index)
        partition.current_leader = ProduceLeaderIdAndEpoch(leader, epoch)


# --- flushes

Flush: TypeAlias = tuple[PartitionProduceResponse, "asyncio.Future[None]"]
"""A flush, and the partition's response that waits for it."""


def begin_flush(
    log_flusher: LogFlusher,
    replica: Replica,
    info: LogAppendInfo,
    partition: PartitionProduceResponse,
    flushes: list[Flush],
) -> None:
    """Flushes on a thread; the response waits only for flushes that `flush.messages` demands."""
    log = replica.log
    if info.is_duplicate and not log.is_flush_due:
        return
    done = log_flusher.flush(log)
    # A duplicate may arrive before the flush for the original batch is complete.
    if info.needs_flush or info.is_duplicate:
        flushes.append((partition, done))


class DurableResponse:
    """A response that waits until its records are durable; `future` gets it.

    Records that could not be flushed get an error, and those that were not flushed when the timeout
    of the request is over get REQUEST_TIMED_OUT, as in Kafka: they may be durable later. Nothing
    waits for a client that has disconnected. It waits for `committed` too, which has a timeout.
    """

    __slots__ = ("_flushes", "_pending", "_response", "_session", "_timeout_ms", "_timer", "future")

    def __init__(
        self,
        response: ProduceResponse,
        flushes: list[Flush],
        timeout_ms: int,
        session: Session,
        committed: WaitingResponse | None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Message] = loop.create_future()
        self._response: ProduceResponse | None = response
        self._flushes = flushes
        self._timeout_ms = timeout_ms
        self._session = session
        self._pending = len(flushes)
        if committed is not None:
            self._pending += 1
            committed.deliver_to(self._on_done)
        session.close_callbacks.add(self._cancel)
        self._timer = loop.call_later(max(timeout_ms, 0) / 1000, self._complete)
        for _, flush in flushes:
            flush.add_done_callback(self._on_done)

    def _on_done(self, done: "Message | asyncio.Future[None]") -> None:
        self._pending -= 1
        if not self._pending:
            self._complete()

    def _complete(self) -> None:
        response = self._response
        if response is None:
            return
        for partition, flush in self._flushes:
            if not flush.done():
                partition.error_code = ErrorCode.REQUEST_TIMED_OUT
                partition.error_message = (
                    f"the records were not flushed within {self._timeout_ms} ms; they may be later"
                )
                continue
            error = flush.exception()
            if error is not None:
                partition.error_code = ErrorCode.KAFKA_STORAGE_ERROR
                partition.base_offset = partition.log_append_time_ms = -1
                partition.log_start_offset = -1
                partition.error_message = f"the records could not be flushed: {error}"
        self._release()
        self.future.set_result(response)

    def _cancel(self) -> None:
        self._release()
        self.future.cancel()

    def _release(self) -> None:
        """Drops everything: a flush that does not end refers to this object."""
        self._timer.cancel()
        self._session.close_callbacks.discard(self._cancel)
        self._response = None
        self._flushes = []
