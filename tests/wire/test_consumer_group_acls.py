"""Who may be a member of a consumer group, and who may see one (X3, E3)."""

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


class People:
    """The administrator, and two who may do nothing yet."""

    def __init__(self, admin: WireClient, ann: WireClient, bob: WireClient) -> None:
        self.admin = admin
        self.ann = ann
        self.bob = bob

    def may(self, operation: AclOperation, kind: ResourceType, name: str, who: str = "ann") -> None:
        allow(self.admin, f"User:{who}", operation, kind, name)


@pytest.fixture
def people(tmp_path: Path) -> Iterator[People]:
    with ExitStack() as stack:
        stack.enter_context(watching())
        broker = stack.enter_context(running_broker(tmp_path, SETTINGS))
        clients = [stack.enter_context(logged_in(broker, name)) for name in ("admin", "ann", "bob")]
        everybody = People(*clients)
        for topic in ("t", "u"):
            make_topic(everybody.admin, topic)
        find_group(everybody.admin, "g")
        yield everybody


def test_members_need_to_read_the_group_and_to_see_its_topics(people: People) -> None:
    member = ConsumerMember(people.ann, "g", "m", names=["t", "u"])
    refused = member.join()
    assert refused.error_code == NO_GROUP
    assert "User:ann" in refused.error_message
    assert "'g'" in refused.error_message
    people.may(READ, GROUP, "g")
    people.may(DESCRIBE, TOPIC, "t")
    refused = member.join()
    assert refused.error_code == NO_TOPIC
    assert "'u'" in refused.error_message
    assert listed(people.admin) == {}, "nothing has come of it"
    people.may(READ, TOPIC, "u")  # who may read may see
    assert member.join().error_code == 0
    # What was asked before is not asked again: a heartbeat that names no topics needs none.
    allow(people.admin, "User:ann", DESCRIBE, TOPIC, "t", permission=AclPermission.DENY)
    assert member.beat().error_code == 0
    assert member.beat(names=["t"]).error_code == NO_TOPIC
    allow(people.admin, "User:ann", READ, GROUP, "g", permission=AclPermission.DENY)
    assert member.beat().error_code == NO_GROUP
    assert member.leave().error_code == NO_GROUP


def test_a_topic_that_is_not_there_is_refused_alike(people: People) -> None:
    """Otherwise the answer would tell which topics there are."""
    people.may(READ, GROUP, "g")
    for topic in ("t", "nowhere"):
        refused = ConsumerMember(people.ann, "g", "m", names=[topic]).join()
        assert refused.error_code == NO_TOPIC


def test_who_sees_a_group_sees_its_topics_or_nothing(people: People) -> None:
    ConsumerMember(people.admin, "g", "m", names=["t", "u"]).joined()
    refused = described(people.ann, "g")
    assert (refused.error_code, refused.members) == (NO_GROUP, [])
    assert "User:ann" in refused.error_message
    people.may(DESCRIBE, GROUP, "g")
    people.may(DESCRIBE, TOPIC, "t")
    refused = described(people.ann, "g")
    assert (refused.error_code, refused.group_id, refused.members) == (NO_TOPIC, "g", [])
    assert (refused.group_epoch, refused.assignor_name) == (0, "")
    assert "DESCRIBE" in refused.error_message
    people.may(DESCRIBE, TOPIC, "u")
    assert [member.member_id for member in described(people.ann, "g").members] == ["m"]


def test_one_group_of_several_is_refused(people: People) -> None:
    for name in ("g", "h"):
        find_group(people.admin, name)
        ConsumerMember(people.admin, name, "m", names=["t"]).joined()
    people.may(READ, GROUP, "h")  # who may read may see
    people.may(DESCRIBE, TOPIC, "t")
    request = ConsumerGroupDescribeRequest(["g", "h"], include_authorized_operations=True)
    groups = {group.group_id: group for group in people.ann.request(request, 1).groups}
    assert groups["g"].error_code == NO_GROUP
    assert groups["g"].authorized_operations == -(1 << 31)
    assert groups["h"].error_code == 0
    assert groups["h"].authorized_operations == 1 << READ | 1 << DESCRIBE
    assert set(listed(people.ann)) == {"h"}
    assert set(listed(people.bob)) == set()


def test_members_need_to_read_what_they_commit(people: People) -> None:
    """Only to see a topic is enough to join, not to commit."""
    people.may(READ, GROUP, "g")
    people.may(DESCRIBE, TOPIC, "t")
    people.may(READ, TOPIC, "u")
    member = ConsumerMember(people.ann, "g", "m", names=["t", "u"]).joined()
    offsets = {("t", 0): 1, ("u", 0): 2}
    done = commit(people.ann, "g", offsets, member_id="m", epoch=member.epoch)
    assert sorted(done) == [ErrorCode.NONE, NO_TOPIC]
    result = fetched_group(people.ann, "g", {"t": [0], "u": [0]}, member_id="m", epoch=member.epoch)
    assert [topic.partitions[0].committed_offset for topic in result.topics] == [-1, 2]
    assert fetched_group(people.bob, "g").error_code == NO_GROUP


def test_groups_and_offsets_are_deleted_by_who_may(people: People) -> None:
    ConsumerMember(people.admin, "g", "m", names=["t"]).joined().leave()
    assert commit(people.admin, "g", {("t", 0): 1, ("u", 0): 2}) == [0, 0]
    topics = [OffsetDeleteRequestTopic(item, [OffsetDeleteRequestPartition(0)]) for item in "tu"]
    offsets = OffsetDeleteRequest("g", topics)
    people.may(READ, GROUP, "g")
    people.may(READ, TOPIC, "u")
    assert people.ann.request(offsets, 0).error_code == NO_GROUP
    assert people.ann.request(DeleteGroupsRequest(["g"]), 2).results[0].error_code == NO_GROUP
    people.may(DELETE, GROUP, "g")
    response = people.ann.request(offsets, 0)
    codes = {topic.name: topic.partitions[0].error_code for topic in response.topics}
    assert (response.error_code, codes) == (0, {"t": NO_TOPIC, "u": 0})
    assert committed(people.admin, "g") == {("t", 0): 1}
    results = people.ann.request(DeleteGroupsRequest(["g", "h"]), 2).results
    assert {result.group_id: result.error_code for result in results} == {"g": 0, "h": NO_GROUP}
    assert listed(people.admin) == {}
