"""Requests about groups over the wire, and a clock for the group coordinator."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from penstock.broker.broker import Broker
from penstock.core.clock import Clock
from penstock.core.errors import ErrorCode
from penstock.core.ids import TimestampMs
from penstock.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from penstock.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.list_groups import ListGroupsRequest
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
from tests.support.broker.in_process import TIMEOUT_S, RunningBroker, WireClient

GROUP_SETTINGS = {
    "offsets.topic.num.partitions": "4",
    "group.consumer.assignment.interval.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
}
"""Groups assign with every heartbeat that has a reason to."""

_NOT_YET = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)


def wait_until(holds: Callable[[], bool]) -> None:
    """Polls until the condition holds; fails after a timeout."""
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline, "it did not come"


def find_group(client: WireClient, group: str) -> None:
    """Creates `__consumer_offsets` and waits until the group's coordinator is loaded."""
    response = client.request(FindCoordinatorRequest(key=group), 2)
    assert response.error_code == 0, response.error_message
    wait_until(lambda: fetched_group(client, group).error_code not in _NOT_YET)


# --- topics


def grow(client: WireClient, topic: str, count: int) -> None:
    new_topic = CreatePartitionsTopic(topic, count, None)
    response = client.request(CreatePartitionsRequest([new_topic], 5000), 3)
    assert response.results[0].error_code == 0, response.results[0].error_message


def delete_topic(client: WireClient, topic: str) -> None:
    response = client.request(DeleteTopicsRequest(topic_names=[topic], timeout_ms=5000), 5)
    assert response.responses[0].error_code == 0


# --- offsets


def commit(
    client: WireClient,
    group: str,
    offsets: Mapping[tuple[str, int], int] | Mapping[tuple[UUID, int], int],
    *,
    member_id: str = "",
    epoch: int = -1,
    version: int = 9,
) -> list[ErrorCode]:
    """Commits offsets, of topics by name or, from version 10 on, by id; how it went with each."""
    topics: dict[str | UUID, OffsetCommitRequestTopic] = {}
    for (topic, partition), offset in offsets.items():
        named = OffsetCommitRequestTopic(partitions=[])
        if isinstance(topic, str):
            named.name = topic
        else:
            named.topic_id = topic
        topics.setdefault(topic, named).partitions.append(
            OffsetCommitRequestPartition(partition, offset)
        )
    request = OffsetCommitRequest(group, epoch, member_id, topics=list(topics.values()))
    response = client.request(request, version)
    return [
        ErrorCode(partition.error_code)
        for topic in response.topics
        for partition in topic.partitions
    ]


def fetched_group(
    client: WireClient,
    group: str,
    requested: Mapping[str, Sequence[int]] | Mapping[UUID, Sequence[int]] | None = None,
    *,
    member_id: str | None = None,
    epoch: int = -1,
    version: int = 9,
) -> Any:
    """Returns a group's part of an OffsetFetch response; without `requested` all its offsets."""
    topics = None
    if requested is not None:
        topics = []
        for topic, partitions in requested.items():
            named = OffsetFetchRequestTopics(partition_indexes=list(partitions))
            if isinstance(topic, str):
                named.name = topic
            else:
                named.topic_id = topic
            topics.append(named)
    group_request = OffsetFetchRequestGroup(group, topics=topics)
    if version >= 9:
        group_request.member_id, group_request.member_epoch = member_id, epoch
    return client.request(OffsetFetchRequest(groups=[group_request]), version).groups[0]


def committed(client: WireClient, group: str) -> dict[tuple[str, int], int]:
    """Returns all committed offsets of a group."""
    result = fetched_group(client, group)
    assert result.error_code == 0, ErrorCode(result.error_code)
    return {
        (topic.name, partition.partition_index): partition.committed_offset
        for topic in result.topics
        for partition in topic.partitions
    }


# --- admin requests


def described(client: WireClient, group: str, version: int = 1) -> Any:
    return client.request(ConsumerGroupDescribeRequest([group]), version).groups[0]


def listed(
    client: WireClient, states: Sequence[str] = (), types: Sequence[str] = ()
) -> dict[str, tuple[str, str]]:
    """Returns the state and type of groups by name."""
    response = client.request(ListGroupsRequest(list(states), list(types)), 5)
    assert response.error_code == 0, ErrorCode(response.error_code)
    return {group.group_id: (group.group_state, group.group_type) for group in response.groups}


# --- time


class MovedClock:
    """A clock that can be set ahead of another one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.ahead_ms = 0

    def now_ms(self) -> TimestampMs:
        return TimestampMs(self._clock.now_ms() + self.ahead_ms)

    def monotonic_ms(self) -> int:
        return self._clock.monotonic_ms() + self.ahead_ms


def pass_time(broker: RunningBroker, milliseconds: int) -> None:
    """Advances the group coordinator's clock and runs the timers that are due."""

    def step(inside: Broker) -> None:
        clock = inside.groups._clock
        if not isinstance(clock, MovedClock):
            clock = inside.groups._clock = MovedClock(clock)
        clock.ahead_ms += milliseconds
        inside.groups._fire_due_timers()

    broker.call(step)
