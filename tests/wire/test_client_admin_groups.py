"""The admin client with our broker: groups of both protocols, offsets and members (C3)."""

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
    """A group id for the test, whose coordinator is available."""
    name: str = request.node.name
    admin.list_group_offsets([name])
    return name


def code_of(error: pytest.ExceptionInfo[AdminError], key: object) -> ErrorCode:
    return error.value.errors[key].code


def test_a_classic_group_is_described(admin: Admin, client: WireClient, group: str) -> None:
    member = ClassicMember(client, group, ["t"], instance="i").joined({"t": [1, 0]})
    results = admin.describe_groups([group], include_authorized_operations=True)[group]
    assert (results.type, results.state) == (GroupType.CLASSIC, GroupState.STABLE)
    assert (results.protocol_type, results.assignor) == ("consumer", "range")
    assert results.coordinator.id == 0
    assert AclOperation.READ in (results.authorized_operations or ())
    assert not results.is_simple_consumer_group
    described_member = results.members[0]
    assert (described_member.member_id, described_member.group_instance_id) == (
        member.member_id,
        "i",
    )
    assert (described_member.client_id, described_member.client_host) == ("test", "/127.0.0.1")
    assert (described_member.assignment, described_member.subscribed_topics) == ((T0, T1), ("t",))
    assert (
        described_member.member_epoch,
        described_member.target_assignment,
        results.group_epoch,
    ) == (None, None, None)
    assert member.leave() is ErrorCode.NONE


def test_a_consumer_group_is_described(admin: Admin, client: WireClient, group: str) -> None:
    """C3, KIP-848."""
    member = ConsumerMember(client, group, "m" * 22, names=["t"]).joined()
    member.obey()
    results = admin.describe_groups([group])[group]
    assert (results.type, results.state) == (GroupType.CONSUMER, GroupState.STABLE)
    assert (results.protocol_type, results.assignor) == ("consumer", "uniform")
    assert results.group_epoch == results.target_assignment_epoch == member.epoch
    described_member = results.members[0]
    assert (described_member.member_id, described_member.member_epoch) == (
        member.member_id,
        member.epoch,
    )
    assert described_member.assignment == described_member.target_assignment == (T0, T1)
    assert (described_member.subscribed_topics, described_member.is_classic) == (("t",), False)
    assert member.leave().error_code == 0


def test_groups_are_listed(admin: Admin, client: WireClient, group: str) -> None:
    classic, consumer_group, simple = (f"{group}-{kind}" for kind in ("classic", "newer", "simple"))
    first = ClassicMember(client, classic, ["t"]).joined({"t": [0]})
    second = ConsumerMember(client, consumer_group, "n" * 22, names=["t"]).joined()
    admin.alter_group_offsets(simple, {T0: 0})
    listed = {listing.group_id: listing for listing in admin.list_groups()}
    assert listed[classic][1:] == ("consumer", GroupState.STABLE, GroupType.CLASSIC)
    assert listed[consumer_group][1::2] == ("consumer", GroupType.CONSUMER)
    assert listed[simple][1:] == ("", GroupState.EMPTY, GroupType.CLASSIC)
    assert listed[simple].is_simple_consumer_group
    test_groups = {classic, consumer_group, simple}

    def ids_of_test(results: list[GroupListing]) -> set[str]:
        return {group.group_id for group in results} & test_groups

    assert ids_of_test(admin.list_groups(types=[GroupType.CONSUMER])) == {consumer_group}
    empty = admin.list_groups(types=[GroupType.CLASSIC], states=[GroupState.EMPTY])
    assert ids_of_test(empty) == {simple}
    assert ids_of_test(admin.list_groups(protocol_types=[""])) == {simple}
    assert first.leave() is ErrorCode.NONE
    assert second.leave().error_code == 0


def test_unknown_groups_raise_errors(admin: Admin, group: str) -> None:
    with pytest.raises(AdminError, match="check the name against list_groups") as failed:
        admin.describe_groups([group])
    assert failed.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert admin.list_group_offsets([group]) == {group: {}}
    with pytest.raises(AdminError) as delete_error:
        admin.delete_groups([group])
    assert delete_error.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_are_set_without_a_consumer(admin: Admin, group: str) -> None:
    """C5: they are set, listed and deleted without a consumer."""
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
    assert group not in {listing.group_id for listing in admin.list_groups()}


def test_a_group_with_members_is_not_changed(admin: Admin, client: WireClient, group: str) -> None:
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


def test_offsets_of_open_transactions(admin: Admin, client: WireClient, group: str) -> None:
    """P4: require_stable waits for the transaction; otherwise the old offset is returned."""
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
