"""What the authorization matrix asks for: topics, groups, a transactional id and ACLs."""

import time
from collections.abc import Callable
from typing import Final, NamedTuple
from uuid import UUID

from penstock.core.errors import ErrorCode
from penstock.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.protocol.messages.create_acls import CreateAclsRequest
from penstock.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.support.broker.in_process import WireClient
from tests.support.protocol.requests import produce_values
from tests.support.security.principals import PRINCIPALS

TOPIC: Final = "allowed-topic"
MISSING: Final = "allowed-missing"
DOOMED: Final = "allowed-doomed"
"""The topic that DeleteTopics deletes; it is created again then."""
OTHER: Final = "other-topic"
"""Only the super user has rights on it."""
TOPICS: Final = (TOPIC, DOOMED, OTHER)

GROUP: Final = "allowed-group"
DOOMED_GROUP: Final = "allowed-doomed-group"
OTHER_GROUP: Final = "other-group"
MODERN_GROUP: Final = "allowed-consumers"
"""A group of the consumer protocol (KIP-848) with one member."""
TXN: Final = "allowed-transactions"
OTHER_TXN: Final = "other-transactions"
MEMBER: Final = "ghost"
"""A member that no group has."""
_TIMEOUT_S: Final = 60.0


class World(NamedTuple):
    """The ids of the topics by name."""

    topic_ids: dict[str, UUID]

    @property
    def topics(self) -> dict[UUID, str]:
        return {topic_id: name for name, topic_id in self.topic_ids.items()}


def create_world(admin: WireClient) -> World:
    """Creates everything; `admin` is a connection of the super user."""
    for topic in TOPICS:
        create_topic(admin, topic)
    _wait(lambda: len(_topic_ids(admin)) == len(TOPICS), "the topics")
    produce_values(admin, TOPIC, b"value")
    for group in (GROUP, DOOMED_GROUP, OTHER_GROUP):
        _wait(lambda group=group: commit_offset(admin, group), f"the offset of {group}")
    for name in (TXN, OTHER_TXN):
        request = InitProducerIdRequest(name, 60_000)
        _wait(
            lambda request=request: admin.request(request, 4).error_code == 0, "a transactional id"
        )
    join = ConsumerGroupHeartbeatRequest(
        MODERN_GROUP,
        "matrix-member",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[TOPIC, OTHER],
        topic_partitions=[],
    )
    response = admin.request(join, 1)
    assert response.error_code == 0, response.error_message
    creations = [acl for principal in PRINCIPALS for acl in principal.acls()]
    results = admin.request(CreateAclsRequest(creations), 3).results
    assert not any(result.error_code for result in results), results
    return World(_topic_ids(admin))


def create_topic(admin: WireClient, name: str) -> UUID | None:
    """Creates a topic with one partition; returns its id, or None if the topic exists already."""
    request = CreateTopicsRequest([CreatableTopic(name, 1, 1)], timeout_ms=10_000)
    (result,) = admin.request(request, 7).topics
    assert result.error_code in (0, ErrorCode.TOPIC_ALREADY_EXISTS), result.error_message
    topic_id: UUID = result.topic_id
    return topic_id if result.error_code == 0 else None


def commit_offset(admin: WireClient, group: str) -> bool:
    """Commits an offset of a group that has no members; returns whether that succeeded."""
    topics = [
        OffsetCommitRequestTopic(name, partitions=[OffsetCommitRequestPartition(0, 0)])
        for name in (TOPIC, OTHER)
    ]
    response = admin.request(OffsetCommitRequest(group, topics=topics), 8)
    return {part.error_code for topic in response.topics for part in topic.partitions} == {0}


def restore_topic(admin: WireClient, world: World) -> None:
    """Creates the topic `DOOMED` again if it was deleted, and waits until the broker knows it."""
    if (topic_id := create_topic(admin, DOOMED)) is not None:
        # A broker may serve the topic of before for a moment.
        _wait(lambda: _topic_ids(admin).get(DOOMED) == topic_id, "the topic again")
        world.topic_ids[DOOMED] = topic_id


def restore_group(admin: WireClient, world: World) -> None:
    """Commits the offsets of `DOOMED_GROUP` again."""
    _wait(lambda: commit_offset(admin, DOOMED_GROUP), "the group again")


def _topic_ids(admin: WireClient) -> dict[str, UUID]:
    names = [MetadataRequestTopic(name=name) for name in TOPICS]
    response = admin.request(MetadataRequest(names, allow_auto_topic_creation=False), 12)
    return {
        topic.name: topic.topic_id
        for topic in response.topics
        if not topic.error_code and all(part.leader_id >= 0 for part in topic.partitions)
    }


def _wait(ready: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while not ready():
        assert time.monotonic() < deadline, f"timed out: {what}"
        time.sleep(0.02)
