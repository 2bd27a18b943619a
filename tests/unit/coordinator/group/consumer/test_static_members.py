"""Static members of consumer groups: they leave for a while, and come back under new ids (C3)."""

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
    settle,
)
from tests.support.coordinator.groups import GroupHost


def pair(host: GroupHost) -> tuple[Consumer, Consumer]:
    first = Consumer(host, "a", instance="one")
    second = Consumer(host, "b", instance="two")
    first.join()
    second.join()
    settle(first, second)
    return first, second


def test_it_comes_back_to_what_it_had() -> None:
    """Nobody else notices, and nothing is assigned anew."""
    host = consumer_host({"t": 4})
    first, second = pair(host)
    epoch, had = second.epoch, second.assigned
    left = second.leave(-2)
    assert (left.error_code, left.member_epoch) == (ErrorCode.NONE, -2)
    first.beat()
    assert first.epoch == epoch
    back = Consumer(host, "b2", instance="two")
    since = len(host.log)
    back.join()
    assert (back.epoch, back.assigned) == (epoch, had)
    assert kinds(host, since) == [-8, -7, -5, 5, 7, 8, 8]
    first.beat()
    assert first.epoch == epoch
    assert set(host.consumer().members) == {"a", "b2"}
    host.restart()
    assert set(host.consumer().members) == {"a", "b2"}


def test_an_instance_that_has_not_left_keeps_its_place() -> None:
    host = consumer_host()
    pair(host)
    late = Consumer(host, "b2", instance="two")
    response = late.join()
    assert response.error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert "b" in (response.error_message or "")


def test_it_is_fenced_when_it_does_not_come_back() -> None:
    host = consumer_host()
    first, second = pair(host)
    host.advance(SESSION_MS // 2)
    first.beat()
    second.leave(-2)
    host.advance(SESSION_MS // 2)
    assert set(host.consumer().members) == {"a"}


def test_who_uses_the_old_id_is_fenced() -> None:
    host = consumer_host()
    _, second = pair(host)
    second.leave(-2)
    Consumer(host, "b2", instance="two").join()
    assert second.beat().error_code == ErrorCode.FENCED_INSTANCE_ID
    assert second.leave(-1).error_code == ErrorCode.FENCED_INSTANCE_ID


def test_instances_that_are_not_known() -> None:
    host = consumer_host()
    pair(host)
    stranger = Consumer(host, "c", instance="three")
    stranger.epoch = 4
    assert stranger.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.leave(-2).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_instance_that_leaves_for_good() -> None:
    host = consumer_host({"t": 4})
    first, second = pair(host)
    assert second.leave(-1).error_code == ErrorCode.NONE
    assert set(host.consumer().static_members) == {"one"}
    settle(first)
    assert first.assigned == {"t": [0, 1, 2, 3]}


def test_it_comes_back_with_another_subscription() -> None:
    host = consumer_host({"t": 2, "u": 2})
    first, second = pair(host)
    epoch = first.epoch
    second.leave(-2)
    back = Consumer(host, "b2", instance="two", names=["u"])
    back.join()
    assert back.epoch == epoch + 1
    assert back.assigned == {"u": [0, 1]}
    settle(first, back)
    assert first.assigned == {"t": [0, 1]}


def test_it_leaves_while_it_should_let_go() -> None:
    """What was to be let go is free at once."""
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
    back = Consumer(host, "a2", instance="one")
    back.join()
    assert back.assigned == {"t": [0, 1]}


def test_an_administrator_removes_members_with_leave_group() -> None:
    """Kafka's tools do it by instance id alone; members of the new protocol too."""
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
