"""What becomes of questions to the coordinator about offsets."""

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

PLACE = TopicPartition("t", 0)


class Member:
    """Of a consumer group. It learns that it is none any more while it waits for an answer."""

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


def answering(*codes: ErrorCode) -> tuple[FakeCluster, Callable[[], list[str | None]]]:
    """A broker that says these, then an offset; and who has asked it."""
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
    cluster.answers[OffsetFetchRequest] = respond
    return cluster, lambda: [request.groups[0].member_id for _, request in cluster.asked]


async def committed(cluster: FakeCluster, member: Member) -> OffsetAndMetadata | None:
    offsets = GroupOffsets(cluster, Coordinators(cluster), "g", member)
    results = await offsets.committed([PLACE], cluster.clock.monotonic_ms() + 5000)
    return results[PLACE]


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH])
def test_a_member_that_was_put_out_asks_again_as_the_one_it_becomes(code: ErrorCode) -> None:
    """C5: it hears so from its heartbeat too, and joins again; poll has nothing to raise."""
    cluster, askers = answering(code)
    member = Member(Identity(4, "old"), Identity(1, "new"))
    assert asyncio.run(committed(cluster, member)) == OffsetAndMetadata(42)
    assert askers() == ["old", "new"]


def test_a_final_error_is_told() -> None:
    """E3."""
    cluster, _ = answering(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaError, match="DESCRIBE on the group"):
        asyncio.run(committed(cluster, Member(Identity(1, "m"))))
