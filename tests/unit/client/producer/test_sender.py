"""P5: the requests of the sender, and its handling of responses."""

from uuid import UUID

import pytest

from penstock.client.errors import AuthenticationError, AuthorizationError, KafkaTimeoutError
from penstock.client.metrics import Metrics
from penstock.client.producer.accumulator import RecordAccumulator
from penstock.client.producer.appender import RecordAppender, RecordToAppend
from penstock.client.producer.buffer_pool import BufferPool
from penstock.client.producer.future import RecordFuture
from penstock.client.producer.options import producer_settings
from penstock.client.producer.sender import OutgoingProduce, Sender, SendPlan
from penstock.client.producer.sender_metrics import SenderMetrics
from penstock.client.producer.transaction_manager import TransactionManager
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.net.client.cluster import Node
from penstock.net.client.metadata import ClusterMetadata
from penstock.protocol.fields import ZERO_UUID
from penstock.protocol.messages.init_producer_id import InitProducerIdResponse
from penstock.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from penstock.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceLeaderIdAndEpoch,
    ProduceNodeEndpoint,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.support.clock import ManualClock

TOPIC_ID = UUID(int=7)
TP = TopicPartition("t", 0)
MEMORY = 100_000


class SenderFixture:
    """A sender with a topic of two partitions, both led by broker 1."""

    def __init__(self, topic_id: UUID = TOPIC_ID, **options: object) -> None:
        settings = producer_settings({"bootstrap_servers": "x:1", "linger_ms": 0, **options})
        self.clock = ManualClock()
        self.pool = BufferPool(MEMORY, 1000)
        self.manager: TransactionManager | None = None
        if settings["enable_idempotence"]:
            self.manager = TransactionManager(settings["transactional_id"])
        self.accumulator = RecordAccumulator(
            settings, self.pool, sequences=self.manager.sequencer if self.manager else None
        )
        self.appender = RecordAppender(settings, self.clock, self.accumulator)
        self.metadata = ClusterMetadata([Node(-1, "x", 1)], max_age_ms=10**9)
        self.metadata.add_topics(["t"], 0)
        partitions = [
            MetadataResponsePartition(partition_index=index, leader_id=1, leader_epoch=3)
            for index in range(2)
        ]
        self.metadata.update(
            MetadataResponse(
                brokers=[MetadataResponseBroker(node_id=1, host="h", port=1)],
                topics=[MetadataResponseTopic(name="t", topic_id=topic_id, partitions=partitions)],
            ),
            self.now_ms,
            complete=True,
        )
        self.metrics = Metrics(self.clock)
        self.sender = Sender(
            settings, self.accumulator, self.metadata, self.manager, SenderMetrics(self.metrics)
        )
        if self.manager is not None and not self.manager.is_transactional:
            assert self.sender.check_state()
            request = self.sender.next_transactional_request()
            assert request is not None
            request.handle(InitProducerIdResponse(producer_id=1, producer_epoch=0))

    @property
    def now_ms(self) -> int:
        return self.clock.monotonic_ms()

    def send(self, *values: bytes, partition: int = 0) -> list[RecordFuture]:
        cluster = self.metadata.cluster
        return [
            self.appender.append(
                RecordToAppend("t", partition, 0, None, value, (), None, cluster), 0, self.now_ms
            )
            for value in values
        ]

    def run_once(self) -> SendPlan:
        assert self.sender.check_state()
        return self.sender.run_once(lambda node: True, self.now_ms)

    def request(self) -> OutgoingProduce:
        (request,) = self.run_once().requests
        return request

    def respond(self, request: OutgoingProduce, *responses: PartitionProduceResponse) -> None:
        self.sender.handle_response(request, response(*responses), self.now_ms)

    def metric(self, metric_name: str) -> float:
        return next(
            value
            for name, value in self.metrics.snapshot().items()
            if (name.group, name.name) == ("producer-metrics", metric_name)
        )


def response(*partitions: PartitionProduceResponse) -> ProduceResponse:
    topic = TopicProduceResponse(topic_id=TOPIC_ID, partition_responses=list(partitions))
    return ProduceResponse(responses=[topic])


def test_one_request_for_all_partitions_of_a_broker() -> None:
    fixture = SenderFixture()
    first, second = fixture.send(b"a", b"b")
    (third,) = fixture.send(b"c", partition=1)
    call = fixture.request()
    request = call.build(13)
    (topic,) = request.topic_data
    assert (topic.topic_id, request.acks) == (TOPIC_ID, -1)
    assert sorted(data.index for data in topic.partition_data) == [0, 1]
    assert call.max_version is None
    fixture.respond(
        call,
        PartitionProduceResponse(index=0, base_offset=10),
        PartitionProduceResponse(index=1, base_offset=20, log_append_time_ms=99),
    )
    assert [first.result(0).offset, second.result(0).offset] == [10, 11]
    assert third.result(0)[2:4] == (20, 99)
    assert fixture.pool.available_memory == MEMORY
    assert not fixture.accumulator.has_incomplete()


def test_a_broker_that_is_too_old_gets_no_zstd() -> None:
    """E4: Kafka before 2.1 responds with UNKNOWN_SERVER_ERROR."""
    fixture = SenderFixture(compression_type="zstd")
    (future,) = fixture.send(b"a")
    call = fixture.request()
    with pytest.raises(KafkaError, match="zstd") as caught:
        call.build(6)
    fixture.sender.handle_failure(call, caught.value, fixture.now_ms)
    error = future.exception(0)
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert "older than Kafka 2.1" in error.message
    assert not fixture.accumulator.has_incomplete()
    fixture.send(b"a")
    assert fixture.request().build(7).topic_data


def test_without_topic_ids_the_last_version_with_names_is_used() -> None:
    fixture = SenderFixture(topic_id=ZERO_UUID)
    fixture.send(b"a")
    call = fixture.request()
    assert call.max_version == 12
    assert call.build(12).topic_data[0].name == "t"


@pytest.mark.parametrize(("level", "version"), [(1, 11), (2, None)])
def test_the_version_of_produce_follows_the_transaction_version(
    level: int, version: int | None
) -> None:
    fixture = SenderFixture(transactional_id="id")
    manager = fixture.manager
    assert manager is not None
    manager.initialize().is_acknowledged = True
    request = fixture.sender.next_transactional_request()
    assert request is not None
    request.handle(InitProducerIdResponse(producer_id=1, producer_epoch=0))
    manager.set_transaction_version(level, initially=True)
    manager.begin()
    fixture.send(b"a")
    manager.add_partition(TP)
    manager.new_partitions.clear()
    manager.confirm_partitions([TP])
    call = fixture.request()
    assert (call.max_version, call.transactional_id) == (version, "id")


def test_a_response_may_contain_the_new_leader() -> None:
    """KIP-951: without waiting for metadata."""
    fixture = SenderFixture(retry_backoff_ms=5)
    (future,) = fixture.send(b"a")
    moved = response(
        PartitionProduceResponse(
            index=0,
            error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
            current_leader=ProduceLeaderIdAndEpoch(leader_id=2, leader_epoch=4),
        )
    )
    moved.node_endpoints = [ProduceNodeEndpoint(node_id=2, host="other", port=5)]
    fixture.sender.handle_response(fixture.request(), moved, fixture.now_ms)
    assert fixture.metadata.needs_refresh(fixture.now_ms)
    leader = fixture.metadata.cluster.leader(TP)
    assert leader == Node(2, "other", 5)
    # A new leader gets the batch without a backoff.
    call = fixture.request()
    assert call.node_id == 2
    fixture.respond(call, PartitionProduceResponse(index=0, base_offset=0))
    assert future.result(0).offset == 0
    assert fixture.metric("record-retry-total") == 1


def test_records_of_an_invalid_batch_have_their_own_errors() -> None:
    """KIP-467: the invalid record gets its own error, the others that of their batch."""
    fixture = SenderFixture()
    good, bad = fixture.send(b"good", b"bad")
    fixture.respond(
        fixture.request(),
        PartitionProduceResponse(
            index=0,
            error_code=ErrorCode.INVALID_TIMESTAMP,
            error_message="out of range",
            record_errors=[
                BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message="too old")
            ],
        ),
    )
    wrong, beside = bad.exception(0), good.exception(0)
    assert wrong is not None
    assert (wrong.code, wrong.message) == (ErrorCode.INVALID_TIMESTAMP, "too old")
    assert beside is not None
    assert beside.code is ErrorCode.INVALID_RECORD
    assert fixture.metric("record-error-total") == 2


def test_a_partition_missing_in_the_response_is_retried() -> None:
    fixture = SenderFixture()
    (future,) = fixture.send(b"a")
    fixture.respond(fixture.request())
    assert not future.done()
    fixture.clock.advance(2000)
    assert fixture.request().batches[0].topic_partition == TP


def test_without_retries_a_lost_connection_is_a_failure() -> None:
    fixture = SenderFixture(retries=0)
    (future,) = fixture.send(b"a")
    fixture.sender.handle_failure(fixture.request(), KafkaTimeoutError("silence"), fixture.now_ms)
    assert isinstance(future.exception(0), KafkaTimeoutError)


def test_with_acks_0_there_is_no_response() -> None:
    fixture = SenderFixture(acks=0)
    (future,) = fixture.send(b"a")
    call = fixture.request()
    records = call.build(13).topic_data[0].partition_data[0].records
    assert isinstance(records, bytes), "the block may be used again before it is sent"
    fixture.sender.handle_response(call, None, fixture.now_ms)
    assert future.result(0).offset == -1
    assert fixture.pool.available_memory == MEMORY


def test_with_one_request_in_flight_a_partition_is_muted() -> None:
    fixture = SenderFixture(enable_idempotence=False, max_in_flight_requests_per_connection=1)
    fixture.send(b"a")
    call = fixture.request()
    fixture.send(b"b")
    fixture.send(b"c", partition=1)
    beside = fixture.request()
    assert [batch.topic_partition.partition for batch in beside.batches] == [1]
    fixture.respond(call, PartitionProduceResponse(index=0, base_offset=0))
    assert [batch.topic_partition.partition for batch in fixture.request().batches] == [0]


def test_a_batch_that_expires_in_flight_keeps_its_memory_until_the_response() -> None:
    """Bytes that are being sent must not be overwritten."""
    fixture = SenderFixture(delivery_timeout_ms=1000, request_timeout_ms=900)
    (future,) = fixture.send(b"a")
    call = fixture.request()
    fixture.clock.advance(1000)
    assert fixture.run_once().requests == []
    error = future.exception(0)
    assert isinstance(error, KafkaTimeoutError)
    assert "delivery_timeout_ms" in error.message
    assert fixture.pool.available_memory < MEMORY
    assert not fixture.accumulator.has_incomplete()
    fixture.respond(call, PartitionProduceResponse(index=0, base_offset=0))
    assert fixture.pool.available_memory == MEMORY


def test_the_error_of_an_expired_batch_has_the_reason_of_its_retries() -> None:
    """E7: it is retried until delivery_timeout_ms; the error has the reason."""
    fixture = SenderFixture(delivery_timeout_ms=1000, request_timeout_ms=900)
    (future,) = fixture.send(b"a")
    fixture.respond(
        fixture.request(),
        PartitionProduceResponse(index=0, error_code=ErrorCode.NOT_ENOUGH_REPLICAS),
    )
    fixture.clock.advance(1000)
    fixture.run_once()
    error = future.exception(0)
    assert isinstance(error, KafkaTimeoutError)
    assert "min.insync.replicas" in error.message


def test_a_batch_that_was_never_sent_expires_too() -> None:
    fixture = SenderFixture(delivery_timeout_ms=1000, request_timeout_ms=900)
    (future,) = fixture.send(b"a")
    plan = fixture.sender.run_once(lambda node: False, fixture.now_ms)
    assert (plan.requests, plan.connect) == ([], [1])
    assert plan.delay_ms <= 1000
    fixture.clock.advance(1000)
    fixture.sender.run_once(lambda node: False, fixture.now_ms)
    assert isinstance(future.exception(0), KafkaTimeoutError)
    assert fixture.pool.available_memory == MEMORY


def test_a_rejected_login_fails_the_batches_of_the_broker() -> None:
    """E3: retrying would not help."""
    fixture = SenderFixture()
    (future,) = fixture.send(b"a")
    fixture.sender.fail_node(1, AuthenticationError("no"), fixture.now_ms)
    assert isinstance(future.exception(0), AuthenticationError)
    assert fixture.pool.available_memory == MEMORY


def test_the_error_of_an_unauthorized_topic_has_its_name() -> None:
    """E3."""
    fixture = SenderFixture()
    (future,) = fixture.send(b"a")
    fixture.respond(
        fixture.request(),
        PartitionProduceResponse(index=0, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    )
    error = future.exception(0)
    assert isinstance(error, AuthorizationError)
    assert "topic t" in error.message


def test_an_unknown_leader_requests_a_metadata_update() -> None:
    fixture = SenderFixture()
    (future,) = fixture.send(b"a")
    fixture.metadata.rebootstrap()
    fixture.metadata.update(MetadataResponse(brokers=[]), fixture.now_ms, complete=False)
    plan = fixture.run_once()
    assert (plan.requests, plan.connect) == ([], [])
    assert fixture.metadata.needs_refresh(fixture.now_ms)
    assert not future.done()
