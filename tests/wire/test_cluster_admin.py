"""DescribeCluster, DescribeTopicPartitions, ElectLeaders and reassignments on one node (R5, R8)."""

from collections.abc import Mapping
from typing import Any

import pytest

from penstock.core.errors import ErrorCode
from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.protocol.messages.describe_cluster import DescribeClusterRequest
from penstock.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsTopicRequest,
)
from penstock.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersTopicPartitions,
)
from penstock.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from penstock.protocol.messages.metadata import MetadataRequest
from tests.support.broker.in_process import RunningBroker, WireClient, running_broker
from tests.support.protocol.requests import make_topic, produce_values

NODE = 5


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {"node.id": str(NODE), "max.request.partition.size.limit": "100", "broker.rack": "r"}


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("operations", [False, True])
def test_describe_cluster(
    broker: RunningBroker, client: WireClient, version: int, operations: bool
) -> None:
    response = client.request(DescribeClusterRequest(operations), version)
    assert (response.error_code, response.controller_id) == (0, NODE)
    assert response.cluster_id == client.request(MetadataRequest([]), 9).cluster_id
    (node,) = response.brokers
    assert (node.broker_id, node.host, node.port, node.rack) == (NODE, *broker.address, "r")
    assert not node.is_fenced
    assert (response.cluster_authorized_operations > 0) == operations


@pytest.mark.parametrize("version", [1, 2])
def test_controllers_cannot_be_described(client: WireClient, version: int) -> None:
    response = client.request(DescribeClusterRequest(endpoint_type=2), version)
    assert response.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
    assert response.brokers == []


# --- DescribeTopicPartitions


def pages(client: WireClient, limit: int, *names: str) -> list[list[tuple[str, list[int]]]]:
    """Reads all pages; every page has topics with their partition indexes."""
    result = []
    cursor: Any = None
    while True:
        request = DescribeTopicPartitionsRequest(
            [DescribeTopicPartitionsTopicRequest(name) for name in names],
            limit,
            cursor
            and DescribeTopicPartitionsRequestCursor(cursor.topic_name, cursor.partition_index),
        )
        response = client.request(request, 0)
        result.append(
            [
                (topic.name, [partition.partition_index for partition in topic.partitions])
                for topic in response.topics
            ]
        )
        cursor = response.next_cursor
        if cursor is None:
            return result


def test_partitions_are_described_in_pages(client: WireClient) -> None:
    for name, partitions in (("page-b", 3), ("page-a", 2), ("page-c", 1)):
        make_topic(client, name, partitions)
    names = ("page-c", "page-a", "page-b")
    all_topics = [("page-a", [0, 1]), ("page-b", [0, 1, 2]), ("page-c", [0])]
    assert pages(client, 2000, *names) == [all_topics]
    assert pages(client, 4, *names) == [
        [("page-a", [0, 1]), ("page-b", [0, 1])],
        [("page-b", [2]), ("page-c", [0])],
    ]
    assert pages(client, 2, *names)[:2] == [[("page-a", [0, 1])], [("page-b", [0, 1])]]
    for limit in (1, 3, 5):
        collected: dict[str, list[int]] = {}
        for page in pages(client, limit, *names):
            assert sum(len(indexes) for _, indexes in page) <= limit
            for name, indexes in page:
                collected.setdefault(name, []).extend(indexes)
        assert list(collected.items()) == all_topics


def test_a_topic_is_described(client: WireClient) -> None:
    topic_id = make_topic(client, "described")
    request = DescribeTopicPartitionsRequest(
        [DescribeTopicPartitionsTopicRequest(name) for name in ("described", "unknown")]
    )
    described, unknown = client.request(request, 0).topics
    assert (described.error_code, described.topic_id, described.is_internal) == (0, topic_id, False)
    assert described.topic_authorized_operations > 0
    (partition,) = described.partitions
    assert (partition.leader_id, partition.leader_epoch) == (NODE, 0)
    assert partition.replica_nodes == partition.isr_nodes == [NODE]
    assert partition.offline_replicas == []
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_without_names_all_topics_are_described(client: WireClient) -> None:
    make_topic(client, "all-of-them")
    assert "all-of-them" in {name for page in pages(client, 50) for name, _ in page}


def test_a_cursor_after_all_topics_returns_nothing(client: WireClient) -> None:
    request = DescribeTopicPartitionsRequest(
        [], 10, DescribeTopicPartitionsRequestCursor("zzzz", 0)
    )
    response = client.request(request, 0)
    assert (response.topics, response.next_cursor) == ([], None)


# --- elections


def elect(
    client: WireClient, version: int, topics: Mapping[str, list[int]] | None, election_type: int = 0
) -> dict[tuple[str, int], ErrorCode]:
    partitions = None
    if topics is not None:
        partitions = [ElectLeadersTopicPartitions(*topic) for topic in topics.items()]
    request = ElectLeadersRequest(topic_partitions=partitions, timeout_ms=5000)
    if version >= 1:
        request.election_type = election_type
    response = client.request(request, version)
    assert response.error_code == 0
    return {
        (topic.topic, partition.partition_id): ErrorCode(partition.error_code)
        for topic in response.replica_election_results
        for partition in topic.partition_result
    }


@pytest.mark.parametrize("version", [0, 1, 2])
def test_no_preferred_election_is_needed(client: WireClient, version: int) -> None:
    make_topic(client, topic := f"preferred-{version}", 2)
    assert elect(client, version, {topic: [0, 1, 7], "unknown": [0]}) == {
        (topic, 0): ErrorCode.ELECTION_NOT_NEEDED,
        (topic, 1): ErrorCode.ELECTION_NOT_NEEDED,
        (topic, 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("unknown", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    result = elect(client, version, None)
    assert set(result.values()) <= {ErrorCode.ELECTION_NOT_NEEDED}
    assert produce_values(client, topic, b"a") == 0


@pytest.mark.parametrize("version", [1, 2])
def test_no_unclean_election_is_needed(client: WireClient, version: int) -> None:
    make_topic(client, topic := f"unclean-{version}")
    assert elect(client, version, {topic: [0]}, election_type=1) == {
        (topic, 0): ErrorCode.ELECTION_NOT_NEEDED
    }


def test_an_unknown_election_type_is_rejected(client: WireClient) -> None:
    request = ElectLeadersRequest(7, None, 1000)
    assert client.request(request, 2).error_code == ErrorCode.INVALID_REQUEST


# --- reassignments


def reassign(
    client: WireClient, version: int, topic: str, replicas: Mapping[int, list[int] | None]
) -> dict[int, ErrorCode]:
    partitions = [ReassignablePartition(*replica) for replica in replicas.items()]
    request = AlterPartitionReassignmentsRequest(
        5000, topics=[ReassignableTopic(topic, partitions)]
    )
    response = client.request(request, version)
    assert response.error_code == 0
    return {
        partition.partition_index: ErrorCode(partition.error_code)
        for partition in response.responses[0].partitions
    }


@pytest.mark.parametrize("version", [0, 1])
def test_reassignments_on_one_node(client: WireClient, version: int) -> None:
    make_topic(client, topic := f"moved-{version}", 4)
    assert reassign(
        client, version, topic, {0: [NODE], 1: [99], 2: None, 3: [NODE, NODE], 9: [NODE]}
    ) == {
        0: ErrorCode.NONE,
        1: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        2: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        3: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert reassign(client, version, topic, {3: []}) == {3: ErrorCode.INVALID_REPLICA_ASSIGNMENT}
    for topics in (None, [ListPartitionReassignmentsTopics(topic, [0, 1, 2, 3])]):
        listed = client.request(ListPartitionReassignmentsRequest(1000, topics), 0)
        assert (listed.error_code, listed.topics) == (0, [])
    assert produce_values(client, topic, b"a") == 0


def test_the_cluster_id_survives_a_restart(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("same")
    ids = set()
    for _ in range(2):
        with running_broker(directory) as broker, broker.connect() as client:
            ids.add(client.request(DescribeClusterRequest(), 1).cluster_id)
    assert len(ids) == 1
