"""Transactions from their begin to their end, in both generations of the protocol (P4, C4)."""

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
from tests.support.protocol.requests import fetch_request, make_topic, produced, received

ATTRIBUTES_AT = 22
both = pytest.mark.parametrize("generation", Generation, ids=lambda each: each.name)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A topic and transactional id that no other test uses."""
    text: str = request.node.name
    return "".join(item if item.isalnum() else "-" for item in text)


@both
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_ends_everywhere(
    client: WireClient, name: str, generation: Generation, commit: bool
) -> None:
    """Over several partitions and topics; before its end it is seen by nobody who waits for it."""
    topics = [f"{name}-a", f"{name}-b"]
    places = [(topic, partition) for topic in topics for partition in range(2)]
    for topic in topics:
        make_topic(client, topic, 2)
        produced(client, topic, b"before")
        produced(client, topic, b"before", partition=1)
    producer = TxnProducer.started(client, name, generation)
    for topic, partition in places:
        assert producer.write(topic, b"one", partition=partition) == 1
        assert producer.write(topic, b"two", b"three", partition=partition) == 2
        produced(client, topic, b"behind", partition=partition)
    for topic, partition in places:
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
    wanted = [b"before", b"one", b"two", b"three", b"behind"] if commit else [b"before", b"behind"]
    for topic, partition in places:
        data = fetched_committed(client, topic, partition)
        assert (data.last_stable_offset, data.high_watermark) == (6, 6)
        data = fetched_committed(client, topic, partition, 1)
        aborted = [
            (transaction.producer_id, transaction.first_offset)
            for transaction in data.aborted_transactions
        ]
        assert aborted == ([] if commit else [(producer.producer_id, 1)])
        assert committed(client, topic, partition) == wanted
        assert len(uncommitted(client, topic, partition)) == 5
        assert latest(client, topic, READ_COMMITTED, partition) == 6
    assert described(client, name).topics == []


@both
def test_one_transaction_after_the_other(
    client: WireClient, name: str, generation: Generation
) -> None:
    """Version 2 has another epoch after each; version 1 keeps its epoch."""
    make_topic(client, name)
    producer = TxnProducer.started(client, name, generation)
    epochs = [producer.epoch]
    for number in range(6):
        producer.write(name, b"%d" % number)
        # The next one begins while the markers of this one are on their way.
        assert producer.end(commit=number % 2 == 0) is ErrorCode.NONE
        epochs.append(producer.epoch)
    wait_for_state(client, name, "CompleteAbort")
    assert committed(client, name) == [b"0", b"2", b"4"]
    assert len(uncommitted(client, name)) == 6
    assert epochs == (list(range(7)) if generation is Generation.V2 else [0] * 7)


@both
def test_the_next_transaction_does_not_wait(
    client: WireClient, name: str, generation: Generation
) -> None:
    """Few markers are there before the end is answered: nobody has to come back for the next."""
    make_topic(client, name, 3)
    producer = TxnProducer.started(client, name, generation)
    for number in range(5):
        for partition in range(3):
            if generation is Generation.V1:
                request = producer.add_request({name: [partition]})
                response = client.request(request, 3).results_by_topic_v3_and_below[0]
                assert response.results_by_partition[0].partition_error_code == 0
            assert producer.send(name, b"%d" % number, partition=partition).error_code == 0
        ended = client.request(producer.end_request(commit=True), producer.versions.end)
        assert ended.error_code == 0
        if generation is Generation.V2:
            producer.take_over(ended)
        assert described(client, name).transaction_state == "CompleteCommit"
    for partition in range(3):
        assert committed(client, name, partition) == [b"0", b"1", b"2", b"3", b"4"]


def test_two_producers_at_a_time(client: WireClient, name: str) -> None:
    """The last stable offset is that of the first one that is open."""
    make_topic(client, name)
    one = TxnProducer.started(client, f"{name}-1", Generation.V1)
    two = TxnProducer.started(client, f"{name}-2", Generation.V2)
    assert one.write(name, b"1a") == 0
    assert two.write(name, b"2a") == 1
    assert one.write(name, b"1b") == 2
    assert two.write(name, b"2b") == 3
    two.abort()
    assert fetched_committed(client, name).last_stable_offset == 0
    assert committed(client, name) == []
    second = two.producer_id
    two.write(name, b"2c")
    one.commit()
    data = fetched_committed(client, name)
    assert data.last_stable_offset == 5, "the second producer's next transaction"
    assert [(a.producer_id, a.first_offset) for a in data.aborted_transactions] == [(second, 1)]
    assert committed(client, name) == [b"1a", b"1b"]
    two.commit()
    assert committed(client, name) == [b"1a", b"1b", b"2c"]


@both
@pytest.mark.parametrize("commit", [True, False])
def test_a_long_poll_for_what_is_committed_ends_with_the_marker(
    broker: RunningBroker, client: WireClient, name: str, generation: Generation, commit: bool
) -> None:
    """E7: not with the records, which it may not see yet."""
    make_topic(client, name)
    request = fetch_request(
        {name: {0: 0}}, max_wait_ms=15_000, min_bytes=1, isolation=READ_COMMITTED
    )
    with broker.connect() as consumer:
        consumer.send(request, 11)
        wait_for_waiter(broker, name)
        producer = TxnProducer.started(client, name, generation)
        producer.write(name, b"x")
        assert broker.call(lambda inside: committed_waiters(inside, name)), "still waiting"
        begun = time.monotonic()
        assert producer.end(commit=commit) is ErrorCode.NONE
        data: Any = received(consumer, request, 11).responses[0].partitions[0]
        assert time.monotonic() - begun < 5
    assert data.last_stable_offset == 2
    assert len(data.aborted_transactions) == (0 if commit else 1)
    assert data.records


def committed_waiters(inside: Broker, topic: str) -> bool:
    return bool(inside.replicas.find(topic, 0).delayed_committed_fetches)


def wait_for_waiter(broker: RunningBroker, topic: str) -> None:
    while not broker.call(lambda inside: committed_waiters(inside, topic)):
        time.sleep(0.001)


# --- what is not part of a transaction


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (3, ErrorCode.INVALID_TXN_STATE),
        (10, ErrorCode.INVALID_TXN_STATE),
        (11, ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
def test_a_partition_that_was_not_added(
    client: WireClient, name: str, version: int, code: ErrorCode
) -> None:
    """KIP-890: it is not written, so that no transaction hangs."""
    make_topic(client, name, 2)
    producer = TxnProducer.started(client, name, Generation.V1)
    refused = producer.send(name, b"x", version=version)
    assert ErrorCode(refused.error_code) is code
    assert (refused.base_offset, refused.log_start_offset) == (-1, -1)
    assert producer.add({name: [0]}) is ErrorCode.NONE
    assert producer.send(name, b"y", version=version).error_code == 0
    refused = producer.send(name, b"x", partition=1, version=version)
    assert ErrorCode(refused.error_code) is code
    producer.commit()
    assert committed(client, name) == [b"y"]
    assert latest(client, name, 0, 1) == 0


def test_late_records_of_version_1(client: WireClient, name: str) -> None:
    """After its end nothing is added to a transaction; the coordinator must know of the next."""
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


def test_late_records_of_version_2(client: WireClient, name: str) -> None:
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


@both
def test_a_batch_sent_again(client: WireClient, name: str, generation: Generation) -> None:
    """P3: within the transaction, and after it has ended."""
    make_topic(client, name)
    producer = TxnProducer.started(client, name, generation)
    batch = producer.batch(name, b"x")
    request = produce_request(name, {(name, 0): batch})
    assert producer.write(name, b"x") == 0
    again = client.request(request, producer.versions.produce).responses[0].partition_responses[0]
    assert (again.error_code, again.base_offset) == (0, 0)
    producer.commit()
    late = client.request(request, producer.versions.produce).responses[0].partition_responses[0]
    if generation is Generation.V1:
        assert ErrorCode(late.error_code) is ErrorCode.TRANSACTION_ABORTABLE
    else:
        assert ErrorCode(late.error_code) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert uncommitted(client, name) == [b"x"]


@both
def test_sequences_go_on_in_a_transaction(
    client: WireClient, name: str, generation: Generation
) -> None:
    """P3: a gap is refused, and the transaction can still be aborted."""
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


def test_the_first_sequence_of_version_2_is_zero(client: WireClient, name: str) -> None:
    """Otherwise a batch before it has been lost."""
    make_topic(client, name)
    producer = TxnProducer.started(client, name)
    batch = txn_batch(producer.producer_id, producer.epoch, 3, b"x")
    response = client.request(produce_request(name, {(name, 0): batch}), 12)
    code = response.responses[0].partition_responses[0].error_code
    assert ErrorCode(code) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    producer.abort()
    assert uncommitted(client, name) == []


@both
def test_plain_records_of_a_producer_in_a_transaction(
    client: WireClient, name: str, generation: Generation
) -> None:
    """A producer cannot write beside its transaction."""
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


def test_batches_of_two_producers_in_one_request(client: WireClient, name: str) -> None:
    """A transaction has one producer: all of the request is refused."""
    make_topic(client, name, 3)
    one = TxnProducer.started(client, name)
    one.write(name, b"mine", partition=2)
    batches = {
        (name, 0): txn_batch(one.producer_id, one.epoch, 0, b"x"),
        (name, 1): txn_batch(one.producer_id + 1, one.epoch, 0, b"x"),
    }
    answer = client.request(produce_request(name, batches), 12)
    codes = [response.error_code for response in answer.responses[0].partition_responses]
    assert codes == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    batches = {
        (name, 2): txn_batch(one.producer_id, one.epoch, 1, b"x"),
        (name, 1): txn_batch(one.producer_id + 1, one.epoch, 0, b"x"),
    }
    answer = client.request(produce_request(name, batches), 12)
    codes = [response.error_code for response in answer.responses[0].partition_responses]
    assert codes == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    one.commit()
    assert committed(client, name, 2) == [b"mine"]


@pytest.mark.parametrize("version", [9, 11, 12])
def test_a_transactional_batch_without_a_transactional_id(
    client: WireClient, name: str, version: int
) -> None:
    """Nobody could end its transaction; the whole request is refused."""
    make_topic(client, name, 2)
    producer = TxnProducer.started(client, name)
    plain = txn_batch(producer.producer_id, producer.epoch, 0, b"x")
    answer = client.request(produce_request(None, {(name, 0): plain, (name, 1): b""}), version)
    codes = [response.error_code for response in answer.responses[0].partition_responses]
    assert codes == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2


def test_an_unknown_transactional_id(client: WireClient, name: str) -> None:
    """A producer id that the coordinator has not given out."""
    make_topic(client, name)
    TxnProducer.started(client, name)
    for version, nobody in ((11, "nobody"), (12, "nobody")):
        batch = txn_batch(999_999, 0, 0, b"x")
        response = client.request(produce_request(nobody, {(name, 0): batch}), version)
        code = response.responses[0].partition_responses[0].error_code
        assert ErrorCode(code) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@both
def test_markers_are_flushed_like_records(
    broker: RunningBroker, client: WireClient, name: str, generation: Generation
) -> None:
    """S7: with `flush.messages=1` a transaction that is complete is complete on the disk too."""
    make_topic(client, name, configs={"flush.messages": "1"})
    producer = TxnProducer.started(client, name, generation)
    for number in range(3):
        producer.write(name, b"x")
        producer.commit()
        log = broker.call(lambda inside: inside.replicas.find(name, 0).log)
        assert log.recovery_point == log.log_end_offset == 2 * (number + 1)


# --- ends


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("commit", [True, False])
def test_an_end_asked_for_again_in_version_1(
    client: WireClient, name: str, version: int, commit: bool
) -> None:
    """It is answered again; the other way is refused, and so is an end without a begin."""
    make_topic(client, name)
    producer = TxnProducer.started(client, name, Generation.V1)
    wrong = client.request(producer.end_request(commit=commit), version)
    assert ErrorCode(wrong.error_code) is ErrorCode.INVALID_TXN_STATE
    producer.write(name, b"x")
    for _ in range(2):
        assert client.request(producer.end_request(commit=commit), version).error_code in (
            0,
            ErrorCode.CONCURRENT_TRANSACTIONS,
        )
        wait_for_state(client, name, "CompleteCommit" if commit else "CompleteAbort")
    assert client.request(producer.end_request(commit=commit), version).error_code == 0
    other = client.request(producer.end_request(commit=not commit), version)
    assert ErrorCode(other.error_code) is ErrorCode.INVALID_TXN_STATE
    assert committed(client, name) == ([b"x"] if commit else [])


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_asked_for_again_in_version_2(client: WireClient, name: str, commit: bool) -> None:
    """The epoch before tells that the answer was lost: it comes again, with the same epoch."""
    make_topic(client, name)
    producer = TxnProducer.started(client, name)
    producer.write(name, b"x")
    request = producer.end_request(commit=commit)
    first = client.request(request, 5)
    wait_for_state(client, name, "CompleteCommit" if commit else "CompleteAbort")
    again = client.request(request, 5)
    assert (first.error_code, again.error_code) == (0, 0)
    assert first.producer_epoch == again.producer_epoch == producer.epoch + 1
    assert first.producer_id == again.producer_id == producer.producer_id
    request.committed = not commit
    other = client.request(request, 5)
    assert ErrorCode(other.error_code) is ErrorCode.INVALID_TXN_STATE
    assert (other.producer_id, other.producer_epoch) == (-1, -1)
    producer.take_over(again)
    producer.write(name, b"y")
    producer.commit()
    assert committed(client, name) == ([b"x", b"y"] if commit else [b"y"])


def test_a_transaction_with_nothing_in_it(client: WireClient, name: str) -> None:
    """Version 2: it can be aborted, since a producer does not know how far it came."""
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


def test_a_partition_added_but_not_written(client: WireClient, name: str) -> None:
    """It gets a marker, which ends nothing."""
    make_topic(client, name, 2)
    producer = TxnProducer.started(client, name, Generation.V1)
    assert producer.add({name: [0, 1]}) is ErrorCode.NONE
    producer.write(name, b"x")
    producer.commit()
    assert committed(client, name) == [b"x"]
    data = fetched_committed(client, name, 1)
    assert (data.high_watermark, data.last_stable_offset) == (1, 1)
    assert committed(client, name, 1) == []


def test_groups_offsets_alone(client: WireClient, name: str) -> None:
    """AddOffsetsToTxn begins a transaction too, in every version."""
    producer = TxnProducer.started(client, name, Generation.V1)
    for version in range(5):
        assert producer.add_offsets("group", version) is ErrorCode.NONE
        state = described(client, name)
        assert state.transaction_state == "Ongoing"
        (topic,) = state.topics
        assert topic.topic == "__consumer_offsets"
        producer.commit()
