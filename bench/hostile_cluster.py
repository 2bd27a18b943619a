"""Requests about all topics, partitions and groups of a cluster with many of them."""

from collections.abc import Iterator
from uuid import UUID

from bench.broker_client import Client, frame
from penstock.protocol.fields import Message
from penstock.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.protocol.messages.describe_cluster import DescribeClusterRequest
from penstock.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from penstock.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from penstock.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.protocol.messages.list_config_resources import ListConfigResourcesRequest
from penstock.protocol.messages.list_groups import ListGroupsRequest
from penstock.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from penstock.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

TOPICS = 1000
PARTITIONS = 5
CONFIGURED = 200
_TOPIC_CONFIG = 2


def cluster_requests(address: tuple[str, int]) -> Iterator[tuple[str, bytes]]:
    """Yields requests with their titles, first the one that creates the topics."""
    names = [f"cluster-{number}" for number in range(TOPICS)]
    topics = [CreatableTopic(name, PARTITIONS, 1) for name in names]
    for number in range(CONFIGURED):
        topics[number].configs = [CreatableTopicConfig("retention.ms", "1000000")]
    yield f"CreateTopics of {TOPICS}", frame(CreateTopicsRequest(topics, 120_000), 7)
    yield "Metadata of everything", frame(MetadataRequest(None), 13)
    with Client(address) as client:
        metadata = client.send_request(MetadataRequest(None), 13, MetadataResponse)
    ids = [topic.topic_id for topic in metadata.topics if topic.name in set(names)]
    indexes = range(PARTITIONS)
    partitions = TOPICS * PARTITIONS
    messages: list[tuple[str, Message, int]] = [
        (f"Fetch of {partitions}, no wait", _fetch(ids, 0), 17),
        (f"Fetch of {partitions}, waiting", _fetch(ids, 500), 17),
        (f"ListOffsets of {partitions}", _list_offsets(names), 10),
        (f"OffsetForLeaderEpoch of {partitions}", _epochs(names), 4),
    ]
    commits = [
        OffsetCommitRequestTopic(
            name, partitions=[OffsetCommitRequestPartition(i) for i in indexes]
        )
        for name in names
    ]
    fetched = [OffsetFetchRequestTopics(name, partition_indexes=list(indexes)) for name in names]
    messages += [
        (f"OffsetCommit of {partitions}", OffsetCommitRequest("all", topics=commits), 9),
        (
            f"OffsetFetch of {partitions}",
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup("all", topics=fetched)]),
            9,
        ),
        (
            "OffsetFetch of everything",
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup("all", topics=None)]),
            9,
        ),
        (
            f"DescribeConfigs of {TOPICS}",
            DescribeConfigsRequest(
                [DescribeConfigsResource(_TOPIC_CONFIG, name, None) for name in names]
            ),
            4,
        ),
        ("DescribeLogDirs of everything", DescribeLogDirsRequest(None), 4),
        ("ListConfigResources of everything", ListConfigResourcesRequest(), 1),
        ("ListPartitionReassignments", ListPartitionReassignmentsRequest(1000, None), 0),
        ("ListGroups", ListGroupsRequest(), 5),
        ("DescribeCluster", DescribeClusterRequest(), 1),
        (
            f"DeleteTopics of {TOPICS}",
            DeleteTopicsRequest([DeleteTopicState(name) for name in names], timeout_ms=120_000),
            6,
        ),
    ]
    for title, message, version in messages:
        yield title, frame(message, version)


def _fetch(ids: list[UUID], max_wait_ms: int) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1_000_000,
        session_id=0,
        session_epoch=0,
        topics=[
            FetchTopic(
                topic_id=topic_id,
                partitions=[
                    FetchPartition(index, fetch_offset=0, partition_max_bytes=1000)
                    for index in range(PARTITIONS)
                ],
            )
            for topic_id in ids
        ],
    )


def _list_offsets(names: list[str]) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        topics=[
            ListOffsetsTopic(
                name, [ListOffsetsPartition(index, timestamp=-1) for index in range(PARTITIONS)]
            )
            for name in names
        ]
    )


def _epochs(names: list[str]) -> OffsetForLeaderEpochRequest:
    return OffsetForLeaderEpochRequest(
        topics=[
            OffsetForLeaderTopic(
                name, [OffsetForLeaderPartition(index, -1, 0) for index in range(PARTITIONS)]
            )
            for name in names
        ]
    )
