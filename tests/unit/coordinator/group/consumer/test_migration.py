"""Groups that change their protocol while they have members (C3)."""

import pytest

from penstock.coordinator.group.classic.model import ClassicGroupState
from penstock.coordinator.group.config import ConsumerGroupConfig, GroupConfig, MigrationPolicy
from penstock.coordinator.group.consumer.consumer_protocol import read_assignment
from penstock.coordinator.group.consumer.model import MemberState
from penstock.coordinator.group.events import RejoinTimer, ResyncTimer
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.messages.join_group import JoinGroupResponse
from penstock.protocol.messages.offset_commit import OffsetCommitResponse
from penstock.protocol.messages.sync_group import SyncGroupResponse
from penstock.protocol.versioned import encode_versioned
from tests.support.coordinator.consumer_groups import Consumer, consumer_host, kinds, reconcile
from tests.support.coordinator.groups import (
    REBALANCE_MS,
    SESSION_MS,
    GroupHost,
    assignment,
    commit_errors,
    commit_request,
    join_request,
    subscription,
    sync_request,
)


def migrating_host(policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL) -> GroupHost:
    config = GroupConfig(
        group_initial_rebalance_delay_ms=0,
        group_consumer_migration_policy=policy,
        consumer=ConsumerGroupConfig(assignment_interval_ms=0),
    )
    return consumer_host({"t": 4}, config)


class Classic:
    """A member that uses the classic protocol with a group of either type."""

    def __init__(self, host: GroupHost, member_id: str = "", instance: str | None = None) -> None:
        self.host = host
        self.member_id = member_id
        self.instance = instance
        self.generation = -1

    def join(self, version: int = 6) -> JoinGroupResponse:
        protocols = {"range": subscription("t")}
        request = join_request(self.member_id, instance=self.instance, protocols=protocols)
        response = self.host.request(request, JoinGroupResponse, version)
        if not response.error_code:
            self.member_id, self.generation = response.member_id, response.generation_id
        return response

    def sync(self, assignments: dict[str, bytes] | None = None) -> SyncGroupResponse:
        request = sync_request(self.member_id, self.generation, assignments, instance=self.instance)
        return self.host.request(request, SyncGroupResponse, 5)

    def beat(self) -> int:
        request = HeartbeatRequest("g", self.generation, self.member_id, self.instance)
        return self.host.request(request, HeartbeatResponse, 4).error_code

    def partitions(self) -> list[int]:
        response = self.sync()
        assert response.error_code == ErrorCode.NONE
        topics = read_assignment(response.assignment).assigned_partitions
        return [partition for topic in topics for partition in topic.partitions]


def waiting_join(host: GroupHost) -> int:
    return host.send(join_request("", protocols={"range": subscription("t")}), 3)


def classic_group(host: GroupHost) -> Classic:
    waiter = waiting_join(host)
    host.advance(1)
    joined = host.response(waiter, JoinGroupResponse)
    member = Classic(host, joined.member_id)
    member.generation = joined.generation_id
    everything = assignment(*(("t", partition) for partition in range(4)))
    member.sync({member.member_id: everything})
    assert host.classic().state is ClassicGroupState.STABLE
    return member


# --- upgrade


def test_a_classic_group_is_upgraded_online() -> None:
    """The new member waits until the old one rejoins and thereby revokes its partitions."""
    host = migrating_host()
    old = classic_group(host)
    new = Consumer(host, "new")
    new.join()
    group = host.consumer()
    assert set(group.members) == {old.member_id, "new"}
    assert new.assigned == {}
    assert old.beat() == ErrorCode.REBALANCE_IN_PROGRESS
    old.join()
    assert old.partitions() == [0, 1]
    reconcile(new)
    assert new.assigned == {"t": [2, 3]}
    assert old.beat() == ErrorCode.NONE
    host.restart()
    assert old.beat() == ErrorCode.NONE
    assert new.beat().error_code == ErrorCode.NONE


def test_waiting_joins_are_rejected_during_an_upgrade() -> None:
    host = migrating_host()
    classic_group(host)
    waiter = waiting_join(host)
    assert waiter not in host.responses
    Consumer(host, "new").join()
    response = host.response(waiter, JoinGroupResponse)
    assert response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert len(host.consumer().members) == 3


@pytest.mark.parametrize("policy", [MigrationPolicy.DISABLED, MigrationPolicy.DOWNGRADE])
def test_the_policy_forbids_the_upgrade(policy: MigrationPolicy) -> None:
    host = migrating_host(policy)
    old = classic_group(host)
    response = Consumer(host, "new").join()
    assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert old.beat() == ErrorCode.NONE


def test_incompatible_groups_cannot_be_upgraded() -> None:
    host = migrating_host()
    waiter = host.send(join_request("", protocol_type="connect"), 3)
    host.advance(1)
    assert host.response(waiter, JoinGroupResponse).error_code == ErrorCode.NONE
    response = Consumer(host, "new").join()
    assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "no consumers" in (response.error_message or "")


def test_custom_assignor_data_prevents_the_upgrade() -> None:
    host = migrating_host()
    waiter = waiting_join(host)
    host.advance(1)
    joined = host.response(waiter, JoinGroupResponse)
    member = Classic(host, joined.member_id)
    member.generation = joined.generation_id
    own = encode_versioned(ConsumerProtocolAssignment([], b"mine"), 1)
    member.sync({member.member_id: own})
    response = Consumer(host, "new").join()
    assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "assignor" in (response.error_message or "")


# --- classic members of a consumer group


def test_a_classic_member_joins_a_consumer_group() -> None:
    host = migrating_host()
    first = Consumer(host, "a")
    first.join()
    reconcile(first)
    second = Classic(host)
    required = second.join()
    assert required.error_code == ErrorCode.MEMBER_ID_REQUIRED
    second.member_id = required.member_id
    assert second.join().error_code == ErrorCode.NONE
    assert second.generation == host.consumer().group_epoch
    assert second.partitions() == []
    reconcile(first)
    assert second.beat() == ErrorCode.REBALANCE_IN_PROGRESS
    second.join()
    assert second.partitions() == [2, 3]
    commit = commit_request({("t", 2): 7}, member_id=second.member_id, generation=second.generation)
    assert commit_errors(host.request(commit, OffsetCommitResponse, 8)) == [ErrorCode.NONE]


def test_the_policy_rejects_classic_members() -> None:
    host = migrating_host(MigrationPolicy.DISABLED)
    Consumer(host, "a").join()
    member = Classic(host, "b")
    assert member.join().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_invalid_requests_of_classic_members_are_rejected() -> None:
    host = migrating_host()
    consumer = Consumer(host, "a")
    consumer.join()
    unknown = Classic(host, "a")
    unknown.generation = consumer.epoch
    assert unknown.beat() == ErrorCode.UNKNOWN_MEMBER_ID, "it speaks the other protocol"
    assert unknown.sync().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    member = Classic(host, "b")
    member.join()
    member.generation += 1
    assert member.beat() == ErrorCode.ILLEGAL_GENERATION
    assert member.sync().error_code == ErrorCode.ILLEGAL_GENERATION
    odd = join_request("c", protocol_type="connect", protocols={"range": b""})
    refused = host.request(odd, JoinGroupResponse, 6)
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_classic_member_that_does_not_sync_is_removed() -> None:
    host = migrating_host(MigrationPolicy.UPGRADE)
    consumer = Consumer(host, "a")
    consumer.join()
    member = Classic(host, "b")
    member.join()
    assert ResyncTimer("g", "b") in host.timers
    for _ in range(REBALANCE_MS // SESSION_MS * 2):
        host.advance(SESSION_MS // 2)
        member.beat()
        consumer.obey()
    assert set(host.consumer().members) == {"a"}


def test_a_classic_member_that_does_not_rejoin_is_removed() -> None:
    host = migrating_host(MigrationPolicy.UPGRADE)
    member, consumer = Classic(host, "b"), Consumer(host, "a")
    consumer.join()
    member.join()
    member.sync()
    consumer.beat(names=["t", "u"])
    assert member.beat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert RejoinTimer("g", "b") in host.timers
    for _ in range(REBALANCE_MS // SESSION_MS * 2 - 1):
        host.advance(SESSION_MS // 2)
        assert member.beat() == ErrorCode.REBALANCE_IN_PROGRESS
        consumer.obey()
    host.advance(SESSION_MS // 2)
    assert set(host.consumer().members) == {"a"}


# --- downgrade


def test_the_group_is_downgraded_when_the_last_consumer_leaves() -> None:
    host = migrating_host()
    consumer = Consumer(host, "a")
    consumer.join()
    member = Classic(host, "b")
    member.join()
    member.sync()
    since = len(host.log)
    consumer.leave()
    assert kinds(host, since) == [-8, -8, -7, -7, -6, -5, -5, -4, -3, 2]
    group = host.classic()
    assert (group.state, group.protocol_name) == (ClassicGroupState.PREPARING_REBALANCE, "range")
    assert list(group.members) == ["b"]
    assert member.beat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert member.join().error_code == ErrorCode.NONE
    assert member.generation > 3


def test_the_group_is_downgraded_when_the_last_consumer_expires() -> None:
    host = migrating_host()
    Consumer(host, "a").join()
    member = Classic(host, "b")
    member.join()
    member.sync()
    while "a" in host.shard.groups["g"].members:
        host.advance(SESSION_MS // 2)
        member.beat()
    assert list(host.classic().members) == ["b"]
    host.restart()
    assert host.classic().state is ClassicGroupState.STABLE


def test_a_static_consumer_is_replaced_by_a_classic_one() -> None:
    """A rolling downgrade does not change the assignment."""
    host = migrating_host()
    consumer = Consumer(host, "a", instance="i")
    consumer.join()
    member = Classic(host, "b")
    member.join()
    reconcile(consumer)
    member.join()
    member.sync()
    replacement = Classic(host, instance="i")
    response = replacement.join()
    assert response.error_code == ErrorCode.NONE
    group = host.classic()
    assert group.state is ClassicGroupState.STABLE
    assert set(group.members) == {"b", replacement.member_id}
    assert replacement.partitions() == [0, 1]
    assert member.beat() == ErrorCode.NONE
    host.restart()
    assert set(host.classic().members) == {"b", replacement.member_id}


@pytest.mark.parametrize("policy", [MigrationPolicy.UPGRADE])
def test_the_policy_forbids_the_downgrade(policy: MigrationPolicy) -> None:
    host = migrating_host(policy)
    consumer = Consumer(host, "a")
    consumer.join()
    Classic(host, "b").join()
    consumer.leave()
    assert set(host.consumer().members) == {"b"}


def test_a_cooperative_member_revokes_before_it_rejoins() -> None:
    """It joins with its owned partitions, and rejoins after it has revoked some."""
    host = migrating_host()
    old = classic_group(host)
    Consumer(host, "new").join()

    def join(*owned: int) -> None:
        topic = ConsumerProtocolSubscriptionTopicPartition("t", list(owned))
        data = encode_versioned(ConsumerProtocolSubscription(["t"], None, [topic]), 1)
        request = join_request(old.member_id, protocols={"range": data})
        old.generation = host.request(request, JoinGroupResponse, 6).generation_id

    join(0, 1, 2, 3)
    assert host.consumer().members[old.member_id].state is MemberState.UNREVOKED_PARTITIONS
    assert old.partitions() == [0, 1]
    assert old.beat() == ErrorCode.REBALANCE_IN_PROGRESS
    join(0, 1)
    assert old.partitions() == [0, 1]
    assert old.beat() == ErrorCode.NONE
