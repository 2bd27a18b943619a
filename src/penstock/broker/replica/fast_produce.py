"""The fast path of small Produce requests: one batch for one partition.

A producer without `linger.ms` sends the same bytes up to the records again and again. They are
cached with the replica that they name and the response except for its offsets, so that the request
is not decoded and the response is not encoded: 8 instead of 27 µs per request, of which the append
itself takes 5.
"""

import struct
from time import perf_counter
from typing import Final, NamedTuple, cast

from penstock.broker.expiry_timer import ExpiryTimer
from penstock.broker.handlers.k00_produce import (
    append_error_response,
    error_response,
    single_batch,
)
from penstock.broker.metadata.leader_endpoints import add_produce_endpoints
from penstock.broker.metrics.request_metrics import ApiMetrics
from penstock.broker.replica.delayed_produce import set_commit_result
from penstock.broker.replica.log_flusher import LogFlusher
from penstock.broker.replica.replica import Replica
from penstock.broker.replica.replica_manager import ReplicaManager
from penstock.broker.security.client_quota_manager import ClientQuotaManager
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.controller.image import ClusterImage
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.internal_topics import INTERNAL_TOPICS
from penstock.net.server.connection import Connection, PendingResponse
from penstock.protocol.codec import decode
from penstock.protocol.frames import encode_response
from penstock.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from penstock.records.batch import FLAGS_AT, HEADER_SIZE, MAGIC, MAGIC_AT

VERSIONS: Final = range(9, 13)
"""Flexible versions that name the topic."""
MAX_RECORDS_BYTES: Final = 8192
"""So few bytes are never slow to validate; for more the decoding hardly matters."""

_NAME_AT: Final = 8
"""Position of the topic name: after transactional id (null), acks, timeout and one topic."""
_AFTER_NAME: Final = 14
"""The same plus the name's length, one partition and its index."""
_LAST_TAGS: Final = b"\0\0\0"
_OFFSETS: Final = struct.Struct(">qqq")
_MARKS: Final = (0x7A7A7A7A01, 0x7A7A7A7A02, 0x7A7A7A7A03)
"""Stand for the offsets when a response is encoded as a template."""
_RESPONSE_PREFIX_AT: Final = 8
_MAX_CACHED: Final = 4096
_NEVER: Final = 2**63 - 1
"""`flush.messages` of a log whose appends are acknowledged before they are durable."""


class CachedRequest(NamedTuple):
    """The decoded form of all requests that have the same bytes before their records."""

    replica: Replica
    acks: int
    timeout_s: float
    layout: struct.Struct
    """The response: length, correlation id, prefix, three offsets, suffix."""
    length: bytes
    response_prefix: bytes
    response_suffix: bytes


class WaitingProduce(PendingResponse):
    """A response that waits until all in-sync replicas have the records (an `OffsetWait`)."""

    __slots__ = (
        "cached",
        "deadline",
        "handled",
        "offset",
        "owner",
        "response",
        "started",
        "version",
    )

    deadline: float

    def __init__(
        self,
        owner: "FastProduce",
        connection: Connection,
        version: int,
        cached: CachedRequest,
        offset: int,
        response: bytes,
        started: float,
    ) -> None:
        # As in the base class, without the call.
        self.connection = connection
        self.parts = None
        self.held_bytes = 0
        self.is_grouped = True
        self.owner = owner
        self.version = version
        self.cached = cached
        self.offset = offset
        self.response = response
        self.started = started
        """When the request began; 0 if it is not measured."""
        self.handled = perf_counter() if started else 0.0

    def complete(self, code: ErrorCode) -> None:
        self.owner.expiry.discard(self)
        if self.started:
            self._record()
        if code is ErrorCode.NONE:
            self.send((self.response,))
        else:
            self.owner.respond_uncommitted(self, code)

    def expire(self) -> None:
        self.cached.replica.commit_watchers.discard(self)
        if self.started:
            self._record()
        self.owner.respond_uncommitted(self, ErrorCode.REQUEST_TIMED_OUT)

    def _record(self) -> None:
        now, started = perf_counter(), self.started
        self.owner.metrics.record(started, started, self.handled, now, now)


class FastProduce:
    """Caches request prefixes until the cluster's metadata changes."""

    def __init__(
        self,
        image: ClusterImage,
        replicas: ReplicaManager,
        log_flusher: LogFlusher,
        authorizer: RequestAuthorizer,
        quotas: ClientQuotaManager,
        expiry: ExpiryTimer,
        metrics: ApiMetrics,
    ) -> None:
        self._image = image
        self._replicas = replicas
        self._log_flusher = log_flusher
        self._authorizer = authorizer
        self._quotas = quotas
        self._cache: dict[tuple[int, bytes], CachedRequest | None] = {}
        """By version and prefix; None for requests that always take the normal path."""
        self.expiry = expiry
        self.metrics = metrics

    def clear(self) -> None:
        """Empties the cache: leaders, topics or settings have changed."""
        self._cache.clear()

    def try_handle(
        self,
        connection: Connection,
        version: int,
        correlation_id: int,
        frame: memoryview,
        position: int,
    ) -> bool:
        """Appends and responds if the request, whose body is at `position`, is simple enough.

        Returns False, without any effect, for any other request: the handler must handle it. The
        response is the handler's, byte for byte.
        """
        if self._authorizer.acl_authorizer is not None or self._quotas.limits.enabled:
            return False
        try:
            name_size = frame[position + _NAME_AT]
            prefix_end = position + _AFTER_NAME + name_size - 1
            size = frame[prefix_end]
            start = prefix_end + 1
            if size > 0x7F:
                size = size & 0x7F | frame[start] << 7
                start += 1
        except IndexError:
            return False
        end = start + size - 1
        records = frame[start:end]
        if (
            name_size > 0x7F
            or not HEADER_SIZE < size <= MAX_RECORDS_BYTES
            or frame[end:].tobytes() != _LAST_TAGS
            or records[MAGIC_AT] != MAGIC
            or records[FLAGS_AT]
        ):
            return False
        key = (version, frame[position:prefix_end].tobytes())
        try:
            cached = self._cache[key]
        except KeyError:
            cached = self._add(key, frame, position)
        if cached is None:
            return False
        replica, acks, timeout_s, layout, length, prefix, suffix = cached
        metrics = self.metrics
        metrics.requests = number = metrics.requests + 1
        started = 0.0 if number & metrics.mask else perf_counter()
        try:
            info = replica.append(records, acks=acks)
        except KafkaError as error:
            self._respond_with_error(connection, version, correlation_id, replica, records, error)
            return True
        if info.has_rolled:
            self._log_flusher.flush(replica.log)
        response = layout.pack(
            length,
            correlation_id,
            prefix,
            info.first_offset,
            info.log_append_time,
            info.log_start_offset,
            suffix,
        )
        if (
            acks == -1
            and replica.partition.followers
            and info.last_offset >= replica.log.high_watermark
        ):
            wait = WaitingProduce(
                self, connection, version, cached, info.last_offset + 1, response, started
            )
            connection.add_response(wait)
            replica.commit_watchers.add_wait(wait)
            self.expiry.add(wait, timeout_s)
        elif started:
            handled = perf_counter()
            connection.respond((response,))
            metrics.record_at_once(started, handled, perf_counter())
        else:
            connection.respond((response,))
        return True

    # --- responses that wait for replicas

    def respond_uncommitted(self, wait: WaitingProduce, code: ErrorCode) -> None:
        """Responds with the reason why not all in-sync replicas have the records."""
        self.metrics.errors[code] += 1
        replica, _, _, layout, *_ = wait.cached
        _, correlation_id, _, *offsets, _ = layout.unpack(wait.response)
        topic, index = replica.partition.key
        partition = PartitionProduceResponse(index, 0, *offsets)
        set_commit_result(self._image, wait.version, replica, partition, code)
        error_response = self._error_response(topic, partition, wait.connection.peer.listener)
        parts = encode_response(error_response, wait.version, correlation_id)
        wait.send((cast("bytes", parts[0]),))

    def _respond_with_error(
        self,
        connection: Connection,
        version: int,
        correlation_id: int,
        replica: Replica,
        records: memoryview,
        error: KafkaError,
    ) -> None:
        """Responds with the error that the handler would have found first."""
        topic, index = replica.partition.key
        try:
            single_batch(version, records)
        except KafkaError as earlier:
            partition = error_response(self._image, version, topic, index, earlier)
        else:
            partition = append_error_response(self._image, version, replica, error)
        self.metrics.errors[partition.error_code] += 1
        produce_response = self._error_response(topic, partition, connection.peer.listener)
        (response,) = encode_response(produce_response, version, correlation_id)
        connection.respond((cast("bytes", response),))

    def _error_response(
        self, topic: str, partition: PartitionProduceResponse, listener: str
    ) -> ProduceResponse:
        response = _response(topic, partition)
        add_produce_endpoints(response, self._image, listener)
        return response

    def _add(
        self, key: tuple[int, bytes], frame: memoryview, position: int
    ) -> CachedRequest | None:
        if len(self._cache) >= _MAX_CACHED:
            self._cache.clear()
        cached = self._cache[key] = self._decode(key[0], frame, position)
        return cached

    def _decode(self, version: int, frame: memoryview, position: int) -> CachedRequest | None:
        body, _ = decode(ProduceRequest, version, frame, position)
        if (
            body.transactional_id is not None
            or body.acks not in (-1, 1)
            or len(body.topic_data) != 1
            or len(body.topic_data[0].partition_data) != 1
            or body.topic_data[0].name in INTERNAL_TOPICS
        ):
            return None
        topic = body.topic_data[0]
        index = topic.partition_data[0].index
        try:
            replica = self._replicas.find(topic.name, index)
            if replica.log.config.flush_messages < _NEVER:
                return None
        except KafkaError:
            return None
        partition = PartitionProduceResponse(index, 0, *_MARKS)
        (template,) = encode_response(_response(topic.name, partition), version, 0)
        assert isinstance(template, bytes)
        start = template.index(_OFFSETS.pack(*_MARKS))
        prefix, suffix = template[_RESPONSE_PREFIX_AT:start], template[start + _OFFSETS.size :]
        layout = struct.Struct(f">4si{len(prefix)}sqqq{len(suffix)}s")
        timeout_s = max(body.timeout_ms, 0) / 1000
        return CachedRequest(replica, body.acks, timeout_s, layout, template[:4], prefix, suffix)


def _response(topic: str, partition: PartitionProduceResponse) -> ProduceResponse:
    return ProduceResponse([TopicProduceResponse(topic, partition_responses=[partition])])
