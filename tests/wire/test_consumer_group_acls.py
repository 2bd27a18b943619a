"""Permissions for members and administrators of consumer groups (X3, E3)."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from penstock.core.errors import ErrorCode
from penstock.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from penstock.protocol.messages.delete_groups import DeleteGroupsRequest
from penstock.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from penstock.security.acl import AclOperation, AclPermission, ResourceType
from tests.support.broker.faults import watching
from tests.support.broker.in_process import WireClient, running_broker
from tests.support.broker.logins import AUTHORIZER, SASL_SETTINGS, logged_in
from tests.support.coordinator.group_client import (
    GROUP_SETTINGS,
    commit,
    committed,
    described,
    fetched_group,
    find_group,
    listed,
)
from tests.support.coordinator.group_members import ConsumerMember
from tests.support.protocol.admin import allow
from tests.support.protocol.requests import make_topic

SETTINGS = {
    **GROUP_SETTINGS,
    **SASL_SETTINGS,
    "authorizer.class.name": AUTHORIZER,
    "super.users": "User:admin",
}
READ, DESCRIBE, DELETE = AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DELETE
GROUP, TOPIC = ResourceType.GROUP, ResourceType.TOPIC
NO_GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
NO_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class Users:
    """Connections of the administrator and of two users without permissions."""

    def __init__(self, admin: WireClient, ann: WireClient, bob: WireClient) -> None:
        self.admin = admin
        self.ann = ann
        self.bob = bob

    def grant(
        self, operation: AclOperation, kind: ResourceType, name: str, user: str = "ann"
    ) -> None:
        allow(self.admin, f"User:{user}", operation, kind, name)


@pytest.fixture
def users(tmp_path: Path) -> Iterator[Users]:
    with ExitStack() as stack:
        stack.enter_context(watching())
        broker = stack.enter_context(running_broker(tmp_path, SETTINGS))
        clients = [stack.enter_context(logged_in(broker, name)) for name in ("admin", "ann", "bob")]
        connected_users = Users(*clients)
        for topic in ("t", "u"):
            make_topic(connected_users.admin, topic)
        find_group(connected_users.admin, "g")
        yield connected_users


def test_members_need_read_on_the_group_and_describe_on_topics(users: Users) -> None:
    member = ConsumerMember(users.ann, "g", "m", names=["t", "u"])
    response = member.join()
    assert response.error_code == NO_GROUP
    assert "User:ann" in response.error_message
    assert "'g'" in response.error_message
    users.grant(READ, GROUP, "g")
    users.grant(DESCRIBE, TOPIC, "t")
    response = member.join()
    assert response.error_code == NO_TOPIC
    assert "'u'" in response.error_message
    assert listed(users.admin) == {}, "no group was created"
    users.grant(READ, TOPIC, "u")  # READ implies DESCRIBE
    assert member.join().error_code == 0
    # A heartbeat without topics needs no permission on topics.
    allow(users.admin, "User:ann", DESCRIBE, TOPIC, "t", permission=AclPermission.DENY)
    assert member.beat().error_code == 0
    assert member.beat(names=["t"]).error_code == NO_TOPIC
    allow(users.admin, "User:ann", READ, GROUP, "g", permission=AclPermission.DENY)
    assert member.beat().error_code == NO_GROUP
    assert member.leave().error_code == NO_GROUP


def test_an_unknown_topic_has_the_same_error(users: Users) -> None:
    """Otherwise the error would show which topics exist."""
    users.grant(READ, GROUP, "g")
    for topic in ("t", "nowhere"):
        response = ConsumerMember(users.ann, "g", "m", names=[topic]).join()
        assert response.error_code == NO_TOPIC


def test_describing_a_group_needs_describe_on_its_topics(users: Users) -> None:
    ConsumerMember(users.admin, "g", "m", names=["t", "u"]).joined()
    response = described(users.ann, "g")
    assert (response.error_code, response.members) == (NO_GROUP, [])
    assert "User:ann" in response.error_message
    users.grant(DESCRIBE, GROUP, "g")
    users.grant(DESCRIBE, TOPIC, "t")
    response = described(users.ann, "g")
    assert (response.error_code, response.group_id, response.members) == (NO_TOPIC, "g", [])
    assert (response.group_epoch, response.assignor_name) == (0, "")
    assert "DESCRIBE" in response.error_message
    users.grant(DESCRIBE, TOPIC, "u")
    assert [member.member_id for member in described(users.ann, "g").members] == ["m"]


def test_permissions_are_checked_per_group(users: Users) -> None:
    for name in ("g", "h"):
        find_group(users.admin, name)
        ConsumerMember(users.admin, name, "m", names=["t"]).joined()
    users.grant(READ, GROUP, "h")  # READ implies DESCRIBE
    users.grant(DESCRIBE, TOPIC, "t")
    request = ConsumerGroupDescribeRequest(["g", "h"], include_authorized_operations=True)
    groups = {group.group_id: group for group in users.ann.request(request, 1).groups}
    assert groups["g"].error_code == NO_GROUP
    assert groups["g"].authorized_operations == -(1 << 31)
    assert groups["h"].error_code == 0
    assert groups["h"].authorized_operations == 1 << READ | 1 << DESCRIBE
    assert set(listed(users.ann)) == {"h"}
    assert set(listed(users.bob)) == set()


def test_commits_need_read_on_the_topics(users: Users) -> None:
    """DESCRIBE on a topic is sufficient to join, but not to commit."""
    users.grant(READ, GROUP, "g")
    users.grant(DESCRIBE, TOPIC, "t")
    users.grant(READ, TOPIC, "u")
    member = ConsumerMember(users.ann, "g", "m", names=["t", "u"]).joined()
    offsets = {("t", 0): 1, ("u", 0): 2}
    codes = commit(users.ann, "g", offsets, member_id="m", epoch=member.epoch)
    assert sorted(codes) == [ErrorCode.NONE, NO_TOPIC]
    result = fetched_group(users.ann, "g", {"t": [0], "u": [0]}, member_id="m", epoch=member.epoch)
    assert [topic.partitions[0].committed_offset for topic in result.topics] == [-1, 2]
    assert fetched_group(users.bob, "g").error_code == NO_GROUP


def test_deleting_groups_and_offsets_needs_permission(users: Users) -> None:
    ConsumerMember(users.admin, "g", "m", names=["t"]).joined().leave()
    assert commit(users.admin, "g", {("t", 0): 1, ("u", 0): 2}) == [0, 0]
    topics = [OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(0)]) for name in "tu"]
    offsets = OffsetDeleteRequest("g", topics)
    users.grant(READ, GROUP, "g")
    users.grant(READ, TOPIC, "u")
    assert users.ann.request(offsets, 0).error_code == NO_GROUP
    assert users.ann.request(DeleteGroupsRequest(["g"]), 2).results[0].error_code == NO_GROUP
    users.grant(DELETE, GROUP, "g")
    response = users.ann.request(offsets, 0)
    codes = {topic.name: topic.partitions[0].error_code for topic in response.topics}
    assert (response.error_code, codes) == (0, {"t": NO_TOPIC, "u": 0})
    assert committed(users.admin, "g") == {("t", 0): 1}
    results = users.ann.request(DeleteGroupsRequest(["g", "h"]), 2).results
    assert {result.group_id: result.error_code for result in results} == {"g": 0, "h": NO_GROUP}
    assert listed(users.admin) == {}
