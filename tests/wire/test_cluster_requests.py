"""Clients of any broker of a cluster: topics, coordinators, producer ids, groups (R6, C3)."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from penstock.controller.producer_ids import BLOCK_SIZE
from penstock.core.errors import ErrorCode
from penstock.core.internal_topics import GROUP_METADATA_TOPIC
from penstock.protocol.fields import Message
from penstock.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.protocol.messages.describe_cluster import DescribeClusterRequest
from penstock.protocol.messages.describe_groups import DescribeGroupsRequest
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.support.cluster.brokers import RunningCluster, running_cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), brokers=3) as running:
        yield running


def send(cluster: RunningCluster, broker_id: int, request: Message, version: int) -> Any:
    with cluster.connect(broker_id) as client:
        return client.request(request, version)


def metadata_of(cluster: RunningCluster, broker_id: int, topic: str) -> Any:
    request = MetadataRequest([MetadataRequestTopic(name=topic)])
    (result,) = send(cluster, broker_id, request, 12).topics
    return result


def created(cluster: RunningCluster, broker_id: int, topic: str) -> Any:
    """Sends Metadata, as a client does, until the topic exists."""

    def look_up() -> Any:
        result = metadata_of(cluster, broker_id, topic)
        assert result.error_code in (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return result if result.partitions else None

    return cluster.wait_until(look_up, f"{topic} is created")


def coordinator(cluster: RunningCluster, broker_id: int, key: str, key_type: int = 0) -> Any:
    def look_up() -> Any:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        (result,) = send(cluster, broker_id, request, 4).coordinators
        assert result.error_code in (0, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return None if result.error_code else result

    return cluster.wait_until(look_up, f"{key} has a coordinator")


@pytest.mark.parametrize("broker_id", range(3))
def test_every_broker_knows_the_cluster(cluster: RunningCluster, broker_id: int) -> None:
    response = send(cluster, broker_id, DescribeClusterRequest(), 0)
    assert sorted(node.broker_id for node in response.brokers) == [0, 1, 2]
    assert response.controller_id == cluster.controller_id
    addresses = {node.broker_id: (node.host, node.port) for node in response.brokers}
    assert addresses == {number: broker.address for number, broker in cluster.brokers.items()}


@pytest.mark.parametrize("broker_id", range(3))
def test_a_topic_is_created_automatically_by_any_broker(
    cluster: RunningCluster, broker_id: int
) -> None:
    topic = created(cluster, broker_id, f"auto-{broker_id}")
    (partition,) = topic.partitions
    assert sorted(partition.replica_nodes) == [0, 1, 2], "default.replication.factor is 3"
    assert partition.offline_replicas == []


def test_concurrent_clients_create_a_topic_once(cluster: RunningCluster) -> None:
    with ThreadPoolExecutor(12) as pool:
        topics = list(pool.map(lambda n: created(cluster, n % 3, "wanted-by-all"), range(12)))
    assert len({topic.topic_id for topic in topics}) == 1


def test_only_the_controller_creates_topics_for_clients(cluster: RunningCluster) -> None:
    request = CreateTopicsRequest([CreatableTopic("by-client", 1, 3)])
    codes = {}
    for broker_id in cluster.brokers:
        (result,) = send(cluster, broker_id, request, 7).topics
        codes[broker_id] = ErrorCode(result.error_code)
    assert codes.pop(cluster.controller_id) is ErrorCode.NONE
    assert set(codes.values()) == {ErrorCode.NOT_CONTROLLER}


def test_all_brokers_name_the_same_coordinators(cluster: RunningCluster) -> None:
    for key_type in (0, 1):
        leaders = set()
        for key in ("a", "b", "c", "d", "e", "f"):
            node_ids = {coordinator(cluster, n, key, key_type).node_id for n in range(3)}
            assert len(node_ids) == 1
            leaders |= node_ids
        assert len(leaders) > 1, "coordinators are spread"


def test_internal_topics_have_the_configured_replicas(cluster: RunningCluster) -> None:
    coordinator(cluster, 2, "some-group")
    topic = metadata_of(cluster, 2, GROUP_METADATA_TOPIC)
    assert topic.is_internal
    assert len(topic.partitions) == 4
    assert all(len(partition.replica_nodes) == 3 for partition in topic.partitions)


def test_a_group_is_served_by_its_coordinator_only(cluster: RunningCluster) -> None:
    for broker_id in cluster.brokers:
        created(cluster, broker_id, "committed")
    group = "the-group"
    leader = coordinator(cluster, 0, group).node_id
    topics = [
        OffsetCommitRequestTopic("committed", partitions=[OffsetCommitRequestPartition(0, 5)])
    ]
    commit = OffsetCommitRequest(group, topics=topics)
    for broker_id in cluster.brokers:
        response = send(cluster, broker_id, commit, 8)
        code = ErrorCode(response.topics[0].partitions[0].error_code)
        described = send(cluster, broker_id, DescribeGroupsRequest([group]), 5).groups[0]
        if broker_id == leader:
            assert (code, described.error_code) == (ErrorCode.NONE, 0)
        else:
            assert code is ErrorCode.NOT_COORDINATOR
            assert described.error_code == ErrorCode.NOT_COORDINATOR


def test_producer_ids_of_all_brokers_differ(cluster: RunningCluster) -> None:
    ids = {}
    for broker_id in cluster.brokers:
        responses = [send(cluster, broker_id, InitProducerIdRequest(None), 4) for _ in range(3)]
        assert {response.error_code for response in responses} == {0}
        ids[broker_id] = [response.producer_id for response in responses]
    assert all(numbers[2] == numbers[0] + 2 for numbers in ids.values())
    blocks = {numbers[0] // BLOCK_SIZE for numbers in ids.values()}
    assert len(blocks) == 3


def test_too_few_brokers_for_internal_topics(tmp_path: Path) -> None:
    """Clients retry, and succeed when the other brokers have started."""
    with running_cluster(tmp_path, brokers=1) as cluster:
        for key_type in (0, 1):
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["k"])
            (result,) = send(cluster, 0, request, 4).coordinators
            assert result.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert "replication factor" in result.error_message
        assert metadata_of(cluster, 0, "auto").error_code == ErrorCode.INVALID_REPLICATION_FACTOR
        cluster.start(1)
        cluster.start(2)
        for key_type in (0, 1):
            coordinator(cluster, 1, "k", key_type)
        cluster.stop(0)
        cluster.wait_until(
            lambda: coordinator(cluster, 1, "k").node_id in (1, 2), "another broker coordinates"
        )
        cluster.start(0)
        created(cluster, 2, "auto")
