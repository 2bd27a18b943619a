"""Large requests to the group coordinator in chunks, and their responses in one."""

from uuid import UUID

from penstock.coordinator.group.request_chunks import (
    CHUNK_SIZE,
    chunked,
    combined,
    item_chunks,
    merge_topics,
    topic_chunks,
)
from penstock.protocol.messages.describe_groups import (
    DescribeGroupsDescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from penstock.protocol.messages.list_groups import ListGroupsRequest
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)


def topic(name: str, partitions: int) -> OffsetCommitRequestTopic:
    return OffsetCommitRequestTopic(
        name, partitions=[OffsetCommitRequestPartition(index) for index in range(partitions)]
    )


def response_of(topics: list[OffsetCommitRequestTopic]) -> list[OffsetCommitResponseTopic]:
    return [
        OffsetCommitResponseTopic(
            topic.name,
            partitions=[
                OffsetCommitResponsePartition(partition.partition_index)
                for partition in topic.partitions
            ],
        )
        for topic in topics
    ]


def test_a_small_request_is_one_chunk() -> None:
    topics = [topic("a", 3), topic("b", 0), topic("c", 1)]
    assert list(topic_chunks(topics)) == [topics]
    assert list(topic_chunks([])) == [[]]


def test_large_topics_are_split_and_merged_again() -> None:
    topics = [topic("a", 3), topic("b", 4 * CHUNK_SIZE), topic("c", 1), topic("d", CHUNK_SIZE)]
    parts = list(topic_chunks(topics))
    assert len(parts) > 4
    assert max(sum(len(topic.partitions) for topic in part) for part in parts) <= CHUNK_SIZE
    merged: list[OffsetCommitResponseTopic] = []
    for part in parts:
        merge_topics(merged, response_of(part))
    assert merged == response_of(topics)


def test_topics_without_partitions_are_bounded_too() -> None:
    parts = list(topic_chunks([topic(f"t{number}", 0) for number in range(3 * CHUNK_SIZE)]))
    assert [len(part) for part in parts] == [CHUNK_SIZE] * 3


def test_lists_are_cut() -> None:
    assert [len(part) for part in item_chunks(range(2 * CHUNK_SIZE + 1))] == [
        CHUNK_SIZE,
        CHUNK_SIZE,
        1,
    ]
    assert list(item_chunks([])) == [[]]


def test_describe_groups() -> None:
    names = [f"g{number}" for number in range(2 * CHUNK_SIZE)]
    request = DescribeGroupsRequest(names, include_authorized_operations=True)
    parts = list(chunked(request, 5))
    assert len(parts) == 2
    responses = []
    for part in parts:
        assert isinstance(part, DescribeGroupsRequest)
        described = [DescribeGroupsDescribedGroup(group_id=name) for name in part.groups]
        responses.append(DescribeGroupsResponse(groups=described))
    response = combined(request, 5, responses)
    assert isinstance(response, DescribeGroupsResponse)
    assert [group.group_id for group in response.groups] == names


def test_requests_without_groups_are_one_chunk() -> None:
    request = ListGroupsRequest()
    assert list(chunked(request, 4)) == [request]


def test_offset_fetch_of_one_group() -> None:
    request = OffsetFetchRequest(
        "g", [OffsetFetchRequestTopic("a", list(range(2 * CHUNK_SIZE)))], require_stable=True
    )
    parts = list(chunked(request, 7))
    assert len(parts) == 2
    indexes = []
    for part in parts:
        assert isinstance(part, OffsetFetchRequest)
        assert (part.group_id, part.require_stable) == ("g", True)
        assert part.topics is not None
        indexes += [index for topic in part.topics for index in topic.partition_indexes]
    assert indexes == list(range(2 * CHUNK_SIZE))
    everything = OffsetFetchRequest("g", None)
    assert list(chunked(everything, 7)) == [everything]


def test_offset_fetch_of_several_groups() -> None:
    topic_id = UUID(int=1)
    groups = [
        OffsetFetchRequestGroup(
            name, topics=[OffsetFetchRequestTopics("a", topic_id, list(range(count)))]
        )
        for name, count in (("small", 1), ("large", 3 * CHUNK_SIZE), ("last", 2))
    ]
    groups.append(OffsetFetchRequestGroup("everything", topics=None))
    request = OffsetFetchRequest(groups=groups)
    responses = []
    for part in chunked(request, 8):
        assert isinstance(part, OffsetFetchRequest)
        responses.append(OffsetFetchResponse(groups=[fetched(group) for group in part.groups]))
    assert len(responses) > 3
    assert combined(request, 8, responses) == OffsetFetchResponse(
        groups=[fetched(group) for group in groups]
    )


def fetched(group: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(
        group.group_id,
        [
            OffsetFetchResponseTopics(
                topic.name,
                topic.topic_id,
                [OffsetFetchResponsePartitions(index) for index in topic.partition_indexes],
            )
            for topic in group.topics or ()
        ],
    )
