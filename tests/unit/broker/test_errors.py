"""Error responses of the broker: codes, messages and their lengths."""

import pytest

from penstock.broker.errors import error_response, truncate_error_messages
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.api_key import ApiKey
from penstock.protocol.codec import encode
from penstock.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from penstock.protocol.messages.describe_cluster import DescribeClusterResponse
from penstock.protocol.messages.find_coordinator import FindCoordinatorResponse
from penstock.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)


def test_an_error_response_has_code_and_message() -> None:
    error = KafkaError(ErrorCode.INVALID_REQUEST, "do this instead")
    response = error_response(ApiKey.DESCRIBE_CLUSTER, 1, error)
    assert isinstance(response, DescribeClusterResponse)
    assert (response.error_code, response.error_message) == (
        ErrorCode.INVALID_REQUEST,
        "do this instead",
    )


def test_details_of_an_unexpected_error_are_not_sent() -> None:
    response = error_response(ApiKey.FIND_COORDINATOR, 1, RuntimeError("a secret"))
    assert isinstance(response, FindCoordinatorResponse)
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "secret" not in str(response.error_message)


def test_a_response_type_without_an_error_field_has_no_error_response() -> None:
    assert error_response(ApiKey.PRODUCE, 9, RuntimeError()) is None


@pytest.mark.parametrize("letter", ["x", "é", "\N{SNAKE}"])
def test_long_error_messages_are_truncated_at_any_depth(letter: str) -> None:
    topics = CreateTopicsResponse(
        topics=[
            CreatableTopicResult("short", error_message="short"),
            CreatableTopicResult("long", error_message=letter * 40_000),
        ]
    )
    assert truncate_error_messages(topics)
    assert topics.topics[0].error_message == "short"
    assert encode(topics, 7)
    assert not truncate_error_messages(topics)
    record = BatchIndexAndErrorMessage(0, letter * 40_000)
    partition = PartitionProduceResponse(0, 87, error_message=None, record_errors=[record])
    response = ProduceResponse([TopicProduceResponse("t", partition_responses=[partition])])
    assert truncate_error_messages(response)
    assert encode(response, 8)


def test_names_are_never_truncated() -> None:
    response = CreateTopicsResponse(topics=[CreatableTopicResult("n" * 40_000, error_message="")])
    assert not truncate_error_messages(response)
    assert len(response.topics[0].name) == 40_000
