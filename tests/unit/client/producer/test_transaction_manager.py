"""P4, P5: `TransactionManager`, request by request."""

from typing import Any

import pytest

from penstock.client.consumer.record import ConsumerGroupMetadata, OffsetAndMetadata
from penstock.client.errors import (
    AuthorizationError,
    CommitFailedError,
    IllegalStateError,
    ProducerFencedError,
)
from penstock.client.producer.batch import ProducerBatch
from penstock.client.producer.sequences import ProducerIdAndEpoch
from penstock.client.producer.transaction_manager import TransactionManager
from penstock.client.producer.transaction_request import TxnRequest, TxnResult
from penstock.client.producer.transaction_requests import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    EndTxn,
    FindCoordinator,
    InitProducerId,
    TxnOffsetCommit,
)
from penstock.client.producer.transaction_state import State
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from penstock.protocol.messages.end_txn import EndTxnResponse
from penstock.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from penstock.protocol.messages.init_producer_id import InitProducerIdResponse
from penstock.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

TP = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)
GROUP = ConsumerGroupMetadata("g", 3, "member")
OFFSETS = {TP: OffsetAndMetadata(7)}
V1 = 0
V2 = 2


def batch_for(partition: TopicPartition = TP, count: int = 1) -> ProducerBatch:
    batch = ProducerBatch(partition, bytearray(1000), 0)
    for _ in range(count):
        assert batch.append(0, None, b"v", (), None, 0) is not None
    return batch


def next_request(manager: TransactionManager, *, has_incomplete: bool = False) -> TxnRequest[Any]:
    request = manager.next_request(has_incomplete=has_incomplete)
    assert request is not None
    return request


def find_coordinator(manager: TransactionManager, key: str = "id") -> None:
    """Responds to FindCoordinator."""
    request = next_request(manager)
    assert isinstance(request, FindCoordinator)
    assert request.coordinator is None
    request.handle(
        FindCoordinatorResponse(coordinators=[Coordinator(key=key, node_id=1, host="h", port=9)])
    )
    assert request.result.is_done


def look_up(manager: TransactionManager, request: TxnRequest[Any]) -> None:
    """Does what the driver does when the coordinator is unknown."""
    assert request.coordinator is not None
    assert request.coordinator not in manager.coordinators
    manager.look_up_coordinator(*request.coordinator)
    manager.enqueue(request)
    find_coordinator(manager, request.coordinator[1])
    assert request.coordinator in manager.coordinators


def ready_manager(version: int = V2, *, bumps: bool = True) -> TransactionManager:
    manager = TransactionManager("id")
    result = manager.initialize()
    request = next_request(manager)
    look_up(manager, request)
    manager.set_coordinator_version(3 if bumps else 2)
    assert next_request(manager) is request
    request.handle(InitProducerIdResponse(producer_id=5, producer_epoch=0))
    assert ok(result)
    manager.set_transaction_version(version, initially=True)
    assert manager.state is State.READY
    return manager


def in_transaction(version: int = V2, *, bumps: bool = True) -> TransactionManager:
    manager = ready_manager(version, bumps=bumps)
    manager.begin()
    return manager


def ok(result: TxnResult) -> bool:
    """Acknowledges a result, as the caller does."""
    result.is_acknowledged = True
    return result.is_done and result.error is None


def error_of_result(result: TxnResult) -> KafkaError:
    assert result.is_done
    assert result.error is not None
    result.is_acknowledged = True
    return result.error


def respond_add_partitions(manager: TransactionManager, *codes: ErrorCode) -> AddPartitionsToTxn:
    """Responds to AddPartitionsToTxn with an error code for each partition."""
    request = next_request(manager)
    assert isinstance(request, AddPartitionsToTxn)
    message = request.build(3)
    assert isinstance(message, AddPartitionsToTxnRequest)
    (topic,) = message.v3_and_below_topics
    results = [
        AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
        for index, code in zip(topic.partitions, codes, strict=True)
    ]
    request.handle(
        AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=results)
            ]
        )
    )
    return request


def respond_end(
    manager: TransactionManager, code: ErrorCode = ErrorCode.NONE, epoch: int = -1
) -> EndTxn:
    request = next_request(manager)
    assert isinstance(request, EndTxn)
    request.handle(
        EndTxnResponse(error_code=code, producer_id=5 if epoch >= 0 else -1, producer_epoch=epoch)
    )
    return request


def respond_offset_commit(request: TxnRequest[Any], code: ErrorCode = ErrorCode.NONE) -> None:
    request.handle(
        TxnOffsetCommitResponse(
            topics=[
                TxnOffsetCommitResponseTopic(
                    name="t",
                    partitions=[
                        TxnOffsetCommitResponsePartition(partition_index=0, error_code=code)
                    ],
                )
            ]
        )
    )


def test_a_transaction_of_v2_sends_no_request_before_its_end() -> None:
    """P4 (KIP-890): brokers add the partitions, and EndTxn returns the next epoch."""
    manager = in_transaction()
    manager.add_partition(TP)
    assert manager.next_request(has_incomplete=False) is None
    batch = batch_for()
    assert not manager.sequencer.should_stop_drain(batch, TP)
    manager.sequencer.assign_sequence(batch)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (5, 0, 0)
    manager.sequencer.batch_completed(batch, 0)
    result = manager.begin_commit(V2)
    assert manager.next_request(has_incomplete=True) is None
    request = respond_end(manager, epoch=1)
    assert request.max_version is None
    assert ok(result)
    manager.begin()
    manager.add_partition(TP)
    after = batch_for()
    manager.sequencer.assign_sequence(after)
    assert (after.producer_epoch, after.base_sequence) == (1, 0)


def test_a_transaction_of_v1_adds_partitions_before_records_are_sent_to_them() -> None:
    manager = in_transaction(V1)
    manager.add_partition(TP)
    manager.add_partition(OTHER)
    batch = batch_for()
    assert manager.sequencer.should_stop_drain(batch, TP)
    respond_add_partitions(manager, ErrorCode.NONE, ErrorCode.NONE)
    assert not manager.sequencer.should_stop_drain(batch, TP)
    manager.sequencer.assign_sequence(batch)
    manager.sequencer.batch_completed(batch, 0)
    result = manager.begin_commit(V1)
    assert respond_end(manager).max_version == 4
    assert ok(result)
    manager.begin()
    manager.add_partition(TP)
    respond_add_partitions(manager, ErrorCode.NONE)
    following = batch_for()
    manager.sequencer.assign_sequence(following)
    # Sequences go on, because the epoch is the same.
    assert (following.producer_epoch, following.base_sequence) == (0, 1)


def test_no_batch_is_sent_while_a_transaction_ends() -> None:
    """The record of a thread that was in `send` when another committed has no transaction."""
    manager = in_transaction()
    manager.add_partition(TP)
    manager.begin_commit(V2)
    assert not manager.sequencer.should_stop_drain(batch_for(), TP)
    manager.in_flight = next_request(manager)
    assert manager.sequencer.should_stop_drain(batch_for(), TP)


@pytest.mark.parametrize("version", [V1, V2])
def test_an_empty_transaction_ends_without_a_request(version: int) -> None:
    manager = in_transaction(version)
    result = manager.begin_commit(version)
    assert manager.next_request(has_incomplete=False) is None
    assert ok(result)
    assert manager.state is State.READY


def test_the_next_transaction_waits_shortly_for_the_markers() -> None:
    manager = in_transaction(V1)
    manager.add_partition(TP)
    request = respond_add_partitions(manager, ErrorCode.CONCURRENT_TRANSACTIONS)
    assert request.is_retry
    assert request.backoff_ms == 20
    respond_add_partitions(manager, ErrorCode.NONE)
    manager.add_partition(OTHER)
    assert respond_add_partitions(manager, ErrorCode.CONCURRENT_TRANSACTIONS).backoff_ms == 100


def test_a_coordinator_that_has_moved_is_looked_up_again() -> None:
    manager = in_transaction()
    manager.add_partition(TP)
    result = manager.begin_commit(V2)
    respond_end(manager, ErrorCode.NOT_COORDINATOR)
    find_coordinator(manager)
    respond_end(manager, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    request = next_request(manager)
    request.handle_disconnect()
    find_coordinator(manager)
    respond_end(manager, epoch=1)
    assert ok(result)


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_a_fenced_producer_has_a_fatal_error(
    code: ErrorCode, caplog: pytest.LogCaptureFixture
) -> None:
    """Every call raises it, so that a warning in the log would be redundant."""
    manager = in_transaction()
    manager.add_partition(TP)
    result = manager.begin_commit(V2)
    respond_end(manager, code)
    assert isinstance(error_of_result(result), ProducerFencedError)
    for call in (manager.begin, manager.check_send, lambda: manager.begin_abort(V2)):
        with pytest.raises(ProducerFencedError, match="close it"):
            call()
    assert manager.sequencer.should_stop_drain(batch_for(), TP)
    assert not caplog.records


def test_an_unauthorized_partition_makes_the_transaction_abortable() -> None:
    """E3: the error has the topic."""
    manager = in_transaction(V1)
    manager.add_partition(TP)
    respond_add_partitions(manager, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(AuthorizationError, match=r"write to t.*abort_transaction"):
        manager.begin_commit(V1)
    with pytest.raises(AuthorizationError):
        manager.check_send()
    result = manager.begin_abort(V1)
    # Nothing reached the coordinator: there is nothing to end.
    assert manager.next_request(has_incomplete=False) is None
    assert ok(result)
    assert manager.state is State.READY


def test_a_batch_that_fails_makes_the_transaction_abortable() -> None:
    """KIP-1050: a batch without retries left is TRANSACTION_ABORTABLE for the user."""
    manager = in_transaction()
    manager.add_partition(TP)
    batch = batch_for()
    manager.sequencer.assign_sequence(batch)
    manager.sequencer.batch_failed(
        batch, KafkaError(ErrorCode.REQUEST_TIMED_OUT, "too late"), adjust_sequences=False
    )
    with pytest.raises(KafkaError) as caught:
        manager.begin_commit(V2)
    assert caught.value.code is ErrorCode.TRANSACTION_ABORTABLE
    result = manager.begin_abort(V2)
    respond_end(manager, epoch=1)
    assert ok(result)
    manager.begin()


def test_in_v1_the_epoch_is_bumped_after_the_abort() -> None:
    """KIP-360: the outcome of its batches is unknown, so that sequences restart."""
    manager = in_transaction(V1)
    manager.add_partition(TP)
    respond_add_partitions(manager, ErrorCode.NONE)
    batch = batch_for()
    manager.sequencer.assign_sequence(batch)
    manager.sequencer.batch_failed(
        batch, KafkaError(ErrorCode.REQUEST_TIMED_OUT, "too late"), adjust_sequences=False
    )
    result = manager.begin_abort(V1)
    respond_end(manager)
    assert not result.is_done
    bump = next_request(manager)
    assert isinstance(bump, InitProducerId)
    bump.handle(InitProducerIdResponse(producer_id=5, producer_epoch=1))
    assert ok(result)
    manager.begin()
    manager.add_partition(TP)
    respond_add_partitions(manager, ErrorCode.NONE)
    after = batch_for()
    manager.sequencer.assign_sequence(after)
    assert (after.producer_epoch, after.base_sequence) == (1, 0)


@pytest.mark.parametrize("bumps", [True, False])
def test_a_producer_that_the_coordinator_has_forgotten(bumps: bool) -> None:
    manager = in_transaction(V1, bumps=bumps)
    manager.add_partition(TP)
    respond_add_partitions(manager, ErrorCode.UNKNOWN_PRODUCER_ID)
    assert manager.state is (State.ABORTABLE_ERROR if bumps else State.FATAL_ERROR)


def test_an_abort_that_fails_is_a_fatal_error() -> None:
    manager = in_transaction()
    manager.add_partition(TP)
    result = manager.begin_abort(V2)
    respond_end(manager, ErrorCode.TRANSACTION_ABORTABLE)
    assert "abort" in error_of_result(result).message
    assert manager.has_fatal_error


@pytest.mark.parametrize("version", [V1, V2])
def test_offsets_go_to_the_coordinator_of_their_group(version: int) -> None:
    manager = in_transaction(version)
    result = manager.send_offsets(OFFSETS, GROUP)
    request = next_request(manager)
    if version == V1:
        assert isinstance(request, AddOffsetsToTxn)
        request.handle(AddOffsetsToTxnResponse())
        assert not result.is_done
        request = next_request(manager)
    assert isinstance(request, TxnOffsetCommit)
    look_up(manager, request)
    assert next_request(manager) is request
    assert request.max_version == (4 if version == V1 else 5)
    message = request.build(5)
    assert isinstance(message, TxnOffsetCommitRequest)
    assert message.topics[0].partitions[0].committed_offset == 7
    assert (message.generation_id_or_member_epoch, message.member_id) == (3, "member")
    respond_offset_commit(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert next_request(manager) is request
    respond_offset_commit(request)
    assert ok(result)
    end = manager.begin_commit(version)
    respond_end(manager, epoch=1 if version == V2 else -1)
    assert ok(end)


def test_offsets_of_a_replaced_member_are_rejected() -> None:
    manager = in_transaction()
    result = manager.send_offsets(OFFSETS, GROUP)
    respond_offset_commit(next_request(manager), ErrorCode.ILLEGAL_GENERATION)
    assert isinstance(error_of_result(result), CommitFailedError)
    assert manager.has_abortable_error


def test_only_a_call_that_timed_out_may_be_repeated() -> None:
    manager = in_transaction()
    manager.add_partition(TP)
    result = manager.begin_commit(V2)
    assert manager.begin_commit(V2) is result
    for call in (manager.begin, lambda: manager.begin_abort(V2), manager.check_send):
        with pytest.raises(IllegalStateError, match="commit_transaction timed out"):
            call()
    respond_end(manager, epoch=1)
    assert manager.begin_commit(V2) is result
    assert ok(result)
    manager.begin()


def test_the_error_of_a_call_out_of_order_says_what_to_call() -> None:
    with pytest.raises(IllegalStateError, match="transactional_id"):
        TransactionManager().initialize()
    fresh = TransactionManager("id")
    with pytest.raises(IllegalStateError, match="init_transactions first"):
        fresh.begin()
    with pytest.raises(IllegalStateError, match="init_transactions before"):
        fresh.check_send()
    manager = ready_manager()
    with pytest.raises(IllegalStateError, match="begin_transaction first"):
        manager.check_send()
    with pytest.raises(IllegalStateError, match="no transaction"):
        manager.begin_commit(V2)
    with pytest.raises(IllegalStateError, match="begin_transaction first"):
        manager.send_offsets(OFFSETS, GROUP)
    with pytest.raises(IllegalStateError, match="once"):
        manager.initialize()
    manager.begin()
    with pytest.raises(IllegalStateError, match="commit or abort"):
        manager.begin()
    assert manager.state is State.IN_TRANSACTION


def test_v2_is_used_from_the_next_transaction_on_after_an_upgrade() -> None:
    manager = in_transaction(V1)
    manager.add_partition(TP)
    respond_add_partitions(manager, ErrorCode.NONE)
    result = manager.begin_commit(V2)
    assert respond_end(manager).max_version == 4
    bump = next_request(manager)
    assert isinstance(bump, InitProducerId)
    bump.handle(InitProducerIdResponse(producer_id=5, producer_epoch=1))
    assert ok(result)
    manager.begin()
    manager.add_partition(TP)
    assert manager.next_request(has_incomplete=False) is None


def test_an_unauthorized_idempotent_producer_can_try_again() -> None:
    """E3."""
    manager = TransactionManager()
    manager.sequencer.bump_idempotent_epoch_if_needed(has_incomplete=False)
    request = next_request(manager)
    assert request.coordinator is None
    request.handle(InitProducerIdResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    error = manager.last_error
    assert error is not None
    assert "IDEMPOTENT_WRITE" in error.message
    manager.to_uninitialized(error)
    manager.sequencer.bump_idempotent_epoch_if_needed(has_incomplete=False)
    assert manager.next_request(has_incomplete=False) is None
    manager.sequencer.bump_idempotent_epoch_if_needed(has_incomplete=True)
    next_request(manager).handle(InitProducerIdResponse(producer_id=8, producer_epoch=0))
    assert manager.producer == ProducerIdAndEpoch(8, 0)


def test_the_error_of_an_unauthorized_transactional_id_has_its_name() -> None:
    """E3."""
    manager = TransactionManager("id")
    result = manager.initialize()
    request = next_request(manager)
    look_up(manager, request)
    next_request(manager).handle(
        InitProducerIdResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    )
    assert "transactional id 'id'" in error_of_result(result).message


def test_close_fails_all_waiting_calls() -> None:
    manager = TransactionManager("id")
    result = manager.initialize()
    manager.close()
    assert isinstance(error_of_result(result), IllegalStateError)
