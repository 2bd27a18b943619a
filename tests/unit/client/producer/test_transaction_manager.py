"""P4, P5: the machine of idempotent and transactional producers, request by request."""

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


def next_of(manager: TransactionManager, *, has_incomplete: bool = False) -> TxnRequest[Any]:
    request = manager.next_request(has_incomplete=has_incomplete)
    assert request is not None
    return request


def find_coordinator(manager: TransactionManager, key: str = "id") -> None:
    """Responds to FindCoordinator."""
    request = next_of(manager)
    assert isinstance(request, FindCoordinator)
    assert request.coordinator is None
    request.handle(
        FindCoordinatorResponse(coordinators=[Coordinator(key=key, node_id=1, host="h", port=9)])
    )
    assert request.result.is_done


def looked_up(manager: TransactionManager, request: TxnRequest[Any]) -> None:
    """Does what the driver does when the coordinator is unknown."""
    assert request.coordinator is not None
    assert request.coordinator not in manager.coordinators
    manager.look_up_coordinator(*request.coordinator)
    manager.enqueue(request)
    find_coordinator(manager, request.coordinator[1])
    assert request.coordinator in manager.coordinators


def ready(version: int = V2, *, bumps: bool = True) -> TransactionManager:
    manager = TransactionManager("id")
    result = manager.initialize()
    request = next_of(manager)
    looked_up(manager, request)
    manager.set_coordinator_version(3 if bumps else 2)
    assert next_of(manager) is request
    request.handle(InitProducerIdResponse(producer_id=5, producer_epoch=0))
    assert ok(result)
    manager.set_transaction_version(version, initially=True)
    assert manager.state is State.READY
    return manager


def in_transaction(version: int = V2, *, bumps: bool = True) -> TransactionManager:
    manager = ready(version, bumps=bumps)
    manager.begin()
    return manager


def ok(result: TxnResult) -> bool:
    """Acknowledges a result, as the caller does."""
    result.is_acknowledged = True
    return result.is_done and result.error is None


def failure(result: TxnResult) -> KafkaError:
    assert result.is_done
    assert result.error is not None
    result.is_acknowledged = True
    return result.error


def added(manager: TransactionManager, *codes: ErrorCode) -> AddPartitionsToTxn:
    """Answers AddPartitionsToTxn, partition by partition."""
    request = next_of(manager)
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


def ended(manager: TransactionManager, code: ErrorCode = ErrorCode.NONE, epoch: int = -1) -> EndTxn:
    request = next_of(manager)
    assert isinstance(request, EndTxn)
    request.handle(
        EndTxnResponse(error_code=code, producer_id=5 if epoch >= 0 else -1, producer_epoch=epoch)
    )
    return request


def committed(request: TxnRequest[Any], code: ErrorCode = ErrorCode.NONE) -> None:
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


def test_a_transaction_of_v2_asks_nobody_before_its_end() -> None:
    """P4 (KIP-890): partitions are added by the brokers, EndTxn brings the next epoch."""
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
    request = ended(manager, epoch=1)
    assert request.max_version is None
    assert ok(result)
    manager.begin()
    manager.add_partition(TP)
    after = batch_for()
    manager.sequencer.assign_sequence(after)
    assert (after.producer_epoch, after.base_sequence) == (1, 0)


def test_a_transaction_of_v1_adds_partitions_before_anything_is_sent_to_them() -> None:
    manager = in_transaction(V1)
    manager.add_partition(TP)
    manager.add_partition(OTHER)
    batch = batch_for()
    assert manager.sequencer.should_stop_drain(batch, TP)
    added(manager, ErrorCode.NONE, ErrorCode.NONE)
    assert not manager.sequencer.should_stop_drain(batch, TP)
    manager.sequencer.assign_sequence(batch)
    manager.sequencer.batch_completed(batch, 0)
    result = manager.begin_commit(V1)
    assert ended(manager).max_version == 4
    assert ok(result)
    manager.begin()
    manager.add_partition(TP)
    added(manager, ErrorCode.NONE)
    following = batch_for()
    manager.sequencer.assign_sequence(following)
    # Sequences go on, because the epoch is the same.
    assert (following.producer_epoch, following.base_sequence) == (0, 1)


def test_nothing_leaves_while_a_transaction_is_being_ended() -> None:
    """A thread that was in `send` when another committed: its record is of no transaction."""
    manager = in_transaction()
    manager.add_partition(TP)
    manager.begin_commit(V2)
    assert not manager.sequencer.should_stop_drain(batch_for(), TP)
    manager.in_flight = next_of(manager)
    assert manager.sequencer.should_stop_drain(batch_for(), TP)


@pytest.mark.parametrize("version", [V1, V2])
def test_a_transaction_without_anything_in_it_ends_without_a_request(version: int) -> None:
    manager = in_transaction(version)
    result = manager.begin_commit(version)
    assert manager.next_request(has_incomplete=False) is None
    assert ok(result)
    assert manager.state is State.READY


def test_what_follows_a_transaction_at_once_waits_for_its_markers_shortly() -> None:
    manager = in_transaction(V1)
    manager.add_partition(TP)
    request = added(manager, ErrorCode.CONCURRENT_TRANSACTIONS)
    assert request.is_retry
    assert request.backoff_ms == 20
    added(manager, ErrorCode.NONE)
    manager.add_partition(OTHER)
    assert added(manager, ErrorCode.CONCURRENT_TRANSACTIONS).backoff_ms == 100


def test_a_coordinator_that_has_moved_is_looked_for_again() -> None:
    manager = in_transaction()
    manager.add_partition(TP)
    result = manager.begin_commit(V2)
    ended(manager, ErrorCode.NOT_COORDINATOR)
    find_coordinator(manager)
    ended(manager, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    request = next_of(manager)
    request.handle_disconnect()
    find_coordinator(manager)
    ended(manager, epoch=1)
    assert ok(result)


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_a_fenced_producer_is_done_for_good(
    code: ErrorCode, caplog: pytest.LogCaptureFixture
) -> None:
    """Every call raises it, so that a warning in the log would be redundant."""
    manager = in_transaction()
    manager.add_partition(TP)
    result = manager.begin_commit(V2)
    ended(manager, code)
    assert isinstance(failure(result), ProducerFencedError)
    for call in (manager.begin, manager.check_send, lambda: manager.begin_abort(V2)):
        with pytest.raises(ProducerFencedError, match="close it"):
            call()
    assert manager.sequencer.should_stop_drain(batch_for(), TP)
    assert not caplog.records


def test_a_partition_that_may_not_be_written_to_leaves_only_the_abort() -> None:
    """E3: says which topic."""
    manager = in_transaction(V1)
    manager.add_partition(TP)
    added(manager, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
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
    """KIP-1050: whatever ran out of retries is TRANSACTION_ABORTABLE to the user."""
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
    ended(manager, epoch=1)
    assert ok(result)
    manager.begin()


def test_in_v1_an_epoch_is_asked_for_after_the_abort() -> None:
    """KIP-360: sequences of the aborted transaction are in doubt, so they start again."""
    manager = in_transaction(V1)
    manager.add_partition(TP)
    added(manager, ErrorCode.NONE)
    batch = batch_for()
    manager.sequencer.assign_sequence(batch)
    manager.sequencer.batch_failed(
        batch, KafkaError(ErrorCode.REQUEST_TIMED_OUT, "too late"), adjust_sequences=False
    )
    result = manager.begin_abort(V1)
    ended(manager)
    assert not result.is_done
    bump = next_of(manager)
    assert isinstance(bump, InitProducerId)
    bump.handle(InitProducerIdResponse(producer_id=5, producer_epoch=1))
    assert ok(result)
    manager.begin()
    manager.add_partition(TP)
    added(manager, ErrorCode.NONE)
    after = batch_for()
    manager.sequencer.assign_sequence(after)
    assert (after.producer_epoch, after.base_sequence) == (1, 0)


@pytest.mark.parametrize("bumps", [True, False])
def test_a_producer_that_the_coordinator_forgot(bumps: bool) -> None:
    manager = in_transaction(V1, bumps=bumps)
    manager.add_partition(TP)
    added(manager, ErrorCode.UNKNOWN_PRODUCER_ID)
    assert manager.state is (State.ABORTABLE_ERROR if bumps else State.FATAL_ERROR)


def test_an_abort_that_cannot_be_done_is_the_end() -> None:
    manager = in_transaction()
    manager.add_partition(TP)
    result = manager.begin_abort(V2)
    ended(manager, ErrorCode.TRANSACTION_ABORTABLE)
    assert "abort" in failure(result).message
    assert manager.has_fatal_error


@pytest.mark.parametrize("version", [V1, V2])
def test_offsets_go_to_the_coordinator_of_their_group(version: int) -> None:
    manager = in_transaction(version)
    result = manager.send_offsets(OFFSETS, GROUP)
    request = next_of(manager)
    if version == V1:
        assert isinstance(request, AddOffsetsToTxn)
        request.handle(AddOffsetsToTxnResponse())
        assert not result.is_done
        request = next_of(manager)
    assert isinstance(request, TxnOffsetCommit)
    looked_up(manager, request)
    assert next_of(manager) is request
    assert request.max_version == (4 if version == V1 else 5)
    message = request.build(5)
    assert isinstance(message, TxnOffsetCommitRequest)
    assert message.topics[0].partitions[0].committed_offset == 7
    assert (message.generation_id_or_member_epoch, message.member_id) == (3, "member")
    committed(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert next_of(manager) is request
    committed(request)
    assert ok(result)
    end = manager.begin_commit(version)
    ended(manager, epoch=1 if version == V2 else -1)
    assert ok(end)


def test_offsets_of_a_member_that_was_replaced_are_refused() -> None:
    manager = in_transaction()
    result = manager.send_offsets(OFFSETS, GROUP)
    committed(next_of(manager), ErrorCode.ILLEGAL_GENERATION)
    assert isinstance(failure(result), CommitFailedError)
    assert manager.has_abortable_error


def test_a_call_whose_time_ran_out_is_made_again_and_nothing_else() -> None:
    manager = in_transaction()
    manager.add_partition(TP)
    result = manager.begin_commit(V2)
    assert manager.begin_commit(V2) is result
    for call in (manager.begin, lambda: manager.begin_abort(V2), manager.check_send):
        with pytest.raises(IllegalStateError, match="commit_transaction timed out"):
            call()
    ended(manager, epoch=1)
    assert manager.begin_commit(V2) is result
    assert ok(result)
    manager.begin()


def test_calls_out_of_order_say_what_to_call() -> None:
    with pytest.raises(IllegalStateError, match="transactional_id"):
        TransactionManager().initialize()
    fresh = TransactionManager("id")
    with pytest.raises(IllegalStateError, match="init_transactions first"):
        fresh.begin()
    with pytest.raises(IllegalStateError, match="init_transactions before"):
        fresh.check_send()
    manager = ready()
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


def test_a_cluster_that_gets_v2_meanwhile_has_it_from_the_next_transaction_on() -> None:
    manager = in_transaction(V1)
    manager.add_partition(TP)
    added(manager, ErrorCode.NONE)
    result = manager.begin_commit(V2)
    assert ended(manager).max_version == 4
    bump = next_of(manager)
    assert isinstance(bump, InitProducerId)
    bump.handle(InitProducerIdResponse(producer_id=5, producer_epoch=1))
    assert ok(result)
    manager.begin()
    manager.add_partition(TP)
    assert manager.next_request(has_incomplete=False) is None


def test_who_may_not_produce_idempotently_is_told_and_may_try_again() -> None:
    """E3."""
    manager = TransactionManager()
    manager.sequencer.bump_idempotent_epoch_if_needed(has_incomplete=False)
    request = next_of(manager)
    assert request.coordinator is None
    request.handle(InitProducerIdResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    error = manager.last_error
    assert error is not None
    assert "IDEMPOTENT_WRITE" in error.message
    manager.to_uninitialized(error)
    manager.sequencer.bump_idempotent_epoch_if_needed(has_incomplete=False)
    assert manager.next_request(has_incomplete=False) is None
    manager.sequencer.bump_idempotent_epoch_if_needed(has_incomplete=True)
    next_of(manager).handle(InitProducerIdResponse(producer_id=8, producer_epoch=0))
    assert manager.producer == ProducerIdAndEpoch(8, 0)


def test_a_transactional_id_that_may_not_be_used_names_itself() -> None:
    """E3."""
    manager = TransactionManager("id")
    result = manager.initialize()
    request = next_of(manager)
    looked_up(manager, request)
    next_of(manager).handle(
        InitProducerIdResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    )
    assert "transactional id 'id'" in failure(result).message


def test_closing_tells_everybody_who_waits() -> None:
    manager = TransactionManager("id")
    result = manager.initialize()
    manager.close()
    assert isinstance(failure(result), IllegalStateError)
