"""Decides which batches are sent to which broker, and handles the responses.

No I/O: the driver sends the requests. Used on the producer's loop.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from penstock.client.errors import KafkaTimeoutError, TransactionAbortedError, error_of
from penstock.client.producer.accumulator import RecordAccumulator
from penstock.client.producer.batch import ProducerBatch
from penstock.client.producer.produce_result import ProduceResult, batch_error, describe, result_of
from penstock.client.producer.sender_metrics import SenderMetrics
from penstock.client.producer.transaction_manager import TransactionManager
from penstock.client.producer.transaction_request import TxnRequest
from penstock.client.settings import ProducerOptions
from penstock.core.errors import ErrorCode, KafkaError, nested_text
from penstock.core.ids import TopicPartition
from penstock.net.client.cluster import Cluster, Node
from penstock.net.client.metadata import ClusterMetadata
from penstock.protocol.fields import ZERO_UUID, Message
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.records.compress import Compression

logger = logging.getLogger(__name__)

NEVER_MS: Final = 2**63 - 1
_LAST_BEFORE_V2: Final = 11
"""With later versions of Produce, brokers add partitions to transactions automatically."""
_LAST_WITH_NAMES: Final = 12
_FIRST_WITH_ZSTD: Final = 7
_STALE_METADATA: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
_HELD_BACK_MS: Final = 10
"""How soon to check again when a node is ready but all its batches are held back."""
_LEADER_CHANGED: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class OutgoingProduce(NamedTuple):
    """A Produce request: at most one batch of each partition, all for one broker."""

    node_id: int
    batches: list[ProducerBatch]
    topic_ids: Mapping[str, UUID]
    transactional_id: str | None
    acks: int
    timeout_ms: int
    max_version: int | None
    started_ms: int

    def build(self, version: int) -> ProduceRequest:
        topics: dict[str, TopicProduceData] = {}
        for batch in self.batches:
            if version < _FIRST_WITH_ZSTD and batch.compression is Compression.ZSTD:
                raise error_of(
                    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                    f"broker {self.node_id} is older than Kafka 2.1 and does not support "
                    "`compression_type`=zstd: use another type",
                )
            name, index = batch.topic_partition
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = TopicProduceData(
                    name=name, topic_id=self.topic_ids[name], partition_data=[]
                )
            records = batch.close()
            topic.partition_data.append(
                PartitionProduceData(
                    index=index,
                    # Without a response it is unknown when the block can be reused.
                    records=records if self.acks else bytes(records),
                )
            )
        return ProduceRequest(
            transactional_id=self.transactional_id,
            acks=self.acks,
            timeout_ms=self.timeout_ms,
            topic_data=list(topics.values()),
        )


class SendPlan(NamedTuple):
    """The requests to send now, and what the driver does next."""

    requests: list[OutgoingProduce]
    connect: list[int]
    """Brokers that have ready batches, but no request can be sent to them at present."""
    delay_ms: int
    """When to run again at the latest; 0 if there may be more requests at once."""


class Sender:
    """Sends batches, retries, splits, completes and fails them.

    With `max_in_flight_requests_per_connection=1` a partition is muted while one of its batches is
    in flight; otherwise sequences keep the order.
    """

    def __init__(
        self,
        settings: ProducerOptions,
        accumulator: RecordAccumulator,
        metadata: ClusterMetadata,
        manager: TransactionManager | None,
        metrics: SenderMetrics,
    ) -> None:
        self.accumulator = accumulator
        self.manager = manager
        self._metadata = metadata
        self._metrics = metrics
        self._acks = -1 if settings["acks"] in ("all", "-1", -1) else int(settings["acks"])
        self._request_timeout_ms = settings["request_timeout_ms"]
        self._max_request_size = settings["max_request_size"]
        self._delivery_timeout_ms = settings["delivery_timeout_ms"]
        self._retries = settings["retries"]
        self._keeps_order = settings["max_in_flight_requests_per_connection"] == 1
        self._in_flight: dict[TopicPartition, list[ProducerBatch]] = {}
        self._next_expiry_ms = NEVER_MS
        self._retry_reasons: dict[ProducerBatch, str] = {}
        """Why batches are retried, for the error if they expire."""

    # --- requests

    def next_transactional_request(self) -> TxnRequest[Message] | None:
        """Returns the request to a coordinator that is due; the caller sets `manager.in_flight`."""
        manager = self.manager
        assert manager is not None
        if manager.in_flight is not None:
            return None
        if manager.has_abortable_error:
            assert manager.last_error is not None
            self.accumulator.abort_undrained(manager.last_error)
        elif manager.is_aborting:
            self.accumulator.abort_undrained(
                TransactionAbortedError("the transaction was aborted before this record was sent")
            )
        return manager.next_request(has_incomplete=self.accumulator.has_incomplete())

    def check_state(self) -> bool:
        """Whether batches may be sent. Fails all batches if not, after a fatal error."""
        manager = self.manager
        if manager is None:
            return True
        manager.sequencer.resolve_sequences()
        error = manager.last_error
        if manager.has_fatal_error:
            assert error is not None
            self._abort_all(error)
            return False
        if (
            manager.has_abortable_error
            and error is not None
            and error.code
            in (
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            )
        ):
            manager.fail_pending(error)
            self._abort_all(error)
            manager.to_uninitialized(error)
            return False
        manager.sequencer.bump_idempotent_epoch_if_needed(
            has_incomplete=self.accumulator.has_incomplete()
        )
        return True

    def run_once(self, is_ready: Callable[[int], bool], now_ms: int) -> SendPlan:
        """Drains the ready batches of all brokers for which `is_ready` returns True.

        Also expires batches that have reached their delivery timeout.
        """
        cluster = self._metadata.cluster
        ready = self.accumulator.ready(cluster, now_ms)
        if ready.unknown_leader_topics:
            self._metadata.add_topics(ready.unknown_leader_topics, now_ms)
            self._metadata.request_update()
        nodes: list[int] = []
        connect: list[int] = []
        for node_id in ready.nodes:
            can_drain = is_ready(node_id)
            (nodes if can_drain else connect).append(node_id)
            self.accumulator.update_node_latency(node_id, now_ms, can_drain)
        requests: list[OutgoingProduce] = []
        if nodes:
            drained = self.accumulator.drain(cluster, nodes, self._max_request_size, now_ms)
            for node_id, batches in drained.items():
                if batches:
                    requests.append(self._create_request(cluster, node_id, batches, now_ms))
        self._expire(now_ms)
        expiry_ms = min(self.accumulator.next_expiry_ms, self._next_expiry_ms)
        delay_ms = max(0, min(ready.next_check_ms, expiry_ms - now_ms))
        if nodes and not requests:
            # A held-back batch is mostly released by a response; backoffs are random.
            delay_ms = min(delay_ms, _HELD_BACK_MS)
        return SendPlan(requests, connect, 0 if requests else delay_ms)

    def _create_request(
        self, cluster: Cluster, node_id: int, batches: list[ProducerBatch], now_ms: int
    ) -> OutgoingProduce:
        manager = self.manager
        topic_ids: dict[str, UUID] = {}
        for batch in batches:
            partition = batch.topic_partition
            info = cluster.topics.get(partition.topic)
            topic_ids[partition.topic] = ZERO_UUID if info is None else info.topic_id
            self._metadata.add_topics((partition.topic,), now_ms)
            self._in_flight.setdefault(partition, []).append(batch)
            self._next_expiry_ms = min(
                self._next_expiry_ms, batch.created_ms + self._delivery_timeout_ms
            )
            batch.is_in_flight = True
            if manager is not None:
                manager.sequencer.batch_sent(batch)
            if self._keeps_order:
                self.accumulator.mute(partition)
        max_version = None
        if ZERO_UUID in topic_ids.values():
            max_version = _LAST_WITH_NAMES
        transactional_id = None
        if manager is not None and manager.is_transactional:
            transactional_id = manager.transactional_id
            if not manager.is_v2:
                max_version = _LAST_BEFORE_V2
        self._metrics.request_sent(batches, now_ms)
        return OutgoingProduce(
            node_id,
            batches,
            topic_ids,
            transactional_id,
            self._acks,
            self._request_timeout_ms,
            max_version,
            now_ms,
        )

    # --- responses

    def handle_response(
        self, request: OutgoingProduce, response: ProduceResponse | None, now_ms: int
    ) -> None:
        """Handles the response of a broker; None with acks=0, when there is none."""
        if response is None:
            for batch in request.batches:
                self._complete_attempt(batch, ProduceResult(ErrorCode.NONE), now_ms)
            return
        self._metrics.response_received(
            now_ms - request.started_ms, response.throttle_time_ms, now_ms
        )
        batches = {batch.topic_partition: batch for batch in request.batches}
        names = {topic_id: name for name, topic_id in request.topic_ids.items()}
        leaders: dict[TopicPartition, tuple[int, int]] = {}
        for topic in response.responses:
            name = topic.name or names.get(topic.topic_id, "")
            for partition_response in topic.partition_responses:
                partition = TopicPartition(name, partition_response.index)
                answered_batch = batches.pop(partition, None)
                if answered_batch is None:
                    continue
                self._complete_attempt(answered_batch, result_of(partition_response), now_ms)
                leader = partition_response.current_leader
                if (
                    partition_response.error_code in _LEADER_CHANGED
                    and leader.leader_id >= 0
                    and leader.leader_epoch >= 0
                ):
                    leaders[partition] = leader.leader_id, leader.leader_epoch
        for forgotten in batches.values():
            self._complete_attempt(
                forgotten,
                ProduceResult(
                    ErrorCode.NETWORK_EXCEPTION, "the broker's response does not contain it"
                ),
                now_ms,
            )
        if leaders:
            nodes = [
                Node(endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack)
                for endpoint in response.node_endpoints
            ]
            for partition, (leader_id, epoch) in leaders.items():
                self._metadata.update_leader(partition, leader_id, epoch, nodes)

    def handle_failure(self, request: OutgoingProduce, error: KafkaError, now_ms: int) -> None:
        """Handles a request without a response: disconnected, timed out, or not sent at all."""
        for batch in request.batches:
            self._complete_attempt(batch, ProduceResult(error.code, nested_text(error)), now_ms)

    def _complete_attempt(self, batch: ProducerBatch, result: ProduceResult, now_ms: int) -> None:
        batch.is_in_flight = False
        code = result.code
        manager = self.manager
        if manager is not None:
            manager.sequencer.batch_returned(batch, code)
        if code is ErrorCode.NONE or (
            code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER and not batch.is_done
        ):
            self._complete(batch, result)
        elif code is ErrorCode.MESSAGE_TOO_LARGE and batch.records_count > 1 and not batch.is_done:
            logger.info(
                "%s: splitting a batch that is too large for the broker", batch.topic_partition
            )
            if manager is not None:
                manager.sequencer.remove_in_flight(batch)
            self.accumulator.split_and_reenqueue(batch)
            self._remove(batch)
            self.accumulator.complete_and_deallocate(batch)
            self._metrics.batch_split()
        elif self._can_retry(batch, result, now_ms):
            logger.info("%s: %s, retrying", batch.topic_partition, describe(result))
            self._remove(batch)
            self._retry_reasons[batch] = describe(result)
            self.accumulator.reenqueue(batch, now_ms)
            self._metrics.batch_retried(batch, now_ms)
        else:
            self._fail_rejected(batch, result)
        if code in _STALE_METADATA:
            self._metadata.request_update()
        if self._keeps_order:
            self.accumulator.unmute(batch.topic_partition)

    def _complete(self, batch: ProducerBatch, result: ProduceResult) -> None:
        if self.manager is not None:
            self.manager.sequencer.batch_completed(batch, result.base_offset)
        self._remove(batch)
        if batch.complete(result.base_offset, result.log_append_time_ms):
            self.accumulator.complete_and_deallocate(batch)
        else:
            self.accumulator.deallocate(batch)

    def _can_retry(self, batch: ProducerBatch, result: ProduceResult, now_ms: int) -> bool:
        if (
            batch.is_done
            or batch.attempts >= self._retries
            or batch.has_reached_delivery_timeout(self._delivery_timeout_ms, now_ms)
        ):
            return False
        if self.manager is None:
            return result.code.retriable
        return self.manager.sequencer.can_retry(batch, result.code, result.log_start_offset)

    def _fail_rejected(self, batch: ProducerBatch, result: ProduceResult) -> None:
        error = batch_error(batch.topic_partition, result)
        record_errors: dict[int, KafkaError] = {}
        if result.record_errors:
            code = result.code if len(result.record_errors) == 1 else ErrorCode.INVALID_RECORD
            for index, message in result.record_errors.items():
                record_errors[index] = error_of(code, message or nested_text(error))
            error = error_of(
                ErrorCode.INVALID_RECORD,
                f"not stored, because other records of the same batch are invalid: "
                f"{nested_text(error)}",
            )
        self._fail(batch, error, record_errors, adjust_sequences=batch.attempts < self._retries)

    def _fail(
        self,
        batch: ProducerBatch,
        error: KafkaError,
        record_errors: Mapping[int, KafkaError] | None = None,
        *,
        adjust_sequences: bool,
    ) -> None:
        self._remove(batch)
        if not batch.fail(error, record_errors or None):
            if not batch.is_in_flight:
                self.accumulator.deallocate(batch)
            return
        self._metrics.records_failed(batch.topic_partition.topic, batch.records_count)
        if self.manager is not None:
            self.manager.sequencer.batch_failed(batch, error, adjust_sequences=adjust_sequences)
        if batch.is_in_flight:
            # A request still reads its bytes: the memory is returned with the response.
            self.accumulator.complete_batch(batch)
        else:
            self.accumulator.complete_and_deallocate(batch)

    def _expire(self, now_ms: int) -> None:
        expired = (
            self.accumulator.expired_batches(now_ms)
            if now_ms >= self.accumulator.next_expiry_ms
            else []
        )
        if now_ms >= self._next_expiry_ms:
            self._next_expiry_ms = NEVER_MS
            for batches in list(self._in_flight.values()):
                for batch in list(batches):
                    if batch.has_reached_delivery_timeout(self._delivery_timeout_ms, now_ms):
                        expired.append(batch)
                    else:
                        self._next_expiry_ms = min(
                            self._next_expiry_ms, batch.created_ms + self._delivery_timeout_ms
                        )
        for batch in expired:
            was_sent = batch.is_in_flight or batch.in_retry
            reason = self._retry_reasons.get(batch, "the broker is down, unreachable or too slow")
            self._fail(
                batch,
                KafkaTimeoutError(
                    f"{batch.records_count} record(s) for {batch.topic_partition} were not "
                    f"acknowledged within `delivery_timeout_ms` ({now_ms - batch.created_ms} ms "
                    f"since they were sent, {batch.attempts} attempts): {reason}"
                ),
                adjust_sequences=False,
            )
            if self.manager is not None and was_sent and batch.has_sequence:
                self.manager.sequencer.mark_unresolved(batch)

    def fail_node(self, node_id: int, error: KafkaError, now_ms: int) -> None:
        """Fails the ready batches of a broker that cannot be used, whose error is not retriable."""
        drained = self.accumulator.drain(
            self._metadata.cluster, [node_id], self._max_request_size, now_ms
        )
        for batch in drained.get(node_id, ()):
            self._fail(batch, error, adjust_sequences=True)

    def _abort_all(self, error: KafkaError) -> None:
        if self.accumulator.has_incomplete():
            self.accumulator.abort_incomplete(error)
            self._in_flight.clear()

    def _remove(self, batch: ProducerBatch) -> None:
        if self._retry_reasons:
            self._retry_reasons.pop(batch, None)
        batches = self._in_flight.get(batch.topic_partition)
        if batches is not None and batch in batches:
            batches.remove(batch)
            if not batches:
                del self._in_flight[batch.topic_partition]
