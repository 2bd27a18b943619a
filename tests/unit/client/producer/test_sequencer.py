"""P5: sequences of an idempotent producer under retries, errors and expired batches."""

import pytest

from penstock.client.producer.batch import ProducerBatch
from penstock.client.producer.sequences import (
    MAX_EPOCH,
    MAX_SEQUENCE,
    ProducerIdAndEpoch,
    increment_sequence,
)
from penstock.client.producer.transaction_manager import TransactionManager
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.init_producer_id import InitProducerIdResponse

TP = TopicPartition("t", 0)


def new_batch(count: int = 1) -> ProducerBatch:
    batch = ProducerBatch(TP, bytearray(1000), 0)
    for _ in range(count):
        assert batch.append(0, None, b"v", (), None, 0) is not None
    return batch


def manager_with_id(epoch: int = 0) -> TransactionManager:
    manager = TransactionManager()
    manager.sequencer.bump_idempotent_epoch_if_needed(has_incomplete=True)
    request = manager.next_request(has_incomplete=True)
    assert request is not None
    request.handle(InitProducerIdResponse(producer_id=9, producer_epoch=epoch))
    return manager


def active_manager(epoch: int = 0) -> TransactionManager:
    """Returns a manager of which one record is stored already, with sequence 0."""
    manager = manager_with_id(epoch)
    first = send(manager)
    manager.sequencer.batch_returned(first, ErrorCode.NONE)
    manager.sequencer.batch_completed(first, 0)
    return manager


def send(manager: TransactionManager, count: int = 1) -> ProducerBatch:
    batch = new_batch(count)
    assert not manager.sequencer.should_stop_drain(batch, TP)
    manager.sequencer.assign_sequence(batch)
    batch.close()
    manager.sequencer.batch_sent(batch)
    return batch


def state(batch: ProducerBatch) -> tuple[int, int]:
    return batch.producer_epoch, batch.base_sequence


def fail(manager: TransactionManager, batch: ProducerBatch, code: ErrorCode) -> None:
    manager.sequencer.batch_returned(batch, code)
    manager.sequencer.batch_failed(batch, KafkaError(code, "refused"), adjust_sequences=True)


def bump(manager: TransactionManager) -> bool:
    before = manager.producer
    manager.sequencer.bump_idempotent_epoch_if_needed(has_incomplete=True)
    return manager.producer != before


def test_no_batch_is_sent_before_there_is_a_producer_id() -> None:
    assert TransactionManager().sequencer.should_stop_drain(new_batch(), TP)


def test_sequences_count_records_and_wrap() -> None:
    manager = active_manager()
    assert [state(send(manager, count)) for count in (2, 3, 1)] == [(0, 1), (0, 3), (0, 6)]
    assert increment_sequence(MAX_SEQUENCE, 1) == 0
    assert increment_sequence(MAX_SEQUENCE - 1, 3) == 1


def test_the_second_batch_of_an_epoch_waits_for_the_first() -> None:
    """Brokers accept any sequence as the first of a producer: it must be the right one."""
    manager = manager_with_id()
    first = send(manager)
    assert manager.sequencer.should_stop_drain(new_batch(), TP)
    manager.sequencer.batch_returned(first, ErrorCode.NONE)
    manager.sequencer.batch_completed(first, 0)
    assert state(send(manager)) == (0, 1)
    assert state(send(manager)) == (0, 2)


def test_retries_are_sent_one_at_a_time_and_in_order() -> None:
    manager = active_manager()
    first, second = send(manager), send(manager)
    for batch in (first, second):
        manager.sequencer.batch_returned(batch, ErrorCode.NETWORK_EXCEPTION)
    assert manager.sequencer.should_stop_drain(second, TP)
    assert not manager.sequencer.should_stop_drain(first, TP)
    manager.sequencer.batch_completed(first, 0)
    assert not manager.sequencer.should_stop_drain(second, TP)


def test_no_more_batches_are_sent_than_a_broker_remembers() -> None:
    """A new leader gets batches while the old one has not responded to earlier ones."""
    manager = active_manager()
    first, *others = [send(manager) for _ in range(5)]
    assert manager.sequencer.should_stop_drain(new_batch(), TP)
    for batch in others:
        manager.sequencer.batch_returned(batch, ErrorCode.NONE)
        manager.sequencer.batch_completed(batch, 1)
    assert manager.sequencer.should_stop_drain(new_batch(), TP), "it would forget the first"
    manager.sequencer.batch_returned(first, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert not manager.sequencer.should_stop_drain(first, TP)
    manager.sequencer.batch_completed(first, 0)
    for _ in range(5):
        send(manager)


def test_a_batch_after_a_failed_one_keeps_its_sequence_while_in_flight() -> None:
    """It may be stored with its old sequence: with a new one it would be stored twice."""
    manager = active_manager()
    first, second = send(manager), send(manager)
    fail(manager, first, ErrorCode.INVALID_RECORD)
    assert not bump(manager)
    assert manager.sequencer.should_stop_drain(new_batch(), TP)
    manager.sequencer.batch_returned(second, ErrorCode.NETWORK_EXCEPTION)
    assert not bump(manager), "the broker may have stored it"
    assert not manager.sequencer.should_stop_drain(second, TP), "so it is sent again"
    manager.sequencer.batch_sent(second)
    manager.sequencer.batch_returned(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert manager.sequencer.can_retry(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert manager.sequencer.should_stop_drain(second, TP)
    assert bump(manager)
    assert state(second) == (1, 0)
    assert not manager.sequencer.should_stop_drain(second, TP)


def test_a_gap_in_the_log_bumps_the_epoch_and_retries_all_batches() -> None:
    """KIP-360."""
    manager = active_manager()
    done, lost, after = send(manager), send(manager), send(manager)
    manager.sequencer.batch_returned(done, ErrorCode.NONE)
    manager.sequencer.batch_completed(done, 10)
    for batch in (lost, after):
        manager.sequencer.batch_returned(batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        assert manager.sequencer.can_retry(batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert bump(manager)
    assert [state(lost), state(after)] == [(1, 0), (1, 1)]
    assert manager.sequencer.should_stop_drain(after, TP)


def test_an_out_of_order_batch_after_a_retried_one_needs_no_new_epoch() -> None:
    manager = active_manager()
    first, second = send(manager), send(manager)
    manager.sequencer.batch_returned(first, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    manager.sequencer.batch_returned(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert manager.sequencer.can_retry(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert not bump(manager)


@pytest.mark.parametrize("is_in_log", [True, False])
def test_an_expired_batch_is_resolved_by_later_ones(is_in_log: bool) -> None:
    manager = active_manager()
    given_up, behind = send(manager), send(manager)
    manager.sequencer.batch_returned(given_up, ErrorCode.NETWORK_EXCEPTION)
    manager.sequencer.batch_failed(
        given_up, KafkaError(ErrorCode.REQUEST_TIMED_OUT, "late"), adjust_sequences=False
    )
    manager.sequencer.mark_unresolved(given_up)
    manager.sequencer.resolve_sequences()
    assert manager.sequencer.should_stop_drain(new_batch(), TP)
    if is_in_log:
        manager.sequencer.batch_returned(behind, ErrorCode.NONE)
        manager.sequencer.batch_completed(behind, 1)
        manager.sequencer.resolve_sequences()
        assert not bump(manager)
        assert state(send(manager)) == (0, 3)
    else:
        manager.sequencer.batch_returned(behind, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        assert manager.sequencer.can_retry(behind, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert bump(manager)
        assert state(behind) == (1, 0)


def test_a_last_batch_that_expired_bumps_the_epoch() -> None:
    manager = active_manager()
    batch = send(manager)
    manager.sequencer.batch_returned(batch, ErrorCode.NETWORK_EXCEPTION)
    manager.sequencer.batch_failed(
        batch, KafkaError(ErrorCode.REQUEST_TIMED_OUT, "late"), adjust_sequences=False
    )
    manager.sequencer.mark_unresolved(batch)
    manager.sequencer.resolve_sequences()
    assert bump(manager)
    assert state(send(manager)) == (1, 0)


def test_a_new_producer_id_follows_the_last_epoch() -> None:
    manager = active_manager(MAX_EPOCH)
    bad, behind = send(manager), send(manager)
    fail(manager, bad, ErrorCode.INVALID_RECORD)
    manager.sequencer.batch_returned(behind, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert bump(manager)
    assert manager.sequencer.should_stop_drain(new_batch(), TP)
    request = manager.next_request(has_incomplete=True)
    assert request is not None
    request.handle(InitProducerIdResponse(producer_id=10, producer_epoch=0))
    manager.sequencer.bump_idempotent_epoch_if_needed(has_incomplete=True)
    assert manager.producer == ProducerIdAndEpoch(10, 0)
    assert (behind.producer_id, *state(behind)) == (10, 0, 0)
    manager.sequencer.batch_completed(behind, 1)
    assert state(send(manager)) == (0, 1)


def test_sequences_restart_after_retention_removed_the_producer() -> None:
    manager = active_manager()
    done, batch = send(manager), send(manager)
    manager.sequencer.batch_returned(done, ErrorCode.NONE)
    manager.sequencer.batch_completed(done, 10)
    manager.sequencer.batch_returned(batch, ErrorCode.UNKNOWN_PRODUCER_ID)
    assert manager.sequencer.can_retry(batch, ErrorCode.UNKNOWN_PRODUCER_ID, 11)
    assert bump(manager)
    assert state(batch) == (1, 0)
