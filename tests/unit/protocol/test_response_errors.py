"""Error codes are found wherever a response has them."""

from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from penstock.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartitionData,
    FetchResponse,
)
from penstock.protocol.messages.heartbeat import HeartbeatResponse
from penstock.protocol.response_errors import error_finder


def test_codes_of_the_response_and_of_its_partitions() -> None:
    topic = FetchableTopicResponse(
        partitions=[FetchPartitionData(0, 0), FetchPartitionData(1, 6), FetchPartitionData(2, 6)]
    )
    response = FetchResponse(0, 70, 0, [topic, FetchableTopicResponse()])
    assert error_finder(FetchResponse)(response) == [70, 6, 6]
    assert error_finder(FetchResponse)(FetchResponse()) == []


def test_codes_at_the_top_only() -> None:
    assert error_finder(HeartbeatResponse)(HeartbeatResponse(error_code=27)) == [27]


def test_codes_with_another_name() -> None:
    partition = AddPartitionsToTxnPartitionResult(0, 48)
    topic = AddPartitionsToTxnTopicResult("t", [partition])
    response = AddPartitionsToTxnResponse(
        results_by_transaction=[AddPartitionsToTxnResult("id", [topic])]
    )
    assert error_finder(AddPartitionsToTxnResponse)(response) == [48]
