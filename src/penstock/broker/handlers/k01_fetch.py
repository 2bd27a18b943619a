"""Fetch (1), versions 0 to 18: returns whole batches as stored, straight from the log files.

Batches are not decoded: the response holds file ranges, which the connection sends. A fetch that
finds less than `min_bytes` waits up to `max_wait_ms` in the purgatory (C1). Versions 0 to 3 return
older record formats, which `down_conversion` creates.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from penstock.broker.metadata.leader_endpoints import add_fetch_endpoints
from penstock.broker.pacer import Pacer, Steps, chunks, run_to_end
from penstock.broker.replica import down_conversion
from penstock.broker.replica.down_conversion import DownConversion
from penstock.broker.replica.fetch_reader import NOTHING_READ, FetchReader, NeedsDisk, Ready
from penstock.broker.replica.fetch_sessions import (
    PARTITIONS_AT_ONCE,
    FetchContext,
    FetchSessionCache,
)
from penstock.broker.replica.partition_reader import ReaderContext
from penstock.broker.replica.replica import Replica
from penstock.broker.request import DelayedResponse, HandlerResult, Request, Response
from penstock.broker.workers import Workers
from penstock.core.errors import KafkaError
from penstock.protocol.fields import Message
from penstock.protocol.messages.fetch import (
    FetchRequest,
    FetchResponse,
)
from penstock.replication.purgatory import DelayedFetch, Watchers
from penstock.storage.segment.log_segment import LogSlice

_FIRST_WITH_ENDPOINTS = 16
_FIRST_WITH_TOPIC_IDS = 13


@dataclass(frozen=True, slots=True)
class Context(ReaderContext):
    workers: Workers
    pacer: Pacer
    fetch_sessions: FetchSessionCache


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

    __slots__ = ("_body", "_context", "_fetch_context", "_reader", "_request")

    def __init__(
        self, context: Context, request: Request, body: FetchRequest, fetch_context: FetchContext
    ) -> None:
        self._context = context
        self._request = request
        self._body = body
        self._fetch_context = fetch_context
        self._reader = FetchReader(context, request, body, fetch_context)

    # --- responses

    def respond_or_wait(self, result: Ready) -> "Steps[FetchResponse | asyncio.Future[Message]]":
        if self._body.max_wait_ms <= 0 or self._missing_bytes(result) <= 0:
            return (yield from self._response(result))
        return (yield from self._wait(result))

    async def respond_from_disk(self, needs: NeedsDisk) -> "Response | DelayedResponse":
        result = await self._read_from_disk(needs)
        return await self._context.pacer.complete(self.respond_or_wait(result))

    def _missing_bytes(self, result: Ready) -> int:
        """Returns how many bytes more the response waits for: none if it must not wait."""
        if result.must_respond or result.size >= self._body.min_bytes:
            return 0
        # More than fits into the response is not worth waiting for.
        return min(self._body.min_bytes, self._reader.room()) - result.size

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
        if self._reader.is_follower:
            throttle_ms = 0
            self._record_throttled(result)
        else:
            throttle_ms = self._context.quotas.record_fetch(self._request, result.size)
        if throttle_ms > 0:
            # The records are not sent: the client fetches them again after the throttle time.
            return FetchResponse(throttle_ms, 0, context.session_id, [])
        context.open_session(self._context.clock.monotonic_ms())
        topics = yield from context.responses(result.partitions)
        if result.size:
            self._count_bytes(result)
        response = FetchResponse(0, 0, context.session_id, topics)
        if result.must_respond and self._request.version >= _FIRST_WITH_ENDPOINTS:
            listener = self._request.session.listener
            add_fetch_endpoints(response, self._context.image, listener)
        return response

    def _count_bytes(self, result: Ready) -> None:
        """Counts the records in the traffic of their topics."""
        traffic_of, is_follower = self._context.replicas.traffic, self._reader.is_follower
        for partition, data in result.partitions:
            records = data.records
            if isinstance(records, LogSlice):
                traffic = traffic_of.get(partition.topic)
                if traffic is None:
                    continue
                if is_follower:
                    traffic.replication_bytes_out += records.size
                else:
                    traffic.bytes_out += records.size

    def _record_throttled(self, result: Ready) -> None:
        """Counts what a follower gets of throttled partitions."""
        throttle, by_topic = self._context.leader_throttle, self._context.replicas.by_topic
        if not throttle.is_limited:
            return
        for partition, data in result.partitions:
            replica = by_topic.get(partition.topic, {}).get(partition.index)
            records = data.records
            if (
                isinstance(records, LogSlice)
                and replica is not None
                and throttle.is_throttled(replica)
            ):
                throttle.record(records.size)

    def _wait(self, result: Ready) -> "Steps[asyncio.Future[Message]]":
        """Delays the response until enough bytes can be read, or for `max_wait_ms`."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Message] = loop.create_future()
        close_callbacks = self._request.session.close_callbacks

        def complete() -> None:
            timer.cancel()
            close_callbacks.discard(cancel)
            if future.done():
                return
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

        def complete_soon() -> None:
            changes = self._fetch_context.changes
            if changes is not None and changes.waiting is delayed_fetch:
                changes.waiting = None
            # Other appends of the same time, to other partitions too, are part of the response.
            loop.call_soon(complete)

        delayed_fetch = DelayedFetch(
            self._missing_bytes(result),
            complete_soon if self._reader.is_follower else complete,
            self._count_missing,
        )
        timer = loop.call_later(self._body.max_wait_ms / 1000, delayed_fetch.complete)
        close_callbacks.add(cancel)
        try:
            yield from self._watch(delayed_fetch)
        except KafkaError:
            cancel()
            raise
        return future

    def _read_and_respond(self) -> Steps[FetchResponse]:
        return (yield from self._response((yield from self._reader.read())))

    def _watch(self, delayed_fetch: DelayedFetch) -> Steps[None]:
        """Adds the fetch to the purgatories of its partitions, or to its follower's session."""
        changes = self._fetch_context.changes
        if changes is not None:
            changes.waiting = delayed_fetch
            if len(self._fetch_context.partitions) > PARTITIONS_AT_ONCE:
                yield from self._read_again(delayed_fetch)
            return
        watchers_of = self._watchers_of
        find = self._context.replicas.find
        partitions = list(self._fetch_context.partitions.values())
        for chunk in chunks(partitions, PARTITIONS_AT_ONCE):
            replicas = [find(partition.topic, partition.index) for partition in chunk]
            delayed_fetch.watch(
                watchers_of(replica)
                for replica in replicas
                if not self._reader.is_held_back(replica)
            )
            if len(partitions) > PARTITIONS_AT_ONCE:
                yield
        if len(partitions) > PARTITIONS_AT_ONCE:
            yield from self._read_again(delayed_fetch)

    def _read_again(self, delayed_fetch: DelayedFetch) -> Steps[None]:
        """Completes the fetch if records were appended during pauses, before it was watched."""
        result = yield from self._reader.read()
        if self._missing_bytes(result) <= 0:
            delayed_fetch.complete()

    def _watchers_of(self, replica: Replica) -> Watchers:
        if self._reader.is_follower:
            return replica.delayed_follower_fetches
        if self._reader.is_committed:
            return replica.delayed_committed_fetches
        return replica.delayed_fetches

    def _count_missing(self) -> int:
        if len(self._fetch_context.partitions) > PARTITIONS_AT_ONCE:
            return 0  # reading them all takes too long for the append that calls this
        return self._missing_bytes(run_to_end(self._reader.read()))

    # --- reading

    def read(self) -> Steps[Ready | NeedsDisk]:
        return self._reader.read_cached()

    async def _read_from_disk(self, needs: NeedsDisk) -> Ready:
        """Loads on a thread what the search for the offsets needs, then reads.

        The connection reads the records themselves, piece by piece as it sends them.
        """
        workers = self._context.workers
        for read in needs.reads:
            # A disk error shows again in the read itself, which reports it.
            with suppress(OSError):
                await workers.run(workers.read_pool(read.file.path), read.run)
        return await self._context.pacer.complete(self._reader.read())
