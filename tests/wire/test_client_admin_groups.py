"""The admin client at our broker: groups of both protocols, their offsets and members (C3)."""

from collections.abc import Iterator, Mapping

import pytest

from penstock.client.admin import (
    AclOperation,
    AdminError,
    GroupListing,
    GroupState,
    GroupType,
    MemberToRemove,
    NewTopic,
)
from penstock.client.admin.admin import Admin
from penstock.client.consumer.record import OffsetAndMetadata
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.support.broker.in_process import RunningBroker, WireClient
from tests.support.coordinator.group_client import GROUP_SETTINGS, wait_until
from tests.support.coordinator.group_members import ClassicMember, ConsumerMember
from tests.support.coordinator.transaction_client import TxnProducer

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {**GROUP_SETTINGS, "transaction.state.log.num.partitions": "2"}


@pytest.fixture(scope="module")
def admin(broker: RunningBroker) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as first:
        first.create_topics([NewTopic("t", 2, 1), NewTopic("u", 1, 1)])
        yield first


@pytest.fixture
def group(admin: Admin, request: pytest.FixtureRequest) -> str:
    """A group of the test's own, whose coordinator is up."""
    name: str = request.node.name
    admin.list_group_offsets([name])
    return name


def code_of(error: pytest.ExceptionInfo[AdminError], key: object) -> ErrorCode:
    return error.value.errors[key].code


def test_a_classic_group(admin: Admin, client: WireClient, group: str) -> None:
    member = ClassicMember(client, group, ["t"], instance="i").joined({"t": [1, 0]})
    results = admin.describe_groups([group], include_authorized_operations=True)[group]
    assert (results.type, results.state) == (GroupType.CLASSIC, GroupState.STABLE)
    assert (results.protocol_type, results.assignor) == ("consumer", "range")
    assert results.coordinator.id == 0
    assert AclOperation.READ in (results.authorized_operations or ())
    assert not results.is_simple_consumer_group
    only = results.members[0]
    assert (only.member_id, only.group_instance_id) == (member.member_id, "i")
    assert (only.client_id, only.client_host) == ("test", "/127.0.0.1")
    assert (only.assignment, only.subscribed_topics) == ((T0, T1), ("t",))
    assert (only.member_epoch, only.target_assignment, results.group_epoch) == (None, None, None)
    assert member.leave() is ErrorCode.NONE


def test_a_group_of_the_newer_protocol(admin: Admin, client: WireClient, group: str) -> None:
    """C3, KIP-848."""
    member = ConsumerMember(client, group, "m" * 22, names=["t"]).joined()
    member.obey()
    results = admin.describe_groups([group])[group]
    assert (results.type, results.state) == (GroupType.CONSUMER, GroupState.STABLE)
    assert (results.protocol_type, results.assignor) == ("consumer", "uniform")
    assert results.group_epoch == results.target_assignment_epoch == member.epoch
    only = results.members[0]
    assert (only.member_id, only.member_epoch) == (member.member_id, member.epoch)
    assert only.assignment == only.target_assignment == (T0, T1)
    assert (only.subscribed_topics, only.is_classic) == (("t",), False)
    assert member.leave().error_code == 0


def test_groups_are_listed(admin: Admin, client: WireClient, group: str) -> None:
    classic, newer, simple = (f"{group}-{kind}" for kind in ("classic", "newer", "simple"))
    first = ClassicMember(client, classic, ["t"]).joined({"t": [0]})
    second = ConsumerMember(client, newer, "n" * 22, names=["t"]).joined()
    admin.alter_group_offsets(simple, {T0: 0})
    listed = {group_item.group_id: group_item for group_item in admin.list_groups()}
    assert listed[classic][1:] == ("consumer", GroupState.STABLE, GroupType.CLASSIC)
    assert listed[newer][1::2] == ("consumer", GroupType.CONSUMER)
    assert listed[simple][1:] == ("", GroupState.EMPTY, GroupType.CLASSIC)
    assert listed[simple].is_simple_consumer_group
    ours = {classic, newer, simple}

    def of_ours(results: list[GroupListing]) -> set[str]:
        return {item.group_id for item in results} & ours

    assert of_ours(admin.list_groups(types=[GroupType.CONSUMER])) == {newer}
    empty = admin.list_groups(types=[GroupType.CLASSIC], states=[GroupState.EMPTY])
    assert of_ours(empty) == {simple}
    assert of_ours(admin.list_groups(protocol_types=[""])) == {simple}
    assert first.leave() is ErrorCode.NONE
    assert second.leave().error_code == 0


def test_groups_that_are_not_there(admin: Admin, group: str) -> None:
    with pytest.raises(AdminError, match="check the name against list_groups") as failed:
        admin.describe_groups([group])
    assert failed.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert admin.list_group_offsets([group]) == {group: {}}
    with pytest.raises(AdminError) as removed:
        admin.delete_groups([group])
    assert removed.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_from_outside(admin: Admin, group: str) -> None:
    """C5: set, listed and deleted without a consumer."""
    admin.alter_group_offsets(group, {T0: OffsetAndMetadata(5, "note", 0), T1: 7})
    assert admin.list_group_offsets([group])[group] == {
        T0: OffsetAndMetadata(5, "note", 0),
        T1: OffsetAndMetadata(7),
    }
    u0 = TopicPartition("u", 0)
    assert admin.list_group_offsets({group: [T1, u0], "another": None}) == {
        group: {T1: OffsetAndMetadata(7), u0: None},
        "another": {},
    }
    admin.delete_group_offsets(group, [T0])
    assert list(admin.list_group_offsets([group])[group]) == [T1]
    with pytest.raises(AdminError) as failed:
        admin.alter_group_offsets(group, {T0: 1, TopicPartition("nowhere", 0): 1})
    assert failed.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert failed.value.results == {T0: None}
    admin.delete_groups([group])
    assert group not in {group_item.group_id for group_item in admin.list_groups()}


def test_a_group_with_members_is_left_alone(admin: Admin, client: WireClient, group: str) -> None:
    """The errors say to stop the members first."""
    member = ClassicMember(client, group, ["t"]).joined({"t": [0, 1]})
    with pytest.raises(AdminError, match="stop them first") as commit:
        admin.alter_group_offsets(group, {T0: 1})
    assert commit.value.code is ErrorCode.UNKNOWN_MEMBER_ID
    with pytest.raises(AdminError, match="stop them first") as deletion:
        admin.delete_groups([group])
    assert deletion.value.code is ErrorCode.NON_EMPTY_GROUP
    with pytest.raises(AdminError, match="stop them first") as offsets:
        admin.delete_group_offsets(group, [T0])
    assert offsets.value.code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert member.leave() is ErrorCode.NONE


def test_members_are_removed(admin: Admin, client: WireClient, group: str) -> None:
    member = ClassicMember(client, group, ["t"], instance="static").joined({"t": [0, 1]})
    with pytest.raises(AdminError, match="member with instance id other") as failed:
        admin.remove_members(group, [MemberToRemove("other")])
    assert code_of(failed, MemberToRemove("other")) is ErrorCode.UNKNOWN_MEMBER_ID
    admin.remove_members(group, [MemberToRemove("static")], reason="it hangs")
    assert admin.describe_groups([group])[group].members == ()
    member.member_id = ""
    member.joined({"t": [0, 1]})
    admin.remove_members(group)
    assert admin.describe_groups([group])[group].state is GroupState.EMPTY
    admin.remove_members(group)


def test_offsets_in_open_transactions(admin: Admin, client: WireClient, group: str) -> None:
    """P4: with require_stable they are waited for; without, the old ones are told."""
    admin.alter_group_offsets(group, {T0: 1})
    producer = TxnProducer.started(client, group)
    assert producer.add_offsets(group) is ErrorCode.NONE
    response = client.request(_commit(producer, group), 3)
    assert response.topics[0].partitions[0].error_code == 0
    assert admin.list_group_offsets([group])[group] == {T0: OffsetAndMetadata(1)}
    with pytest.raises(AdminError) as failed:
        admin.list_group_offsets([group], require_stable=True, timeout_ms=150)
    assert failed.value.code is ErrorCode.UNSTABLE_OFFSET_COMMIT
    producer.commit()
    wait_until(lambda: admin.list_group_offsets([group])[group] == {T0: OffsetAndMetadata(9)})


def _commit(producer: TxnProducer, group: str) -> TxnOffsetCommitRequest:
    partition = TxnOffsetCommitRequestPartition(0, 9, committed_metadata="")
    return TxnOffsetCommitRequest(
        producer.transactional_id,
        group,
        producer.producer_id,
        producer.epoch,
        topics=[TxnOffsetCommitRequestTopic("t", partitions=[partition])],
    )
