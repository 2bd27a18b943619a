"""Static members of consumer groups: they leave temporarily and rejoin with new member ids (C3)."""

from penstock.coordinator.group.consumer.model import MemberState
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from tests.support.coordinator.consumer_groups import (
    SESSION_MS,
    Consumer,
    consumer_host,
    kinds,
    reconcile,
)
from tests.support.coordinator.groups import GroupHost


def pair(host: GroupHost) -> tuple[Consumer, Consumer]:
    first = Consumer(host, "a", instance="one")
    second = Consumer(host, "b", instance="two")
    first.join()
    second.join()
    reconcile(first, second)
    return first, second


def test_a_rejoining_instance_gets_its_old_assignment() -> None:
    """Other members keep their assignments and epochs."""
    host = consumer_host({"t": 4})
    first, second = pair(host)
    epoch, assignment = second.epoch, second.assigned
    response = second.leave(-2)
    assert (response.error_code, response.member_epoch) == (ErrorCode.NONE, -2)
    first.beat()
    assert first.epoch == epoch
    rejoined = Consumer(host, "b2", instance="two")
    since = len(host.log)
    rejoined.join()
    assert (rejoined.epoch, rejoined.assigned) == (epoch, assignment)
    assert kinds(host, since) == [-8, -7, -5, 5, 7, 8, 8]
    first.beat()
    assert first.epoch == epoch
    assert set(host.consumer().members) == {"a", "b2"}
    host.restart()
    assert set(host.consumer().members) == {"a", "b2"}


def test_an_instance_that_has_not_left_cannot_be_replaced() -> None:
    host = consumer_host()
    pair(host)
    late = Consumer(host, "b2", instance="two")
    response = late.join()
    assert response.error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert "b" in (response.error_message or "")


def test_an_instance_that_does_not_rejoin_is_fenced() -> None:
    host = consumer_host()
    first, second = pair(host)
    host.advance(SESSION_MS // 2)
    first.beat()
    second.leave(-2)
    host.advance(SESSION_MS // 2)
    assert set(host.consumer().members) == {"a"}


def test_the_old_member_id_is_fenced() -> None:
    host = consumer_host()
    _, second = pair(host)
    second.leave(-2)
    Consumer(host, "b2", instance="two").join()
    assert second.beat().error_code == ErrorCode.FENCED_INSTANCE_ID
    assert second.leave(-1).error_code == ErrorCode.FENCED_INSTANCE_ID


def test_unknown_instances_are_rejected() -> None:
    host = consumer_host()
    pair(host)
    stranger = Consumer(host, "c", instance="three")
    stranger.epoch = 4
    assert stranger.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.leave(-2).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_instance_leaves_permanently() -> None:
    host = consumer_host({"t": 4})
    first, second = pair(host)
    assert second.leave(-1).error_code == ErrorCode.NONE
    assert set(host.consumer().static_members) == {"one"}
    reconcile(first)
    assert first.assigned == {"t": [0, 1, 2, 3]}


def test_an_instance_rejoins_with_another_subscription() -> None:
    host = consumer_host({"t": 2, "u": 2})
    first, second = pair(host)
    epoch = first.epoch
    second.leave(-2)
    rejoined = Consumer(host, "b2", instance="two", names=["u"])
    rejoined.join()
    assert rejoined.epoch == epoch + 1
    assert rejoined.assigned == {"u": [0, 1]}
    reconcile(first, rejoined)
    assert first.assigned == {"t": [0, 1]}


def test_an_instance_leaves_during_a_revocation() -> None:
    """The partitions to revoke are released at once."""
    host = consumer_host({"t": 4})
    first = Consumer(host, "a", instance="one")
    first.join()
    second = Consumer(host, "b")
    second.join()
    first.beat()
    assert host.consumer().members["a"].state is MemberState.UNREVOKED_PARTITIONS
    first.leave(-2)
    second.beat()
    assert second.assigned == {"t": [2, 3]}
    rejoined = Consumer(host, "a2", instance="one")
    rejoined.join()
    assert rejoined.assigned == {"t": [0, 1]}


def test_an_administrator_removes_members_with_leave_group() -> None:
    """Kafka's tools remove members of either protocol by instance id alone."""
    host = consumer_host()
    pair(host)
    request = LeaveGroupRequest(
        group_id="g",
        members=[
            MemberIdentity("", "two"),
            MemberIdentity("", "nobody"),
            MemberIdentity("x", "one"),
        ],
    )
    response = host.request(request, LeaveGroupResponse, 5)
    assert [member.error_code for member in response.members] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
    ]
    assert set(host.consumer().members) == {"a"}
