"""Requests for committed offsets: changed member ids, and errors."""

import asyncio
from collections.abc import Callable

import pytest

from penstock.client.consumer.group.actions import Identity
from penstock.client.consumer.group.offsets import GroupOffsets
from penstock.client.consumer.record import OffsetAndMetadata
from penstock.client.coordinators import Coordinators
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.protocol.fields import Message
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tests.support.client.fake_cluster import FakeCluster

PARTITION = TopicPartition("t", 0)


class Member:
    """A member of a consumer group whose identity changes while it waits for a response."""

    def __init__(self, *identities: Identity) -> None:
        self._identities = list(identities)

    def commit_identity(self) -> Identity:
        return self._identities[0]

    def fetch_identity(self) -> Identity | None:
        first = self._identities[0]
        if len(self._identities) > 1:
            del self._identities[0]
        return first

    def handle_commit_error(self, code: ErrorCode, identity: Identity) -> KafkaError | None:
        return None

    def connection(self, node_id: int) -> int:
        return node_id


def broker_with_errors(*codes: ErrorCode) -> tuple[FakeCluster, Callable[[], list[str | None]]]:
    """A broker that responds with these errors, then an offset; and its requests' member ids."""
    remaining = list(codes)

    def respond(node_id: int, request: OffsetFetchRequest) -> Message:
        group = OffsetFetchResponseGroup(group_id="g")
        if remaining:
            group.error_code = remaining.pop(0)
        else:
            results = OffsetFetchResponsePartitions(0, 42, metadata="")
            group.topics = [OffsetFetchResponseTopics("t", partitions=[results])]
        return OffsetFetchResponse(groups=[group])

    cluster = FakeCluster()
    cluster.coordinators["g"] = 1
    cluster.handlers[OffsetFetchRequest] = respond
    return cluster, lambda: [request.groups[0].member_id for _, request in cluster.requests]


async def committed(cluster: FakeCluster, member: Member) -> OffsetAndMetadata | None:
    offsets = GroupOffsets(cluster, Coordinators(cluster), "g", member)
    results = await offsets.committed([PARTITION], cluster.clock.monotonic_ms() + 5000)
    return results[PARTITION]


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH])
def test_a_fenced_member_sends_the_request_again_with_its_new_id(code: ErrorCode) -> None:
    """C5: its heartbeat is fenced as well, and it joins again; poll raises nothing."""
    cluster, member_ids = broker_with_errors(code)
    member = Member(Identity(4, "old"), Identity(1, "new"))
    assert asyncio.run(committed(cluster, member)) == OffsetAndMetadata(42)
    assert member_ids() == ["old", "new"]


def test_a_permanent_error_is_raised() -> None:
    """E3."""
    cluster, _ = broker_with_errors(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaError, match="DESCRIBE on the group"):
        asyncio.run(committed(cluster, Member(Identity(1, "m"))))
