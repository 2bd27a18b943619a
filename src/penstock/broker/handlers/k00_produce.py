"""Produce (0): versions 0 to 13 append to the logs that this broker leads (P2, P3, P7).

Message sets of versions 0 to 2 are stored as record batches. Large compressed batches are checked
and recompressed on a thread, and the first batch of a transaction waits for its coordinator (P4),
so such a request is under way for a while; `flush.messages` holds only the answer back, until the
records are durable.
"""

import asyncio
import struct
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from penstock.broker.coordinator.transactional_produce import (
    TransactionalBatch,
    has_transactional_records,
    is_ongoing,
    refusal_of_producers,
    verify,
)
from penstock.broker.errors import CloseConnectionError, forget_frames
from penstock.broker.request import DelayedResponse, HandlerResult, Request, Response
from penstock.core.errors import CorruptRecordError, ErrorCode, InvalidRecordError, KafkaError
from penstock.core.ids import TopicPartition
from penstock.core.internal_topics import ADMIN_CLIENT_ID, INTERNAL_TOPICS
from penstock.protocol.fields import Message
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
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    TRANSACTIONAL_FLAG,
)
from penstock.records.compress import Compression
from penstock.records.errors import RecordValidationError
from penstock.records.prepare import PreparedAppend
from penstock.security.acl import AclOperation, ResourceType
from penstock.storage.log.results import LogAppendInfo
from penstock.storage.producer.append_info import VerificationGuard

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.replica.replica_manager import Replica

_FIRST_WITH_BATCHES = 3
_FIRST_WITH_ZSTD = 7
_FIRST_WITH_LEADER = 10
_FIRST_WITH_TOPIC_IDS = 13
_LENGTH = struct.Struct(">i")
_LENGTH_AT = 8
_CODEC_AT = 22
"""The low byte of a batch's attributes."""
_NO_RECORDS: Final = memoryview(b"")
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
"""Refusals of an append with which Kafka does not tell where the log starts."""


class _Place(NamedTuple):
    """Where records of the request go, or why they do not."""

    topic: str
    partition: int
    replica: "Replica | None"
    records: memoryview
    slow: PreparedAppend | None
    is_slow: bool
    error: KafkaError | None
    txn: TransactionalBatch | None = None
    """Of a batch in a transaction."""
    guard: VerificationGuard | None = None


_Flush: TypeAlias = tuple[PartitionProduceResponse, "asyncio.Future[None]"]
"""A flush, and the answer that waits for it."""


def handle(broker: "Broker", request: Request, body: ProduceRequest) -> HandlerResult:
    refusal = _refusal_of_all(broker, request, body)
    places = []
    slow = []
    for topic in body.topic_data:
        error = refusal or _refusal(broker, request, topic)
        for data in topic.partition_data:
            place = _place(broker, request, topic.name, data, error)
            if place.is_slow:
                slow.append(place)
            places.append(place)
    if body.transactional_id is not None:
        mixed = refusal_of_producers([place.txn for place in places])
        if mixed is not None:
            places = [place._replace(replica=None, error=mixed) for place in places]
            return _append(broker, request, body, places)
    if slow:
        return _with_threads(broker, request, body, places, slow)
    return _append(broker, request, body, places)


async def _with_threads(
    broker: "Broker",
    request: Request,
    body: ProduceRequest,
    places: list[_Place],
    slow: list[_Place],
) -> "Response | DelayedResponse":
    if any(place.txn for place in slow):
        places = await _verified(broker, request, body, places)
    for place in slow:
        if place.slow is not None:
            await broker.workers.run(broker.workers.compute, place.slow.run)
    return _append(broker, request, body, places)


async def _verified(
    broker: "Broker", request: Request, body: ProduceRequest, places: list[_Place]
) -> list[_Place]:
    """The places, once the coordinator has said which of them are part of the transaction."""
    assert body.transactional_id is not None
    batches = {TopicPartition(p.topic, p.partition): p.txn for p in places if p.txn is not None}
    found = await verify(broker, request.version, body.transactional_id, batches)
    verified = []
    for place in places:
        said = None
        if place.txn is not None:
            said = found.get(TopicPartition(place.topic, place.partition))
        if isinstance(said, KafkaError):
            verified.append(place._replace(replica=None, error=said))
        else:
            verified.append(place._replace(guard=said))
    return verified


def _place(
    broker: "Broker",
    request: Request,
    topic: str,
    data: PartitionProduceData,
    error: KafkaError | None,
) -> _Place:
    try:
        if error is not None:
            raise error
        replica = broker.replicas.find(topic, data.index)
        records = checked(request.version, data.records)
        slow = replica.leading().begin_append(records)
        is_slow = slow is not None
        if records[_CODEC_AT] & TRANSACTIONAL_FLAG and records[MAGIC_AT] == MAGIC:
            txn = TransactionalBatch.of(records)
            # The first of its transaction in the partition waits for the coordinator.
            if txn is not None and not is_ongoing(broker, replica.partition.key, txn):
                is_slow = True
            return _Place(topic, data.index, replica, records, slow, is_slow, None, txn)
        return _Place(topic, data.index, replica, records, slow, is_slow, None)
    except KafkaError as failure:
        return _Place(topic, data.index, None, _NO_RECORDS, None, False, failure)


def _append(
    broker: "Broker", request: Request, body: ProduceRequest, places: list[_Place]
) -> "Response | DelayedResponse":
    """Appends everything; the answer, which may have to wait for flushes."""
    flushes: list[_Flush] = []
    partitions = []
    for topic, index, replica, records, slow, _, error, _, guard in places:
        if replica is None:
            assert error is not None
            partitions.append(failed(broker, request.version, topic, index, error))
            continue
        try:
            info = replica.append(records, acks=body.acks, prepared=slow, guard=guard)
        except KafkaError as failure:
            partitions.append(refused(broker, request.version, replica, failure))
            forget_frames(failure)
            continue
        partition = PartitionProduceResponse(
            index, 0, info.first_offset, info.log_append_time, info.log_start_offset
        )
        partitions.append(partition)
        if info.needs_flush or info.has_rolled or info.is_duplicate:
            _flush(broker, replica, info, partition, flushes)
    if body.acks == 0:
        _complain(places, partitions)
        return None
    answers = iter(partitions)
    topics = [
        TopicProduceResponse(
            topic.name, topic.topic_id, list(islice(answers, len(topic.partition_data)))
        )
        for topic in body.topic_data
    ]
    answer = ProduceResponse(topics, broker.quotas.produced(request))
    return _once_durable(answer, flushes) if flushes else answer


def _refusal_of_all(broker: "Broker", request: Request, body: ProduceRequest) -> KafkaError | None:
    """What is wrong with the request as a whole."""
    if has_transactional_records(body):
        name = body.transactional_id
        if name is None:
            return KafkaError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "a transactional batch in a request without a transactional.id: nobody could end "
                "its transaction",
            )
        if not broker.authorizer.allows(
            request.session, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name
        ):
            return broker.authorizer.refusal(
                request.session, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name
            )
    if body.acks not in (-1, 0, 1):
        return KafkaError(
            ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be -1 (all), 0 or 1, not {body.acks}"
        )
    return None


def _refusal(broker: "Broker", request: Request, topic: TopicProduceData) -> KafkaError | None:
    """What is wrong with all partitions of a topic; gives a topic its name from its id."""
    if request.version >= _FIRST_WITH_TOPIC_IDS:
        name = broker.image.topic_names.get(topic.topic_id)
        if name is None:
            return KafkaError(
                ErrorCode.UNKNOWN_TOPIC_ID,
                f"no topic has the id {topic.topic_id}: it was deleted; refresh the metadata",
            )
        topic.name = name
    if not broker.authorizer.allows(
        request.session, AclOperation.WRITE, ResourceType.TOPIC, topic.name
    ):
        return broker.authorizer.refusal(
            request.session, AclOperation.WRITE, ResourceType.TOPIC, topic.name
        )
    if topic.name in INTERNAL_TOPICS and request.client_id != ADMIN_CLIENT_ID:
        return KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{topic.name} is the brokers' own: only they write to it",
        )
    return None


def checked(version: int, records: bytes | memoryview | None) -> memoryview:
    """The records: from version 3 on exactly one record batch, of which the header is looked at."""
    if not records:
        raise InvalidRecordError("no record batch: send at least one for each partition")
    assert isinstance(records, memoryview)
    if version < _FIRST_WITH_BATCHES:
        return records
    size = len(records)
    if size <= _CODEC_AT or _LENGTH.unpack_from(records, _LENGTH_AT)[0] + LOG_OVERHEAD != size:
        raise InvalidRecordError(
            f"{size} bytes that are not one whole record batch: send exactly one for each partition"
        )
    magic, attributes = records[MAGIC_AT], records[_CODEC_AT]
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
            f"zstd needs Produce version {_FIRST_WITH_ZSTD}, the client sent {version}: "
            f"use a newer client or another codec",
        )
    return records


def failed(
    broker: "Broker", version: int, topic: str, index: int, error: KafkaError
) -> PartitionProduceResponse:
    """What a producer is told of a batch for which no append was tried."""
    response = PartitionProduceResponse(index, error.code, -1, error_message=error.message)
    if isinstance(error, RecordValidationError):
        response.record_errors = [
            BatchIndexAndErrorMessage(each.batch_index, each.message)
            for each in error.record_errors
        ]
    if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER and version >= _FIRST_WITH_LEADER:
        leader, epoch = broker.leader_of(topic, index)
        response.current_leader = ProduceLeaderIdAndEpoch(leader, epoch)
    return response


def refused(
    broker: "Broker", version: int, replica: "Replica", error: KafkaError
) -> PartitionProduceResponse:
    """What a producer is told of a batch that `Replica.append` refused."""
    response = failed(broker, version, *replica.partition.key, error)
    if error.code not in _WITHOUT_LOG_START:
        response.log_start_offset = replica.log.log_start_offset
    return response


def _flush(
    broker: "Broker",
    replica: "Replica",
    info: LogAppendInfo,
    partition: PartitionProduceResponse,
    flushes: list[_Flush],
) -> None:
    """Flushes on a thread; only what `flush.messages` asks for holds the answer back."""
    log = replica.log
    if info.is_duplicate and not log.is_flush_due:
        return
    done = broker.log_flusher.start(log)
    # A duplicate may have come before the flush that its first sending waits for is done.
    if info.needs_flush or info.is_duplicate:
        flushes.append((partition, done))


def _complain(places: list[_Place], partitions: list[PartitionProduceResponse]) -> None:
    """With acks=0 the client hears nothing: an error closes its connection, so that it looks."""
    for place, partition in zip(places, partitions, strict=True):
        if partition.error_code:
            raise CloseConnectionError(
                f"Produce with acks=0 to {place.topic}-{place.partition} failed: "
                f"{partition.error_message}"
            )


def _once_durable(answer: ProduceResponse, flushes: list[_Flush]) -> "asyncio.Future[Message]":
    """The answer, when its records are on the disk or it is known that they will not be."""
    waiting: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

    def flushed(done: "asyncio.Future[list[BaseException | None]]") -> None:
        for partition, flush in flushes:
            error = flush.exception()
            if error is not None:
                partition.error_code = ErrorCode.KAFKA_STORAGE_ERROR
                partition.base_offset = partition.log_append_time_ms = -1
                partition.log_start_offset = -1
                partition.error_message = f"the records could not be flushed: {error}"
        if not waiting.done():
            waiting.set_result(answer)

    every = asyncio.gather(*(flush for _, flush in flushes), return_exceptions=True)
    every.add_done_callback(flushed)
    return waiting
