"""Transactions from begin to end, in both generations of the protocol (P4, C4)."""

import time
from typing import Any

import pytest

from penstock.broker.broker import Broker
from penstock.core.errors import ErrorCode
from penstock.records.batch import TRANSACTIONAL_FLAG, compute_crc, write_crc
from tests.support.broker.in_process import RunningBroker, WireClient
from tests.support.coordinator.transaction_client import (
    READ_COMMITTED,
    Generation,
    TxnProducer,
    committed,
    described,
    fetched_committed,
    latest,
    produce_request,
    txn_batch,
    uncommitted,
    wait_for_state,
)
from tests.support.protocol.requests import (
    fetch_request,
    make_topic,
    produce_values,
    receive_response,
)

ATTRIBUTES_AT = 22
both_generations = pytest.mark.parametrize(
    "generation", Generation, ids=lambda generation: generation.name
)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A topic and transactional id that no other test uses."""
    text: str = request.node.name
    return "".join(character if character.isalnum() else "-" for character in text)


@both_generations
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_ends_in_all_partitions(
    client: WireClient, name: str, generation: Generation, commit: bool
) -> None:
    """Covers several partitions and topics; read_committed shows records only after the end."""
    topics = [f"{name}-a", f"{name}-b"]
    partitions = [(topic, partition) for topic in topics for partition in range(2)]
    for topic in topics:
        make_topic(client, topic, 2)
        produce_values(client, topic, b"before")
        produce_values(client, topic, b"before", partition=1)
    producer = TxnProducer.started(client, name, generation)
    for topic, partition in partitions:
        assert producer.write(topic, b"one", partition=partition) == 1
        assert producer.write(topic, b"two", b"three", partition=partition) == 2
        produce_values(client, topic, b"behind", partition=partition)
    for topic, partition in partitions:
        data = fetched_committed(client, topic, partition)
        assert (data.last_stable_offset, data.high_watermark) == (1, 5)
        assert committed(client, topic, partition) == [b"before"]
        assert latest(client, topic, READ_COMMITTED, partition) == 1
        assert latest(client, topic, 0, partition) == 5
    state = described(client, name)
    assert (state.transaction_state, state.producer_id) == ("Ongoing", producer.producer_id)
    assert {topic.topic: sorted(topic.partitions) for topic in state.topics} == {
        topic: [0, 1] for topic in topics
    }
    if commit:
        producer.commit()
    else:
        producer.abort()
    expected_values = (
        [b"before", b"one", b"two", b"three", b"behind"] if commit else [b"before", b"behind"]
    )
    for topic, partition in partitions:
        data = fetched_committed(client, topic, partition)
        assert (data.last_stable_offset, data.high_watermark) == (6, 6)
        data = fetched_committed(client, topic, partition, 1)
        aborted = [
            (transaction.producer_id, transaction.first_offset)
            for transaction in data.aborted_transactions
        ]
        assert aborted == ([] if commit else [(producer.producer_id, 1)])
        assert committed(client, topic, partition) == expected_values
        assert len(uncommitted(client, topic, partition)) == 5
        assert latest(client, topic, READ_COMMITTED, partition) == 6
    assert described(client, name).topics == []


@both_generations
def test_consecutive_transactions(client: WireClient, name: str, generation: Generation) -> None:
    """Version 2 increments the epoch after every transaction; version 1 keeps it."""
    make_topic(client, name)
    producer = TxnProducer.started(client, name, generation)
    epochs = [producer.epoch]
    for number in range(6):
        producer.write(name, b"%d" % number)
        # The next transaction begins while the markers of this one are written.
        assert producer.end(commit=number % 2 == 0) is ErrorCode.NONE
        epochs.append(producer.epoch)
    wait_for_state(client, name, "CompleteAbort")
    assert committed(client, name) == [b"0", b"2", b"4"]
    assert len(uncommitted(client, name)) == 6
    assert epochs == (list(range(7)) if generation is Generation.V2 else [0] * 7)


@both_generations
def test_the_next_transaction_needs_no_retry(
    client: WireClient, name: str, generation: Generation
) -> None:
    """With few partitions, the markers are written before the response is sent."""
    make_topic(client, name, 3)
    producer = TxnProducer.started(client, name, generation)
    for number in range(5):
        for partition in range(3):
            if generation is Generation.V1:
                request = producer.add_request({name: [partition]})
                response = client.request(request, 3).results_by_topic_v3_and_below[0]
                assert response.results_by_partition[0].partition_error_code == 0
            assert producer.send(name, b"%d" % number, partition=partition).error_code == 0
        end_response = client.request(producer.end_request(commit=True), producer.versions.end)
        assert end_response.error_code == 0
        if generation is Generation.V2:
            producer.take_over(end_response)
        assert described(client, name).transaction_state == "CompleteCommit"
    for partition in range(3):
        assert committed(client, name, partition) == [b"0", b"1", b"2", b"3", b"4"]


def test_the_last_stable_offset_with_two_open_transactions(client: WireClient, name: str) -> None:
    """The last stable offset is the first offset of the earliest open transaction."""
    make_topic(client, name)
    first = TxnProducer.started(client, f"{name}-1", Generation.V1)
    second = TxnProducer.started(client, f"{name}-2", Generation.V2)
    assert first.write(name, b"1a") == 0
    assert second.write(name, b"2a") == 1
    assert first.write(name, b"1b") == 2
    assert second.write(name, b"2b") == 3
    second.abort()
    assert fetched_committed(client, name).last_stable_offset == 0
    assert committed(client, name) == []
    aborted_id = second.producer_id
    second.write(name, b"2c")
    first.commit()
    data = fetched_committed(client, name)
    assert data.last_stable_offset == 5, "the second producer's next transaction"
    assert [(a.producer_id, a.first_offset) for a in data.aborted_transactions] == [(aborted_id, 1)]
    assert committed(client, name) == [b"1a", b"1b"]
    second.commit()
    assert committed(client, name) == [b"1a", b"1b", b"2c"]


@both_generations
@pytest.mark.parametrize("commit", [True, False])
def test_a_read_committed_long_poll_ends_with_the_marker(
    broker: RunningBroker, client: WireClient, name: str, generation: Generation, commit: bool
) -> None:
    """E7: the records alone do not end it, because the consumer may not read them yet."""
    make_topic(client, name)
    request = fetch_request(
        {name: {0: 0}}, max_wait_ms=15_000, min_bytes=1, isolation=READ_COMMITTED
    )
    with broker.connect() as consumer:
        consumer.send(request, 11)
        wait_for_waiter(broker, name)
        producer = TxnProducer.started(client, name, generation)
        producer.write(name, b"x")
        assert broker.call(lambda inside: has_committed_waiters(inside, name)), "still waiting"
        started = time.monotonic()
        assert producer.end(commit=commit) is ErrorCode.NONE
        data: Any = receive_response(consumer, request, 11).responses[0].partitions[0]
        assert time.monotonic() - started < 5
    assert data.last_stable_offset == 2
    assert len(data.aborted_transactions) == (0 if commit else 1)
    assert data.records


@both_generations
def test_a_read_committed_long_poll_counts_the_bytes_of_the_transaction(
    broker: RunningBroker, client: WireClient, name: str, generation: Generation
) -> None:
    """C1: a record of 100,000 bytes becomes readable with a marker of less than 100."""
    make_topic(client, name)
    request = fetch_request(
        {name: {0: 0}}, max_wait_ms=15_000, min_bytes=50_000, isolation=READ_COMMITTED
    )
    producer = TxnProducer.started(client, name, generation)
    producer.write(name, b"x")
    with broker.connect() as consumer:
        consumer.send(request, 11)
        wait_for_waiter(broker, name)
        assert producer.end(commit=True) is ErrorCode.NONE
        assert broker.call(lambda inside: has_committed_waiters(inside, name)), "too few bytes"
        producer.write(name, b"x" * 100_000)
        assert broker.call(lambda inside: has_committed_waiters(inside, name)), "still open"
        started = time.monotonic()
        assert producer.end(commit=True) is ErrorCode.NONE
        data: Any = receive_response(consumer, request, 11).responses[0].partitions[0]
        assert time.monotonic() - started < 5
    assert data.last_stable_offset == 4
    assert data.records.nbytes > 100_000


def has_committed_waiters(inside: Broker, topic: str) -> bool:
    return bool(inside.replicas.find(topic, 0).delayed_committed_fetches)


def wait_for_waiter(broker: RunningBroker, topic: str) -> None:
    while not broker.call(lambda inside: has_committed_waiters(inside, topic)):
        time.sleep(0.001)


# --- records outside a transaction


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (3, ErrorCode.INVALID_TXN_STATE),
        (10, ErrorCode.INVALID_TXN_STATE),
        (11, ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
def test_a_batch_for_a_partition_that_was_not_added_is_rejected(
    client: WireClient, name: str, version: int, code: ErrorCode
) -> None:
    """KIP-890: the batch is rejected, so that no transaction hangs."""
    make_topic(client, name, 2)
    producer = TxnProducer.started(client, name, Generation.V1)
    rejected = producer.send(name, b"x", version=version)
    assert ErrorCode(rejected.error_code) is code
    assert (rejected.base_offset, rejected.log_start_offset) == (-1, -1)
    assert producer.add({name: [0]}) is ErrorCode.NONE
    assert producer.send(name, b"y", version=version).error_code == 0
    rejected = producer.send(name, b"x", partition=1, version=version)
    assert ErrorCode(rejected.error_code) is code
    producer.commit()
    assert committed(client, name) == [b"y"]
    assert latest(client, name, 0, 1) == 0


def test_late_records_are_rejected_in_version_1(client: WireClient, name: str) -> None:
    """Nothing is added to an ended transaction; the coordinator must know of the next one first."""
    make_topic(client, name)
    producer = TxnProducer.started(client, name, Generation.V1)
    producer.write(name, b"in time")
    producer.commit()
    late = producer.send(name, b"late")
    assert ErrorCode(late.error_code) is ErrorCode.TRANSACTION_ABORTABLE
    producer.write(name, b"next")
    producer.abort()
    assert committed(client, name) == [b"in time"]
    assert len(uncommitted(client, name)) == 2


def test_late_records_are_rejected_in_version_2(client: WireClient, name: str) -> None:
    """They have the epoch of the transaction that ended."""
    make_topic(client, name, 2)
    producer = TxnProducer.started(client, name)
    producer.write(name, b"in time")
    old = (producer.producer_id, producer.epoch)
    producer.commit()
    for partition in (0, 1):
        batch = txn_batch(*old, 1 - partition, b"late")
        response = client.request(produce_request(name, {(name, partition): batch}), 12)
        code = response.responses[0].partition_responses[0].error_code
        assert ErrorCode(code) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert committed(client, name) == [b"in time"]
    assert latest(client, name, 0, 1) == 0
    producer.write(name, b"next")
    producer.commit()
    assert committed(client, name) == [b"in time", b"next"]


@both_generations
def test_a_repeated_batch_is_not_appended_twice(
    client: WireClient, name: str, generation: Generation
) -> None:
    """P3: within the transaction, and after it has ended."""
    make_topic(client, name)
    producer = TxnProducer.started(client, name, generation)
    batch = producer.batch(name, b"x")
    request = produce_request(name, {(name, 0): batch})
    assert producer.write(name, b"x") == 0
    repeated = (
        client.request(request, producer.versions.produce).responses[0].partition_responses[0]
    )
    assert (repeated.error_code, repeated.base_offset) == (0, 0)
    producer.commit()
    late = client.request(request, producer.versions.produce).responses[0].partition_responses[0]
    if generation is Generation.V1:
        assert ErrorCode(late.error_code) is ErrorCode.TRANSACTION_ABORTABLE
    else:
        assert ErrorCode(late.error_code) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert uncommitted(client, name) == [b"x"]


@both_generations
def test_a_sequence_gap_is_rejected_in_a_transaction(
    client: WireClient, name: str, generation: Generation
) -> None:
    """P3: a gap is rejected, and the transaction can still be aborted."""
    make_topic(client, name)
    producer = TxnProducer.started(client, name, generation)
    producer.write(name, b"a")
    batch = txn_batch(producer.producer_id, producer.epoch, 5, b"gap")
    request = produce_request(name, {(name, 0): batch})
    response = (
        client.request(request, producer.versions.produce).responses[0].partition_responses[0]
    )
    assert ErrorCode(response.error_code) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    producer.abort()
    assert committed(client, name) == []


def test_the_first_sequence_must_be_zero_in_version_2(client: WireClient, name: str) -> None:
    """A larger sequence number means that an earlier batch was lost."""
    make_topic(client, name)
    producer = TxnProducer.started(client, name)
    batch = txn_batch(producer.producer_id, producer.epoch, 3, b"x")
    response = client.request(produce_request(name, {(name, 0): batch}), 12)
    code = response.responses[0].partition_responses[0].error_code
    assert ErrorCode(code) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    producer.abort()
    assert uncommitted(client, name) == []


@both_generations
def test_plain_records_during_a_transaction_are_rejected(
    client: WireClient, name: str, generation: Generation
) -> None:
    """A producer cannot write non-transactional records during its transaction."""
    make_topic(client, name)
    producer = TxnProducer.started(client, name, generation)
    producer.write(name, b"a")
    batch = bytearray(producer.batch(name, b"beside"))
    batch[ATTRIBUTES_AT] &= ~TRANSACTIONAL_FLAG
    write_crc(batch, 0, compute_crc(batch, 0, len(batch)))
    request = produce_request(name, {(name, 0): bytes(batch)})
    response = (
        client.request(request, producer.versions.produce).responses[0].partition_responses[0]
    )
    assert ErrorCode(response.error_code) is ErrorCode.INVALID_TXN_STATE
    producer.commit()
    assert committed(client, name) == [b"a"]


def test_batches_of_two_producers_in_one_request_are_rejected(
    client: WireClient, name: str
) -> None:
    """A transaction has one producer, so the whole request is rejected."""
    make_topic(client, name, 3)
    first = TxnProducer.started(client, name)
    first.write(name, b"mine", partition=2)
    batches = {
        (name, 0): txn_batch(first.producer_id, first.epoch, 0, b"x"),
        (name, 1): txn_batch(first.producer_id + 1, first.epoch, 0, b"x"),
    }
    response = client.request(produce_request(name, batches), 12)
    codes = [part.error_code for part in response.responses[0].partition_responses]
    assert codes == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    batches = {
        (name, 2): txn_batch(first.producer_id, first.epoch, 1, b"x"),
        (name, 1): txn_batch(first.producer_id + 1, first.epoch, 0, b"x"),
    }
    response = client.request(produce_request(name, batches), 12)
    codes = [part.error_code for part in response.responses[0].partition_responses]
    assert codes == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    first.commit()
    assert committed(client, name, 2) == [b"mine"]


@pytest.mark.parametrize("version", [9, 11, 12])
def test_a_transactional_batch_without_a_transactional_id_is_rejected(
    client: WireClient, name: str, version: int
) -> None:
    """The transaction could never be ended, so the whole request is rejected."""
    make_topic(client, name, 2)
    producer = TxnProducer.started(client, name)
    plain = txn_batch(producer.producer_id, producer.epoch, 0, b"x")
    response = client.request(produce_request(None, {(name, 0): plain, (name, 1): b""}), version)
    codes = [part.error_code for part in response.responses[0].partition_responses]
    assert codes == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2


def test_an_unknown_transactional_id_is_rejected(client: WireClient, name: str) -> None:
    """The coordinator has not allocated the producer id."""
    make_topic(client, name)
    TxnProducer.started(client, name)
    for version, transactional_id in ((11, "nobody"), (12, "nobody")):
        batch = txn_batch(999_999, 0, 0, b"x")
        response = client.request(produce_request(transactional_id, {(name, 0): batch}), version)
        code = response.responses[0].partition_responses[0].error_code
        assert ErrorCode(code) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@both_generations
def test_markers_are_flushed_like_records(
    broker: RunningBroker, client: WireClient, name: str, generation: Generation
) -> None:
    """S7: with `flush.messages=1`, a complete transaction is also complete on disk."""
    make_topic(client, name, configs={"flush.messages": "1"})
    producer = TxnProducer.started(client, name, generation)
    for number in range(3):
        producer.write(name, b"x")
        producer.commit()
        log = broker.call(lambda inside: inside.replicas.find(name, 0).log)
        assert log.recovery_point == log.log_end_offset == 2 * (number + 1)


# --- EndTxn


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("commit", [True, False])
def test_a_repeated_end_in_version_1(
    client: WireClient, name: str, version: int, commit: bool
) -> None:
    """The same outcome succeeds again; the opposite one and an end without a begin are rejected."""
    make_topic(client, name)
    producer = TxnProducer.started(client, name, Generation.V1)
    without_begin = client.request(producer.end_request(commit=commit), version)
    assert ErrorCode(without_begin.error_code) is ErrorCode.INVALID_TXN_STATE
    producer.write(name, b"x")
    for _ in range(2):
        assert client.request(producer.end_request(commit=commit), version).error_code in (
            0,
            ErrorCode.CONCURRENT_TRANSACTIONS,
        )
        wait_for_state(client, name, "CompleteCommit" if commit else "CompleteAbort")
    assert client.request(producer.end_request(commit=commit), version).error_code == 0
    opposite = client.request(producer.end_request(commit=not commit), version)
    assert ErrorCode(opposite.error_code) is ErrorCode.INVALID_TXN_STATE
    assert committed(client, name) == ([b"x"] if commit else [])


@pytest.mark.parametrize("commit", [True, False])
def test_a_repeated_end_in_version_2(client: WireClient, name: str, commit: bool) -> None:
    """The previous epoch shows that the response was lost; the response is repeated."""
    make_topic(client, name)
    producer = TxnProducer.started(client, name)
    producer.write(name, b"x")
    request = producer.end_request(commit=commit)
    first = client.request(request, 5)
    wait_for_state(client, name, "CompleteCommit" if commit else "CompleteAbort")
    repeated = client.request(request, 5)
    assert (first.error_code, repeated.error_code) == (0, 0)
    assert first.producer_epoch == repeated.producer_epoch == producer.epoch + 1
    assert first.producer_id == repeated.producer_id == producer.producer_id
    request.committed = not commit
    opposite = client.request(request, 5)
    assert ErrorCode(opposite.error_code) is ErrorCode.INVALID_TXN_STATE
    assert (opposite.producer_id, opposite.producer_epoch) == (-1, -1)
    producer.take_over(repeated)
    producer.write(name, b"y")
    producer.commit()
    assert committed(client, name) == ([b"x", b"y"] if commit else [b"y"])


def test_an_empty_transaction_can_only_be_aborted(client: WireClient, name: str) -> None:
    """Version 2: it can be aborted, because a producer may not know whether it has begun."""
    make_topic(client, name)
    producer = TxnProducer.started(client, name)
    assert producer.end(commit=True) is ErrorCode.INVALID_TXN_STATE
    for epoch in (1, 2):
        producer.abort()
        assert producer.epoch == epoch
    producer.write(name, b"x")
    producer.commit()
    assert producer.end(commit=True) is ErrorCode.INVALID_TXN_STATE
    producer.abort()
    assert producer.epoch == 4
    assert committed(client, name) == [b"x"]


def test_a_partition_that_was_added_but_not_written_gets_a_marker(
    client: WireClient, name: str
) -> None:
    """It gets a marker, which has no effect."""
    make_topic(client, name, 2)
    producer = TxnProducer.started(client, name, Generation.V1)
    assert producer.add({name: [0, 1]}) is ErrorCode.NONE
    producer.write(name, b"x")
    producer.commit()
    assert committed(client, name) == [b"x"]
    data = fetched_committed(client, name, 1)
    assert (data.high_watermark, data.last_stable_offset) == (1, 1)
    assert committed(client, name, 1) == []


def test_adding_offsets_begins_a_transaction(client: WireClient, name: str) -> None:
    """AddOffsetsToTxn begins a transaction, in every version."""
    producer = TxnProducer.started(client, name, Generation.V1)
    for version in range(5):
        assert producer.add_offsets("group", version) is ErrorCode.NONE
        state = described(client, name)
        assert state.transaction_state == "Ongoing"
        (topic,) = state.topics
        assert topic.topic == "__consumer_offsets"
        producer.commit()
