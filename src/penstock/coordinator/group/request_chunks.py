"""Requests with very many groups, partitions or members, in chunks that a shard handles at once.

    for chunk in chunked(request, version):
        responses.append(response to the chunk)
    response = combined(request, version, responses)

A shard decides about a request in one go, and its host writes and applies the records in one go. A
chunk is small enough not to occupy the event loop for long. Each chunk takes effect separately: a
commit of thousands of partitions may succeed for some of them only, and the response says so for
each of them.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar, cast
from uuid import UUID

from msgspec.structs import replace

from penstock.coordinator.group.multi_group_requests import MULTI_GROUP_REQUESTS
from penstock.core.errors import ErrorCode
from penstock.protocol.fields import ZERO_UUID, Message, Struct
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

CHUNK_SIZE: Final = 500

_SEVERAL_GROUPS_VERSION = 8

TopicT = TypeVar("TopicT", bound=Struct)
T = TypeVar("T")


def topic_chunks(topics: Iterable[TopicT], field: str = "partitions") -> Iterator[list[TopicT]]:
    """Yields topics with at most `CHUNK_SIZE` partitions together; splits larger topics.

    `field` is the list of the partitions in a topic. There is at least one chunk.
    """
    chunk: list[TopicT] = []
    room = CHUNK_SIZE
    is_first = True
    for topic in topics:
        partitions = getattr(topic, field)
        start = 0
        while start == 0 or start < len(partitions):
            part = partitions[start : start + room]
            is_whole = len(part) == len(partitions)
            chunk.append(topic if is_whole else replace(topic, **{field: part}))
            start += max(len(part), 1)
            room -= len(part) + 1
            if room <= 0:
                yield chunk
                chunk = []
                room = CHUNK_SIZE
                is_first = False
    if chunk or is_first:
        yield chunk


def merge_topics(topics: list[Any], more: Sequence[Any]) -> None:
    """Adds the topics of another chunk's response; a topic that was split becomes one again."""
    if topics and more and _topic_key(topics[-1]) == _topic_key(more[0]):
        topics[-1].partitions.extend(more[0].partitions)
        more = more[1:]
    topics.extend(more)


def _topic_key(topic: Any) -> tuple[str, object]:
    return topic.name, getattr(topic, "topic_id", None)


def item_chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yields parts of a list; at least one."""
    for start in range(0, max(len(items), 1), CHUNK_SIZE):
        yield items[start : start + CHUNK_SIZE]


def chunked(request: Message, version: int) -> Iterator[Message]:
    """Yields the chunks of a request that names several groups; at least one."""
    if isinstance(request, OffsetFetchRequest):
        yield from _chunked_fetch(request, version)
        return
    kind = MULTI_GROUP_REQUESTS.get(type(request))
    if kind is None:
        yield request
        return
    for group_ids in item_chunks(kind.group_ids(request)):
        yield kind.part(request, list(group_ids))


def _chunked_fetch(request: OffsetFetchRequest, version: int) -> Iterator[OffsetFetchRequest]:
    if version < _SEVERAL_GROUPS_VERSION:
        if request.topics is None:
            yield request
            return
        for topics in topic_chunks(request.topics, "partition_indexes"):
            yield replace(request, topics=topics)
        return
    groups = []
    room = CHUNK_SIZE
    for group in request.groups:
        parts = [group.topics]
        if group.topics is not None:
            parts = list(topic_chunks(group.topics, "partition_indexes"))
        for part in parts:
            groups.append(replace(group, topics=part))
            room -= 1 + sum(1 + len(topic.partition_indexes) for topic in part or ())
            if room <= 0:
                yield replace(request, groups=groups)
                groups = []
                room = CHUNK_SIZE
    if groups or not request.groups:
        yield replace(request, groups=groups)


def name_partitions(
    request: OffsetFetchRequest,
    version: int,
    committed: Callable[[str], Mapping[str, Collection[int]]],
    topic_id: Callable[[str], UUID | None],
) -> tuple[OffsetFetchRequest, frozenset[str]]:
    """Names the partitions of groups whose request is for all of them, if there are very many.

    `committed` returns the topics and partitions with offsets of a group. Returns the request, and
    the groups whose partitions were named: pass them to `drop_missing` with the response.
    """
    named: set[str] = set()

    def partitions_of(group_id: str) -> list[OffsetFetchRequestTopics] | None:
        topics = committed(group_id)
        if sum(map(len, topics.values())) <= CHUNK_SIZE:
            return None
        named.add(group_id)
        return [
            OffsetFetchRequestTopics(name, topic_id(name) or ZERO_UUID, list(partitions))
            for name, partitions in topics.items()
        ]

    if version >= _SEVERAL_GROUPS_VERSION:
        groups = [
            replace(group, topics=partitions_of(group.group_id)) if group.topics is None else group
            for group in request.groups
        ]
        return replace(request, groups=groups) if named else request, frozenset(named)
    if request.topics is None and (topics := partitions_of(request.group_id)) is not None:
        old_topics = [
            OffsetFetchRequestTopic(topic.name, topic.partition_indexes) for topic in topics
        ]
        request = replace(request, topics=old_topics)
    return request, frozenset(named)


def drop_missing(response: OffsetFetchResponse, named: frozenset[str]) -> None:
    """Removes offsets that were deleted since `name_partitions`: nobody has requested them."""
    for group in response.groups:
        if group.group_id in named:
            group.topics = _existing(group.topics)
    if named and response.topics:
        response.topics = _existing(response.topics)


def _existing(topics: list[TopicT]) -> list[TopicT]:
    existing = []
    for topic in cast("list[Any]", topics):
        topic.partitions = [
            partition
            for partition in topic.partitions
            if partition.committed_offset >= 0
            or partition.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
        ]
        if topic.partitions:
            existing.append(topic)
    return existing


def combined(request: Message, version: int, responses: Sequence[Message]) -> Message:
    """Returns one response for the responses to all chunks, in their order."""
    if len(responses) == 1:
        return responses[0]
    if isinstance(request, OffsetFetchRequest):
        return _combined_fetch(cast("Sequence[OffsetFetchResponse]", responses))
    kind = MULTI_GROUP_REQUESTS[type(request)]
    return kind.response([result for part in responses for result in kind.results(part)])


def _combined_fetch(responses: Sequence[OffsetFetchResponse]) -> OffsetFetchResponse:
    response = responses[0]
    for part in responses[1:]:
        response.error_code = response.error_code or part.error_code
        merge_topics(response.topics, part.topics)
        groups = part.groups
        if response.groups and groups and response.groups[-1].group_id == groups[0].group_id:
            last = response.groups[-1]
            last.error_code = last.error_code or groups[0].error_code
            merge_topics(last.topics, groups[0].topics)
            groups = groups[1:]
        response.groups.extend(groups)
    return response
