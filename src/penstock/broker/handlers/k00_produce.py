"""Produce (0), versions 0 to 13: appends record batches to the partitions led here (P2, P3, P7).

Message sets of versions 0 to 2 are stored as record batches. Large compressed batches are validated
and recompressed on a thread, and the first batch of a transaction waits for its coordinator (P4);
such a request is in progress for a while. With acks=all only the response is delayed, until the
high watermark has passed the records (P2); likewise `flush.messages`, until they are durable. Both
end with REQUEST_TIMED_OUT after the timeout of the request.
"""

import struct
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from penstock.broker.coordinator.transaction_verification import TransactionVerifier
from penstock.broker.coordinator.transactional_produce import (
    TransactionalBatch,
    has_transactional_records,
    is_ongoing,
    is_transactional,
    several_producers_error,
    verify,
)
from penstock.broker.errors import CloseConnectionError
from penstock.broker.expiry_timer import ExpiryTimer
from penstock.broker.metadata.leader_endpoints import add_produce_endpoints
from penstock.broker.pacer import Pacer, Steps
from penstock.broker.replica.delayed_produce import (
    CommittedResponse,
    CommitWait,
    DurableResponse,
    Flush,
    begin_flush,
)
from penstock.broker.replica.log_flusher import LogFlusher
from penstock.broker.replica.replica import Replica
from penstock.broker.replica.replica_manager import ReplicaManager
from penstock.broker.request import (
    NO_RESPONSE,
    DelayedResponse,
    HandlerResult,
    Request,
    Response,
)
from penstock.broker.security.client_quota_manager import ClientQuotaManager
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.broker.workers import Workers
from penstock.controller.image import ClusterImage
from penstock.core.errors import (
    CorruptRecordError,
    ErrorCode,
    InvalidRecordError,
    KafkaError,
    drop_traceback,
)
from penstock.core.ids import TopicPartition
from penstock.core.internal_topics import ADMIN_CLIENT_ID, INTERNAL_TOPICS
from penstock.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceLeaderIdAndEpoch,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from penstock.records.batch import (
    CODEC_MASK,
    FLAGS_AT,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    MIN_BATCH_LENGTH,
)
from penstock.records.compress import Compression
from penstock.records.errors import RecordValidationError
from penstock.records.prepare import PreparedAppend
from penstock.security.acl import AclOperation, ResourceType
from penstock.storage.producer.append_info import VerificationGuard

_FIRST_WITH_BATCHES = 3
_FIRST_WITH_ZSTD = 7
_FIRST_WITH_LEADER = 10
_FIRST_WITH_TOPIC_IDS = 13
_BATCHES_AT_ONCE = 50
_LENGTH = struct.Struct(">i")
_LENGTH_AT = 8
_WITHOUT_LOG_START: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Errors of an append with which Kafka does not report the log start offset."""


@dataclass(frozen=True, slots=True)
class Context:
    workers: Workers
    pacer: Pacer
    image: ClusterImage
    replicas: ReplicaManager
    log_flusher: LogFlusher
    authorizer: RequestAuthorizer
    quotas: ClientQuotaManager
    txn_verification: TransactionVerifier
    produce_expiry: ExpiryTimer


class _Accepted(NamedTuple):
    """A batch that can be appended."""

    topic: str
    partition: int
    replica: Replica
    records: memoryview
    prepared: PreparedAppend | None
    """The slow part of the append, to be run on a thread first."""
    txn_batch: TransactionalBatch | None = None
    """For a batch in a transaction."""
    needs_verification: bool = False
    """Whether the coordinator must confirm that the partition is part of the transaction."""
    guard: VerificationGuard | None = None

    @property
    def is_slow(self) -> bool:
        """Whether something must be awaited before the append."""
        return self.prepared is not None or self.needs_verification


class _Rejected(NamedTuple):
    """A batch that is not appended."""

    topic: str
    partition: int
    error: KafkaError


_Batch: TypeAlias = _Accepted | _Rejected


def handle(context: Context, request: Request, body: ProduceRequest) -> HandlerResult:
    return context.pacer.run(_steps(context, request, body))


def _steps(context: Context, request: Request, body: ProduceRequest) -> Steps[HandlerResult]:
    request_error = _request_error(context, request, body)
    batches: list[_Batch] = []
    has_slow_batch = False
    until_pause = _BATCHES_AT_ONCE
    for topic in body.topic_data:
        error = request_error or _topic_error(context, request, topic)
        for data in topic.partition_data:
            until_pause -= 1
            if not until_pause:
                yield
                until_pause = _BATCHES_AT_ONCE
            batch = _check_batch(context, request, topic.name, data, error)
            batches.append(batch)
            if isinstance(batch, _Accepted) and batch.is_slow:
                has_slow_batch = True
    if body.transactional_id is not None:
        error = several_producers_error(
            [batch.txn_batch for batch in batches if isinstance(batch, _Accepted)]
        )
        if error is not None:
            batches = [_Rejected(batch.topic, batch.partition, error) for batch in batches]
            return (yield from _append(context, request, body, batches))
    if has_slow_batch:
        return _append_slowly(context, request, body, batches)
    return (yield from _append(context, request, body, batches))


async def _append_slowly(
    context: Context, request: Request, body: ProduceRequest, batches: list[_Batch]
) -> "Response | DelayedResponse":
    """Prepares and appends one batch after the other: only one at a time is decompressed."""
    slow = (batch for batch in batches if isinstance(batch, _Accepted) and batch.is_slow)
    if any(batch.txn_batch is not None for batch in slow):
        batches = await _verify(context, request, body, batches)
    appends = _Appends(context, request, body)
    async for batch in context.pacer.each(batches):
        if isinstance(batch, _Accepted) and batch.prepared is not None:
            prepared = batch.prepared
            await context.workers.compute_with(prepared.memory_bound, prepared.run)
        appends.add(batch)
    return appends.response()


async def _verify(
    context: Context, request: Request, body: ProduceRequest, batches: list[_Batch]
) -> list[_Batch]:
    """Returns the batches with the coordinator's guards; those it refuses are rejected."""
    assert body.transactional_id is not None
    in_transaction = {
        TopicPartition(batch.topic, batch.partition): batch.txn_batch
        for batch in batches
        if isinstance(batch, _Accepted) and batch.txn_batch is not None
    }
    verified = await verify(
        context.txn_verification, request.version, body.transactional_id, in_transaction
    )
    verified_batches: list[_Batch] = []
    for batch in batches:
        if isinstance(batch, _Accepted) and batch.txn_batch is not None:
            outcome = verified.get(TopicPartition(batch.topic, batch.partition))
            if isinstance(outcome, KafkaError):
                verified_batches.append(_Rejected(batch.topic, batch.partition, outcome))
            else:
                verified_batches.append(batch._replace(guard=outcome))
        else:
            verified_batches.append(batch)
    return verified_batches


def _check_batch(
    context: Context,
    request: Request,
    topic: str,
    data: PartitionProduceData,
    error: KafkaError | None,
) -> _Batch:
    index = data.index
    if error is not None:
        return _Rejected(topic, index, error)
    try:
        replica = context.replicas.find(topic, index)
        records = single_batch(request.version, data.records)
        prepared = replica.leader_log().begin_append(records)
        if is_transactional(records):
            txn_batch = TransactionalBatch.of(records)
            # The first batch of a transaction in the partition waits for the coordinator.
            is_first = txn_batch is not None and not is_ongoing(
                context.txn_verification, replica.partition.key, txn_batch
            )
            return _Accepted(topic, index, replica, records, prepared, txn_batch, is_first)
        return _Accepted(topic, index, replica, records, prepared)
    except KafkaError as failure:
        return _Rejected(topic, index, drop_traceback(failure))


class _Appends:
    """The appends of one request, and their responses."""

    __slots__ = (
        "_body",
        "_context",
        "_flushes",
        "_has_errors",
        "_partitions",
        "_request",
        "_uncommitted",
    )

    def __init__(self, context: Context, request: Request, body: ProduceRequest) -> None:
        self._context = context
        self._request = request
        self._body = body
        self._partitions: list[PartitionProduceResponse] = []
        self._flushes: list[Flush] = []
        self._uncommitted: list[CommitWait] = []
        self._has_errors = False

    def add(self, batch: _Batch) -> None:
        """Appends a batch, unless it is rejected. Call it in the order of the request."""
        image, version = self._context.image, self._request.version
        if isinstance(batch, _Rejected):
            self._has_errors = True
            self._partitions.append(
                error_response(image, version, batch.topic, batch.partition, batch.error)
            )
            return
        replica = batch.replica
        try:
            info = replica.append(
                batch.records, acks=self._body.acks, prepared=batch.prepared, guard=batch.guard
            )
        except KafkaError as failure:
            error = drop_traceback(failure)
            self._has_errors = True
            self._partitions.append(append_error_response(image, version, replica, error))
            return
        partition = PartitionProduceResponse(
            batch.partition, 0, info.first_offset, info.log_append_time, info.log_start_offset
        )
        self._partitions.append(partition)
        if info.needs_flush or info.has_rolled or info.is_duplicate:
            begin_flush(self._context.log_flusher, replica, info, partition, self._flushes)
        if (
            self._body.acks == -1
            and replica.partition.followers
            and replica.log.high_watermark <= info.last_offset
        ):
            self._uncommitted.append(CommitWait(replica, info.last_offset + 1, partition))

    def response(self) -> "Response | DelayedResponse":
        """Returns the response, which is delayed if it has to wait for replicas or flushes."""
        body = self._body
        if body.acks == 0:
            _raise_for_error(body, self._partitions)
            return NO_RESPONSE
        responses = iter(self._partitions)
        topics = [
            TopicProduceResponse(
                topic.name, topic.topic_id, list(islice(responses, len(topic.partition_data)))
            )
            for topic in body.topic_data
        ]
        response = ProduceResponse(topics, self._context.quotas.record_produce(self._request))
        if self._has_errors:
            listener = self._request.session.listener
            add_produce_endpoints(response, self._context.image, listener)
        committed = None
        if self._uncommitted:
            committed = CommittedResponse(
                self._context.image, self._request, response, self._context.produce_expiry
            )
            if not committed.start(self._uncommitted, body.timeout_ms):
                committed = None
        if self._flushes:
            return DurableResponse(
                response, self._flushes, body.timeout_ms, self._request.session, committed
            ).future
        return response if committed is None else committed


def _append(
    context: Context, request: Request, body: ProduceRequest, batches: list[_Batch]
) -> "Steps[Response | DelayedResponse]":
    appends = _Appends(context, request, body)
    for number, batch in enumerate(batches, 1):
        appends.add(batch)
        if not number % _BATCHES_AT_ONCE:
            yield
    return appends.response()


# --- checks


def _request_error(context: Context, request: Request, body: ProduceRequest) -> KafkaError | None:
    """Returns the error of the request as a whole."""
    if has_transactional_records(body):
        name = body.transactional_id
        if name is None:
            return KafkaError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "a transactional batch in a request without a transactional.id: nobody could end "
                "its transaction",
            )
        if not context.authorizer.allows(
            request.session, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name
        ):
            return context.authorizer.error(
                request.session, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name
            )
    if body.acks not in (-1, 0, 1):
        return KafkaError(
            ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be -1 (all), 0 or 1, not {body.acks}"
        )
    return None


def _topic_error(context: Context, request: Request, topic: TopicProduceData) -> KafkaError | None:
    """Returns the error of all partitions of a topic; sets the name of a topic given by id."""
    if request.version >= _FIRST_WITH_TOPIC_IDS:
        name = context.image.topic_names.get(topic.topic_id)
        if name is None:
            return KafkaError(
                ErrorCode.UNKNOWN_TOPIC_ID,
                f"no topic has the id {topic.topic_id}: it was deleted",
                remedy="refresh the metadata",
            )
        topic.name = name
    if not context.authorizer.allows(
        request.session, AclOperation.WRITE, ResourceType.TOPIC, topic.name
    ):
        # A client that only has the id must not learn the name.
        by_id = request.version >= _FIRST_WITH_TOPIC_IDS
        name = str(topic.topic_id) if by_id else topic.name
        return context.authorizer.error(
            request.session, AclOperation.WRITE, ResourceType.TOPIC, name
        )
    if topic.name in INTERNAL_TOPICS and request.client_id != ADMIN_CLIENT_ID:
        return KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{topic.name} is an internal topic: only brokers write to it",
        )
    return None


def single_batch(version: int, records: bytes | memoryview | None) -> memoryview:
    """Returns the records after a check of their header.

    From version 3 on they must be exactly one record batch; raises KafkaError if they are not.
    """
    if not records:
        raise InvalidRecordError(
            "no record batch",
            remedy="send at least one for each partition",
        )
    assert isinstance(records, memoryview)
    if version < _FIRST_WITH_BATCHES:
        return records
    size = len(records)
    length = _LENGTH.unpack_from(records, _LENGTH_AT)[0] if size > FLAGS_AT else -1
    if 0 < length < MIN_BATCH_LENGTH and records[MAGIC_AT] == MAGIC:
        raise CorruptRecordError(f"a batch of {length} bytes is shorter than its own header")
    if length < 0 or length + LOG_OVERHEAD != size:
        raise InvalidRecordError(
            f"{size} bytes that are not one whole record batch",
            remedy="send exactly one for each partition",
        )
    magic, attributes = records[MAGIC_AT], records[FLAGS_AT]
    if magic > MAGIC:
        raise CorruptRecordError(f"there are no record batches of magic {magic}")
    if magic < MAGIC:
        raise InvalidRecordError(
            f"Produce version {version} takes record batches (magic {MAGIC}), not magic {magic}: "
            f"the client mixes versions"
        )
    if version < _FIRST_WITH_ZSTD and attributes & CODEC_MASK == Compression.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"zstd needs Produce version {_FIRST_WITH_ZSTD}, the client sent {version}",
            remedy="use a newer client or another codec",
        )
    return records


# --- responses


def error_response(
    image: ClusterImage, version: int, topic: str, index: int, error: KafkaError
) -> PartitionProduceResponse:
    """Returns the response for a batch that was refused before the append."""
    response = PartitionProduceResponse(index, error.code, -1, error_message=error.message)
    if isinstance(error, RecordValidationError):
        response.record_errors = [
            BatchIndexAndErrorMessage(record_error.batch_index, record_error.message)
            for record_error in error.record_errors
        ]
    if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER and version >= _FIRST_WITH_LEADER:
        leader, epoch = image.leader_of(topic, index)
        response.current_leader = ProduceLeaderIdAndEpoch(leader, epoch)
    return response


def append_error_response(
    image: ClusterImage, version: int, replica: Replica, error: KafkaError
) -> PartitionProduceResponse:
    """Returns the response for a batch that `Replica.append` refused."""
    response = error_response(image, version, *replica.partition.key, error)
    if error.code not in _WITHOUT_LOG_START:
        response.log_start_offset = replica.log.log_start_offset
    return response


def _raise_for_error(body: ProduceRequest, partitions: list[PartitionProduceResponse]) -> None:
    """With acks=0 the client gets no response: an error closes its connection instead."""
    responses = iter(partitions)
    for topic in body.topic_data:
        for partition in islice(responses, len(topic.partition_data)):
            if partition.error_code:
                raise CloseConnectionError(
                    f"Produce with acks=0 to {topic.name}-{partition.index} failed: "
                    f"{partition.error_message}"
                )
