"""Invalid requests: every response equals that of Apache Kafka 4.3 (E1)."""

import pytest

from penstock.core.errors import ErrorCode
from penstock.protocol.messages.describe_cluster import DescribeClusterRequest
from penstock.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersTopicRequest,
)
from penstock.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsTopicRequest,
)
from penstock.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersTopicPartitions,
)
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.protocol.messages.join_group import JoinGroupRequest
from penstock.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.protocol.messages.sync_group import SyncGroupRequest
from tests.support.broker.in_process import WireClient
from tests.support.protocol.requests import fetch_partition, make_topic

UNKNOWN_OPERATIONS = -(2**31)


def test_a_duplicate_partition_has_one_error(client: WireClient) -> None:
    make_topic(client, "listed-twice", partitions=2)
    partitions = [
        ListOffsetsPartition(0, timestamp=-1),
        ListOffsetsPartition(1, timestamp=-1),
        ListOffsetsPartition(0, timestamp=-2),
    ]
    request = ListOffsetsRequest(-1, topics=[ListOffsetsTopic("listed-twice", partitions)])
    (topic,) = client.request(request, 7).topics
    assert [
        (partition.partition_index, partition.error_code) for partition in topic.partitions
    ] == [
        (0, ErrorCode.INVALID_REQUEST),
        (1, ErrorCode.NONE),
    ]


def test_a_duplicate_topic_is_described_once(client: WireClient) -> None:
    make_topic(client, "described-once")
    duplicates = [
        MetadataRequestTopic(name="described-once"),
        MetadataRequestTopic(name="described-once"),
    ]
    (topic,) = client.request(MetadataRequest(duplicates), 12).topics
    assert (topic.name, topic.error_code) == ("described-once", ErrorCode.NONE)


@pytest.mark.parametrize(
    ("topic", "partition"), [("page", -1), ("pag", 0)], ids=["negative", "of another topic"]
)
def test_an_invalid_cursor_is_rejected(client: WireClient, topic: str, partition: int) -> None:
    request = DescribeTopicPartitionsRequest(
        [DescribeTopicPartitionsTopicRequest("page")],
        cursor=DescribeTopicPartitionsRequestCursor(topic, partition),
    )
    (response,) = client.request(request, 0).topics
    assert (response.name, response.error_code) == ("page", ErrorCode.INVALID_REQUEST)


def test_invalid_and_unknown_topics_are_not_described(client: WireClient) -> None:
    names = ["a/b", "nowhere"]
    request = DescribeTopicPartitionsRequest(
        [DescribeTopicPartitionsTopicRequest(name) for name in names]
    )
    responses = client.request(request, 0).topics
    assert [(response.name, response.error_code) for response in responses] == [
        ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert UNKNOWN_OPERATIONS not in {
        response.topic_authorized_operations for response in responses
    }


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("endpoint_type", "error"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_other_endpoint_types_than_brokers_are_rejected(
    client: WireClient, version: int, endpoint_type: int, error: ErrorCode
) -> None:
    response = client.request(DescribeClusterRequest(endpoint_type=endpoint_type), version)
    assert (response.error_code, response.endpoint_type, response.brokers) == (error, 1, [])
    assert response.error_message


@pytest.mark.parametrize("version", [1, 2])
def test_an_unknown_election_type_is_rejected_per_partition(
    client: WireClient, version: int
) -> None:
    request = ElectLeadersRequest(7, [ElectLeadersTopicPartitions("any", [0, 4])])
    response = client.request(request, version)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    (topic,) = response.replica_election_results
    assert topic.topic == "any"
    assert [
        (partition.partition_id, partition.error_code) for partition in topic.partition_result
    ] == [
        (0, ErrorCode.INVALID_REQUEST),
        (4, ErrorCode.INVALID_REQUEST),
    ]


def test_an_election_of_all_partitions_lists_every_topic(client: WireClient) -> None:
    make_topic(client, "all-is-well")
    results = client.request(ElectLeadersRequest(0, None), 2).replica_election_results
    assert {result.topic: result.partition_result for result in results}["all-is-well"] == []


def test_a_sync_without_its_protocol_is_rejected(client: WireClient) -> None:
    """C3"""
    for names in ((None, "range"), ("consumer", None)):
        request = SyncGroupRequest("group", 1, "member", None, *names)
        assert client.request(request, 5).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    older = SyncGroupRequest("group", 1, "member")
    assert client.request(older, 4).error_code == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize(("version", "name"), [(6, ""), (7, None), (9, None)])
def test_a_rejected_join_has_no_protocol(
    client: WireClient, version: int, name: str | None
) -> None:
    """C3"""
    response = client.request(JoinGroupRequest("group", 10_000, 10_000, "stranger"), version)
    assert (response.error_code, response.protocol_name) == (ErrorCode.NOT_COORDINATOR, name)


def test_a_rejected_producer_has_no_epoch(client: WireClient) -> None:
    """P3"""
    for request in (InitProducerIdRequest("", 1000), InitProducerIdRequest(None, 0, -1, 3)):
        response = client.request(request, 4)
        assert response.error_code == ErrorCode.INVALID_REQUEST
        assert (response.producer_id, response.producer_epoch) == (-1, -1)


def test_producers_of_invalid_topics_are_not_described(client: WireClient) -> None:
    names = ["a/b", "nowhere"]
    topics = [DescribeProducersTopicRequest(name, [0]) for name in names]
    responses = client.request(DescribeProducersRequest(topics), 0).topics
    assert [response.partitions[0].error_code for response in responses] == [
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_the_aborted_transactions_of_a_failed_fetch(client: WireClient) -> None:
    make_topic(client, "fetched-badly")
    unknown = fetch_partition(client, "nowhere")
    assert (unknown.error_code, unknown.aborted_transactions) == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        [],
    )
    out_of_range = fetch_partition(client, "fetched-badly", 99)
    assert (out_of_range.error_code, out_of_range.aborted_transactions) == (
        ErrorCode.OFFSET_OUT_OF_RANGE,
        None,
    )
