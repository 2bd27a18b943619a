"""Requests of administrators and brokers about transactions (P4)."""

from collections.abc import Mapping
from typing import Any

import pytest

from penstock.core.errors import ErrorCode
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from penstock.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersTopicRequest,
)
from penstock.protocol.messages.describe_transactions import DescribeTransactionsRequest
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.protocol.messages.list_transactions import ListTransactionsRequest
from penstock.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.support.broker.in_process import RunningBroker, WireClient, running_broker
from tests.support.coordinator.transaction_client import (
    Generation,
    TxnProducer,
    committed,
    described,
    fetched_committed,
    latest,
    wait_for_state,
)
from tests.support.protocol.admin import BROKER, alter
from tests.support.protocol.requests import make_topic

NONE = ErrorCode.NONE


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {"transaction.state.log.num.partitions": "4"}


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A topic and transactional id that no other test uses."""
    text: str = request.node.name
    return "".join(character if character.isalnum() else "-" for character in text)


# --- FindCoordinator


@pytest.mark.parametrize("version", range(1, 7))
def test_transaction_coordinators_are_found(
    broker: RunningBroker, client: WireClient, version: int
) -> None:
    """C4: one key up to version 3, any number of keys later."""
    if version < 4:
        response = client.request(FindCoordinatorRequest("x", 1), version)
        result = [("x", response)]
    else:
        response = client.request(FindCoordinatorRequest("", 1, ["x", "y", "x"]), version)
        result = [(coordinator.key, coordinator) for coordinator in response.coordinators]
        assert [key for key, _ in result] == ["x", "y", "x"]
    for _, item in result:
        assert (item.error_code, item.host, item.port) == (NONE, *broker.address)


def test_the_transaction_topic_has_its_settings(tmp_path_factory: pytest.TempPathFactory) -> None:
    """`transaction.state.log.*` applies when the first coordinator is looked up."""
    settings = {
        "transaction.state.log.num.partitions": "7",
        "transaction.state.log.segment.bytes": "5000000",
    }
    directory = tmp_path_factory.mktemp("settings")
    with running_broker(directory, settings) as broker, broker.connect() as client:
        listed = client.request(ListTransactionsRequest(["Strange"]), 2)
        assert (listed.error_code, listed.unknown_state_filters) == (NONE, ["Strange"])
        assert described(client, "x").error_code == ErrorCode.NOT_COORDINATOR
        TxnProducer.started(client, "x")
        topic = broker.call(lambda inside: inside.image.topics["__transaction_state"])
        assert len(topic.assignments) == 7
        config = broker.call(lambda inside: inside.image.config("topics", "__transaction_state"))
        assert config == {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": "2",
            "segment.bytes": "5000000",
            "unclean.leader.election.enable": "false",
        }


def test_more_transactional_ids_than_a_block_of_producer_ids(client: WireClient) -> None:
    """P3: producer ids are allocated in blocks of 1000; requests wait for the next block."""
    TxnProducer.started(client, "many")
    requests = [InitProducerIdRequest(f"many-{index}", 1000) for index in range(1100)]
    for request in requests:
        client.send(request, 5)
    responses: list[Any] = [client.receive(request, 5) for request in requests]
    assert {response.error_code for response in responses} == {NONE}
    assert len({response.producer_id for response in responses}) == 1100


# --- AddPartitionsToTxn


def results_of(topics: Any) -> dict[tuple[str, int], ErrorCode]:
    return {
        (topic.name, partition.partition_index): ErrorCode(partition.partition_error_code)
        for topic in topics
        for partition in topic.results_by_partition
    }


@pytest.mark.parametrize("version", range(4))
def test_adding_partitions_is_atomic(client: WireClient, name: str, version: int) -> None:
    """If one partition is invalid, the others are not attempted."""
    make_topic(client, name, 2)
    producer = TxnProducer.started(client, name, Generation.V1)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name, [0, 1, 9]),
            AddPartitionsToTxnTopic("nowhere", [0]),
            AddPartitionsToTxnTopic("__transaction_state", [0]),
        ],
    )
    result = results_of(client.request(request, version).results_by_topic_v3_and_below)
    assert result == {
        (name, 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
        (name, 1): ErrorCode.OPERATION_NOT_ATTEMPTED,
        (name, 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("__transaction_state", 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
    assert described(client, name).transaction_state == "Empty"
    request.v3_and_below_topics = [AddPartitionsToTxnTopic(name, [0, 1])]
    for _ in range(2):
        result = results_of(client.request(request, version).results_by_topic_v3_and_below)
        assert result == {(name, 0): NONE, (name, 1): NONE}
    assert described(client, name).transaction_state == "Ongoing"
    producer.commit()


@pytest.mark.parametrize("version", [4, 5])
def test_several_transactions_in_one_request(client: WireClient, name: str, version: int) -> None:
    """Brokers send several transactions, and may only verify them."""
    make_topic(client, name, 2)
    producers = [TxnProducer.started(client, f"{name}-{index}") for index in range(3)]
    producers[0].write(name, b"x")

    def transaction_of(number: int, partitions: list[int], *, verify: bool, epoch: int = 0) -> Any:
        producer = producers[number]
        return AddPartitionsToTxnTransaction(
            producer.transactional_id,
            producer.producer_id,
            producer.epoch + epoch,
            verify,
            [AddPartitionsToTxnTopic(name, partitions)],
        )

    request = AddPartitionsToTxnRequest(
        [
            transaction_of(0, [0, 1], verify=True),
            transaction_of(1, [0], verify=False),
            transaction_of(2, [0], verify=False, epoch=5),
        ]
    )
    response = client.request(request, version)
    assert response.error_code == NONE
    result = {
        transaction.transactional_id: results_of(transaction.topic_results)
        for transaction in response.results_by_transaction
    }
    assert result == {
        f"{name}-0": {(name, 0): NONE, (name, 1): ErrorCode.TRANSACTION_ABORTABLE},
        f"{name}-1": {(name, 0): NONE},
        f"{name}-2": {(name, 0): ErrorCode.PRODUCER_FENCED},
    }
    states = [
        described(client, producer.transactional_id).transaction_state for producer in producers
    ]
    assert states == ["Ongoing", "Ongoing", "Empty"]
    producers[0].commit()
    producers[1].abort()
    assert committed(client, name) == [b"x"]


def test_a_request_without_transactions(client: WireClient) -> None:
    response = client.request(AddPartitionsToTxnRequest([]), 5)
    assert (response.error_code, response.results_by_transaction) == (NONE, [])


# --- WriteTxnMarkers


def write_markers(client: WireClient, version: int, *markers: WritableTxnMarker) -> Any:
    response = client.request(WriteTxnMarkersRequest(list(markers)), version)
    return {
        (result.producer_id, topic.name, partition.partition_index): ErrorCode(partition.error_code)
        for result in response.markers
        for topic in result.topics
        for partition in topic.partitions
    }


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_administrator_writes_markers(client: WireClient, name: str, version: int) -> None:
    """`kafka-transactions.sh abort` ends a hanging transaction in one partition."""
    make_topic(client, name, 2)
    producer = TxnProducer.started(client, name, Generation.V1)
    producer.write(name, b"x")
    producer.write(name, b"y", partition=1)
    producer_id, epoch = producer.producer_id, producer.epoch
    topics = [WritableTxnMarkerTopic(name, [0, 7]), WritableTxnMarkerTopic("nowhere", [0])]
    markers = write_markers(
        client, version, WritableTxnMarker(producer_id, epoch, False, topics, 3)
    )
    assert markers == {
        (producer_id, name, 0): NONE,
        (producer_id, name, 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (producer_id, "nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    data = fetched_committed(client, name)
    assert data.last_stable_offset == data.high_watermark == 2
    assert [transaction.first_offset for transaction in data.aborted_transactions] == [0]
    assert fetched_committed(client, name, 1).last_stable_offset == 0
    marker_topics = [WritableTxnMarkerTopic(name, [0])]
    old = write_markers(
        client, version, WritableTxnMarker(producer_id, epoch, False, marker_topics, 2)
    )
    assert old == {(producer_id, name, 0): ErrorCode.TRANSACTION_COORDINATOR_FENCED}
    later = write_markers(
        client, version, WritableTxnMarker(producer_id, epoch + 1, False, marker_topics, 3)
    )
    assert later == {(producer_id, name, 0): NONE}
    fenced = write_markers(
        client, version, WritableTxnMarker(producer_id, epoch, False, marker_topics, 3)
    )
    assert fenced == {(producer_id, name, 0): ErrorCode.INVALID_PRODUCER_EPOCH}
    assert write_markers(client, version) == {}


def test_markers_of_version_2_must_have_a_later_epoch(client: WireClient, name: str) -> None:
    """KIP-1228: a marker with the epoch of an open transaction is late, and rejected."""
    make_topic(client, name)
    producer = TxnProducer.started(client, name)
    producer.write(name, b"x")
    producer_id, epoch = producer.producer_id, producer.epoch
    marker_topics = [WritableTxnMarkerTopic(name, [0])]
    late = write_markers(
        client, 2, WritableTxnMarker(producer_id, epoch, True, marker_topics, 0, 2)
    )
    assert late == {(producer_id, name, 0): ErrorCode.INVALID_PRODUCER_EPOCH}
    assert fetched_committed(client, name).last_stable_offset == 0
    first = write_markers(
        client, 2, WritableTxnMarker(producer_id, epoch + 1, True, marker_topics, 0, 2)
    )
    repeated = write_markers(
        client, 2, WritableTxnMarker(producer_id, epoch + 1, True, marker_topics, 0, 2)
    )
    assert first == repeated == {(producer_id, name, 0): NONE}
    assert committed(client, name) == [b"x"]
    producer.commit()
    assert committed(client, name) == [b"x"]


def test_a_transaction_that_an_administrator_ended(client: WireClient, name: str) -> None:
    """The marker of the coordinator has an old epoch, so the transaction stays prepared."""
    make_topic(client, name)
    producer = TxnProducer.started(client, name)
    producer.write(name, b"x")
    marker_topics = [WritableTxnMarkerTopic(name, [0])]
    marker = WritableTxnMarker(producer.producer_id, producer.epoch + 5, False, marker_topics, 0)
    assert set(write_markers(client, 1, marker).values()) == {NONE}
    assert producer.end(commit=True) is NONE
    assert described(client, name).transaction_state == "PrepareCommit"
    assert committed(client, name) == []


# --- DescribeTransactions, ListTransactions, DescribeProducers


def test_transactions_are_described(client: WireClient, name: str) -> None:
    """The states are in the order of the request."""
    make_topic(client, name, 3)
    producer = TxnProducer.started(client, name, timeout_ms=12_345)
    empty = described(client, name)
    assert (empty.transaction_state, empty.transaction_start_time_ms) == ("Empty", -1)
    producer.write(name, b"x", partition=2)
    producer.write(name, b"x", partition=0)
    response = client.request(DescribeTransactionsRequest([name, "nobody", ""]), 0)
    ongoing, unknown, invalid = response.transaction_states
    assert (ongoing.error_code, ongoing.transactional_id) == (NONE, name)
    assert (ongoing.transaction_state, ongoing.transaction_timeout_ms) == ("Ongoing", 12_345)
    assert (ongoing.producer_id, ongoing.producer_epoch) == (producer.producer_id, producer.epoch)
    assert ongoing.transaction_start_time_ms > 0
    assert [(topic.topic, sorted(topic.partitions)) for topic in ongoing.topics] == [(name, [0, 2])]
    assert (unknown.transactional_id, unknown.error_code) == (
        "nobody",
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    )
    assert invalid.error_code == ErrorCode.INVALID_REQUEST
    producer.abort()
    assert described(client, name).topics == []


def listed(client: WireClient, version: int, request: ListTransactionsRequest) -> set[str]:
    response = client.request(request, version)
    assert response.error_code == NONE
    return {state.transactional_id for state in response.transaction_states}


def test_transactions_are_listed(client: WireClient, name: str) -> None:
    """Filters by state, producer, age and pattern, in all partitions of `__transaction_state`."""
    make_topic(client, name)
    producers = [TxnProducer.started(client, f"{name}-{index}") for index in range(8)]
    for producer in producers[:4]:
        producer.write(name, b"x")
    all_ids = {producer.transactional_id for producer in producers}
    ongoing_ids = {producer.transactional_id for producer in producers[:4]}
    pattern = f"{name}-.*"
    for version in range(3):
        result = listed(client, version, ListTransactionsRequest())
        assert result >= all_ids
        assert listed(client, version, ListTransactionsRequest(["Ongoing"])) >= ongoing_ids
        ids = [producers[0].producer_id, producers[7].producer_id]
        by_id = listed(client, version, ListTransactionsRequest([], ids))
        assert by_id == {f"{name}-0", f"{name}-7"}
        by_both = listed(client, version, ListTransactionsRequest(["Ongoing", "Dead"], ids))
        assert by_both == {f"{name}-0"}
        unknown_states = client.request(ListTransactionsRequest(["Odd", "Empty", "odd"]), version)
        assert sorted(unknown_states.unknown_state_filters) == ["Odd", "odd"]
    assert listed(client, 2, ListTransactionsRequest(transactional_id_pattern=pattern)) == all_ids
    part = ListTransactionsRequest(transactional_id_pattern=name)
    assert listed(client, 2, part) == set(), "the whole id has to match"
    old = ListTransactionsRequest(["Ongoing"], duration_filter=3_600_000)
    assert listed(client, 1, old) == set()
    wrong = client.request(ListTransactionsRequest(transactional_id_pattern="(a"), 2)
    assert ErrorCode(wrong.error_code) is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert wrong.transaction_states == []
    for producer in producers[:4]:
        producer.commit()


def test_producers_in_a_transaction_are_described(client: WireClient, name: str) -> None:
    """P3: its start offset, and after its end the epoch of the coordinator."""
    make_topic(client, name)
    producer = TxnProducer.started(client, name)
    offset = producer.write(name, b"x", b"y")
    request = DescribeProducersRequest([DescribeProducersTopicRequest(name, [0])])

    def active() -> Any:
        (active_producer,) = client.request(request, 0).topics[0].partitions[0].active_producers
        return active_producer

    open_state = active()
    assert (open_state.current_txn_start_offset, open_state.last_sequence) == (offset, 1)
    assert (open_state.producer_epoch, open_state.coordinator_epoch) == (producer.epoch, -1)
    producer.commit()
    ended_state = active()
    assert (ended_state.current_txn_start_offset, ended_state.last_sequence) == (-1, -1)
    assert ended_state.producer_epoch == producer.epoch
    assert ended_state.coordinator_epoch >= 0


# --- settings


def test_verification_can_be_disabled(client: WireClient, name: str) -> None:
    """`transaction.partition.verification.enable`: version 1 may then write to any partition."""
    make_topic(client, name)
    setting = "transaction.partition.verification.enable"
    producer = TxnProducer.started(client, name, Generation.V1)
    alter(client, BROKER, "", {setting: "false"})
    try:
        assert producer.send(name, b"hangs", version=11).error_code == NONE
        make_topic(client, f"{name}-new")
        assert producer.send(f"{name}-new", b"hangs", version=9).error_code == NONE
    finally:
        alter(client, BROKER, "", {setting: None})
    response = producer.send(f"{name}-new", b"more", version=11)
    assert response.error_code == NONE, "the transaction continues in its partitions"
    make_topic(client, f"{name}-newer")
    response = producer.send(f"{name}-newer", b"x", version=11)
    assert ErrorCode(response.error_code) is ErrorCode.TRANSACTION_ABORTABLE
    assert latest(client, name, 1) == 0
    marker_topics = [WritableTxnMarkerTopic(name, [0]), WritableTxnMarkerTopic(f"{name}-new", [0])]
    marker = WritableTxnMarker(producer.producer_id, producer.epoch, False, marker_topics, 0)
    assert set(write_markers(client, 1, marker).values()) == {NONE}
    assert latest(client, name, 1) == 2


def test_the_broker_waits_for_the_previous_transaction(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """`add.partitions.to.txn.retry.backoff.max.ms`: how long a broker retries for its client.

    With 0, a version 2 producer gets CONCURRENT_TRANSACTIONS; with enough time, it does not.
    """
    for max_backoff_ms, waits in ((0, False), (10_000, True)):
        settings = {
            "add.partitions.to.txn.retry.backoff.max.ms": str(max_backoff_ms),
            "transaction.state.log.num.partitions": "1",
        }
        directory = tmp_path_factory.mktemp("patience")
        with running_broker(directory, settings) as broker, broker.connect() as client:
            make_topic(client, "t")
            producer = TxnProducer.started(client, "x")
            for number in range(5):
                if not waits:
                    producer.write("t", b"%d" % number)
                else:
                    assert producer.send("t", b"%d" % number).error_code == NONE
                assert producer.end(commit=True) is NONE
            wait_for_state(client, "x", "CompleteCommit")
            assert committed(client, "t") == [b"0", b"1", b"2", b"3", b"4"]
