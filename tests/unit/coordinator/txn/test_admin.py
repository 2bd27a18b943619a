"""DescribeTransactions, ListTransactions, and error responses in the form of each request (P4)."""

import pytest

from penstock.coordinator.txn.responses import error_response
from penstock.coordinator.txn.state import TransactionState
from penstock.core.errors import ErrorCode
from penstock.protocol.codec import encode
from penstock.protocol.fields import Message
from penstock.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from penstock.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsTopicData,
    DescribeTransactionsTransactionState,
)
from penstock.protocol.messages.end_txn import EndTxnRequest
from penstock.protocol.messages.heartbeat import HeartbeatRequest
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from tests.support.coordinator.shard_host import START_MS
from tests.support.coordinator.transactions import (
    T0,
    T1,
    T2,
    TIMEOUT_MS,
    Producer,
    TxnHost,
    add_request,
    ongoing,
    only_error,
)

S = TransactionState


@pytest.fixture
def host() -> TxnHost:
    return TxnHost()


def described(host: TxnHost, name: str) -> DescribeTransactionsTransactionState:
    request = DescribeTransactionsRequest([name])
    (state,) = host.request(request, DescribeTransactionsResponse).transaction_states
    return state


def test_a_transaction_is_described(host: TxnHost) -> None:
    """Partitions are in the order of their record."""
    producer = ongoing(host, T0, T1)
    assert described(host, "x") == DescribeTransactionsTransactionState(
        transactional_id="x",
        transaction_state="Ongoing",
        transaction_timeout_ms=TIMEOUT_MS,
        transaction_start_time_ms=START_MS,
        producer_id=producer.producer_id,
        producer_epoch=0,
        topics=[DescribeTransactionsTopicData("t", [1, 0])],
    )
    producer.end(commit=True)
    host.write_markers(T1)
    state = described(host, "x")
    assert state.transaction_state == "PrepareCommit"
    assert state.topics == [DescribeTransactionsTopicData("t", [0])]
    host.finish()
    assert described(host, "x").topics == []


def test_describing_an_unknown_id_is_an_error(host: TxnHost) -> None:
    request = DescribeTransactionsRequest(["nobody", ""])
    response = host.request(request, DescribeTransactionsResponse)
    assert response.transaction_states == [
        DescribeTransactionsTransactionState(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "nobody"),
        DescribeTransactionsTransactionState(ErrorCode.INVALID_REQUEST, ""),
    ]


@pytest.fixture
def three(host: TxnHost) -> TxnHost:
    """`empty`, `long` since 5 s, `ending` since 1 s."""
    for name in ("empty", "long", "ending"):
        Producer(host, name).init()
    producer = Producer(host, "long")
    producer.producer_id, producer.epoch = host.metadata("long").producer_id, 0
    producer.add(T0)
    host.advance(4_000)
    producer = Producer(host, "ending")
    producer.producer_id, producer.epoch = host.metadata("ending").producer_id, 0
    producer.add(T2)
    producer.end(commit=False)
    host.advance(1_000)
    return host


@pytest.mark.parametrize(
    ("request_", "names"),
    [
        (ListTransactionsRequest(), ["empty", "long", "ending"]),
        (ListTransactionsRequest(["Ongoing", "Empty"]), ["empty", "long"]),
        (ListTransactionsRequest(["PrepareAbort"]), ["ending"]),
        (ListTransactionsRequest(["Dead"]), []),
        (ListTransactionsRequest(producer_id_filters=[1000, 1002, 5]), ["empty", "ending"]),
        (ListTransactionsRequest(["Ongoing"], [1000]), []),
        # A transaction without a start time counts as infinitely long, as in Kafka.
        (ListTransactionsRequest(duration_filter=1_000), ["empty", "long"]),
        (ListTransactionsRequest(duration_filter=999), ["empty", "long", "ending"]),
        (ListTransactionsRequest(["Ongoing"], duration_filter=5_000), []),
        (ListTransactionsRequest(duration_filter=-2), ["empty", "long", "ending"]),
        (ListTransactionsRequest(transactional_id_pattern="e.*"), ["empty", "long", "ending"]),
    ],
)
def test_transactions_are_listed_by_filter(
    three: TxnHost, request_: ListTransactionsRequest, names: list[str]
) -> None:
    response = three.request(request_, ListTransactionsResponse)
    assert [state.transactional_id for state in response.transaction_states] == names
    assert response.unknown_state_filters == []


def test_a_listing_has_the_producer_and_the_state(three: TxnHost) -> None:
    response = three.request(ListTransactionsRequest(), ListTransactionsResponse)
    listed = [(state.producer_id, state.transaction_state) for state in response.transaction_states]
    assert listed == [(1000, "Empty"), (1001, "Ongoing"), (1002, "PrepareAbort")]


def test_unknown_state_filters_are_returned(three: TxnHost) -> None:
    request = ListTransactionsRequest(["Nonsense", "ongoing", "Nonsense"])
    response = three.request(request, ListTransactionsResponse)
    assert response.unknown_state_filters == ["Nonsense", "ongoing"]
    assert response.transaction_states == []


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (InitProducerIdRequest("x", 1), 5),
        (AddOffsetsToTxnRequest("x", 1, 0, "g"), 4),
        (EndTxnRequest("x", 1, 0, True), 5),
        (EndTxnRequest("x", 1, 0, True), 0),
        (DescribeTransactionsRequest(["x", "y"]), 0),
        (ListTransactionsRequest(), 2),
        (add_request("x", 1, 0, [T0, T1]), 5),
    ],
)
def test_error_responses_encode_in_each_version(request_: Message, version: int) -> None:
    """Each has the error code in the field that its client reads."""
    response = error_response(request_, version, ErrorCode.NOT_COORDINATOR)
    assert encode(response, version)
    if isinstance(response, AddPartitionsToTxnResponse):
        assert only_error(response) == ErrorCode.NOT_COORDINATOR
    elif isinstance(response, DescribeTransactionsResponse):
        codes = [state.error_code for state in response.transaction_states]
        assert codes == [ErrorCode.NOT_COORDINATOR] * 2
    else:
        assert f"error_code={ErrorCode.NOT_COORDINATOR!r}" in repr(response)


def test_an_error_response_to_version_3_names_each_partition() -> None:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_topics=[AddPartitionsToTxnTopic("t", [0, 2])],
    )
    response = error_response(request, 3, ErrorCode.NOT_COORDINATOR)
    assert isinstance(response, AddPartitionsToTxnResponse)
    assert response.results_by_topic_v3_and_below == [
        AddPartitionsToTxnTopicResult(
            "t",
            [
                AddPartitionsToTxnPartitionResult(0, ErrorCode.NOT_COORDINATOR),
                AddPartitionsToTxnPartitionResult(2, ErrorCode.NOT_COORDINATOR),
            ],
        )
    ]
    assert encode(response, 3)


def test_requests_for_other_coordinators_are_rejected(host: TxnHost) -> None:
    with pytest.raises(TypeError, match="HeartbeatRequest is not for a transaction coordinator"):
        host.send(HeartbeatRequest())
    with pytest.raises(TypeError, match="HeartbeatRequest is not for a transaction coordinator"):
        error_response(HeartbeatRequest(), 0, ErrorCode.NOT_COORDINATOR)
