"""OffsetCommit, OffsetFetch, OffsetDelete and expiry (C2, C3)."""

from uuid import UUID

import pytest

from penstock.coordinator.group.classic.records import ClassicGroupRecord
from penstock.coordinator.group.config import GroupConfig
from penstock.coordinator.group.events import PartitionsDeleted
from penstock.coordinator.group.offsets.records import OffsetRecord
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.messages.join_group import JoinGroupResponse
from penstock.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from penstock.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from penstock.protocol.messages.offset_fetch import OffsetFetchResponse
from tests.support.coordinator.groups import (
    SESSION_MS,
    GroupHost,
    commit_errors,
    commit_request,
    committed,
    fetch_request,
    id_of,
    join_request,
    stable_group,
    sync_request,
)

MINUTE = 60_000
CHECK_MS = 600_000
RETENTION_MS = 10_080 * MINUTE


@pytest.fixture
def host() -> GroupHost:
    return GroupHost()


def commit(host: GroupHost, request: OffsetCommitRequest, version: int = 9) -> list[int]:
    return commit_errors(host.request(request, OffsetCommitResponse, version))


def delete(host: GroupHost, partitions: list[tuple[str, int]]) -> OffsetDeleteResponse:
    topics = [OffsetDeleteRequestTopic(t, [OffsetDeleteRequestPartition(p)]) for t, p in partitions]
    return host.request(OffsetDeleteRequest("g", topics), OffsetDeleteResponse)


def delete_errors(response: OffsetDeleteResponse) -> list[int]:
    return [p.error_code for topic in response.topics for p in topic.partitions]


# --- commit


@pytest.mark.parametrize("version", range(10))
def test_a_consumer_without_a_group_commits(host: GroupHost, version: int) -> None:
    """C3: a simple group without members stores only offsets."""
    assert commit(host, commit_request({("t", 0): 7, ("u", 1): 8}), version) == [0, 0]
    assert committed(host) == {("t", 0): 7, ("u", 1): 8}
    host.restart()
    assert committed(host) == {("t", 0): 7, ("u", 1): 8}


def test_offsets_are_stored_per_group(host: GroupHost) -> None:
    commit(host, commit_request({("t", 0): 1}, group="a"))
    commit(host, commit_request({("t", 0): 2}, group="b"))
    assert committed(host, group="a") == {("t", 0): 1}
    assert committed(host, group="b") == {("t", 0): 2}


@pytest.mark.parametrize(
    ("version", "error"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_a_member_of_an_unknown_group_is_refused(
    host: GroupHost, version: int, error: ErrorCode
) -> None:
    request = commit_request({("t", 0): 1}, member_id="m", generation=1)
    assert commit(host, request, version) == [error]


def test_commit_checks_errors_in_kafkas_order(host: GroupHost) -> None:
    (member,) = stable_group(host, 1)

    def error(member_id: str, generation: int, instance: str | None = None) -> int:
        offsets = {("t", 0): 1}
        request = commit_request(
            offsets, member_id=member_id, generation=generation, instance=instance
        )
        (result,) = commit(host, request)
        return result

    assert error("", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert error("x", 9) == ErrorCode.UNKNOWN_MEMBER_ID
    assert error(member, 9, "i") == ErrorCode.UNKNOWN_MEMBER_ID
    assert error(member, 9) == ErrorCode.ILLEGAL_GENERATION
    assert error(member, -1) == ErrorCode.ILLEGAL_GENERATION
    assert error(member, 1) == 0


def test_a_member_may_commit_during_a_rebalance(host: GroupHost) -> None:
    (member,) = stable_group(host, 1)
    host.send(join_request(), 3)
    request = commit_request({("t", 0): 1}, member_id=member, generation=1)
    assert commit(host, request) == [0]


def test_commits_before_the_assignment_are_rejected(host: GroupHost) -> None:
    waiter = host.send(join_request(), 3)
    host.advance(3_000)
    member = host.response(waiter, JoinGroupResponse).member_id
    request = commit_request({("t", 0): 1}, member_id=member, generation=1)
    assert commit(host, request) == [ErrorCode.REBALANCE_IN_PROGRESS]


def test_an_emptied_group_accepts_commits_without_a_generation(host: GroupHost) -> None:
    stable_group(host, 1)
    host.advance(SESSION_MS)
    assert commit(host, commit_request({("t", 0): 1})) == [0]
    request = commit_request({("t", 0): 1}, member_id="m", generation=2)
    assert commit(host, request) == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_commit_keeps_the_session_alive(host: GroupHost) -> None:
    (member,) = stable_group(host, 1)
    request = commit_request({("t", 0): 1}, member_id=member, generation=1)
    for _ in range(3):
        host.advance(SESSION_MS - 1)
        assert commit(host, request) == [0]
    assert host.request(HeartbeatRequest("g", 1, member), HeartbeatResponse).error_code == 0


def test_the_metadata_size_is_limited(host: GroupHost) -> None:
    assert commit(host, commit_request({("t", 0): 1}, metadata="x" * 4096)) == [0]
    request = commit_request({("t", 0): 2}, metadata="x" * 4097)
    assert commit(host, request) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert committed(host) == {("t", 0): 1}


def test_missing_partitions_are_rejected_first(host: GroupHost) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    request = commit_request({("t", 0): 1, ("t", 4): 1, ("missing", 0): 1})
    assert commit(host, request) == [0, unknown, unknown]
    request = commit_request({("t", 0): 1, ("missing", 0): 1}, member_id="m", generation=3)
    assert commit(host, request) == [ErrorCode.UNKNOWN_MEMBER_ID, unknown]


def test_version_10_names_topics_by_id(host: GroupHost) -> None:
    request = commit_request({("t", 0): 1})
    response = host.request(request, OffsetCommitResponse, 10)
    assert response.topics[0].topic_id == id_of("t")
    assert commit_errors(response) == [0]
    request.topics[0].topic_id = UUID(int=99)
    assert commit(host, request, 10) == [ErrorCode.UNKNOWN_TOPIC_ID]


def test_a_commit_stores_an_offset_record(host: GroupHost) -> None:
    commit(host, commit_request({("t", 3): 9}, metadata=None))
    (record,) = host.records()
    assert isinstance(record, OffsetRecord)
    assert (record.key.group, record.key.topic, record.key.partition) == ("g", "t", 3)
    value = record.value
    assert value is not None
    assert (value.offset, value.metadata, value.leader_epoch) == (9, "", -1)
    assert (value.commit_timestamp, value.expire_timestamp) == (host.now, -1)
    assert value.topic_id == id_of("t")
    assert host.log[0][1] is not None
    assert host.log[0][1][:2] == b"\x00\x04"


def test_a_request_retention_is_stored_in_the_old_version(host: GroupHost) -> None:
    commit(host, commit_request({("t", 0): 9}, retention_ms=5_000), 4)
    (record,) = host.records()
    assert isinstance(record, OffsetRecord)
    assert record.value is not None
    assert record.value.expire_timestamp == host.now + 5_000
    assert host.log[0][1] is not None
    assert host.log[0][1][:2] == b"\x00\x01"


# --- fetch


def test_a_partition_without_a_commit_has_offset_minus_one(host: GroupHost) -> None:
    commit(host, commit_request({("t", 0): 5}, metadata="note"))
    response = host.request(fetch_request({"t": [0, 1], "zz": [0]}), OffsetFetchResponse, 9)
    (group,) = response.groups
    result = [
        (topic.name, p.partition_index, p.committed_offset, p.metadata, p.error_code)
        for topic in group.topics
        for p in topic.partitions
    ]
    assert result == [("t", 0, 5, "note", 0), ("t", 1, -1, "", 0), ("zz", 0, -1, "", 0)]


def test_an_unknown_group_has_no_offsets(host: GroupHost) -> None:
    response = host.request(fetch_request({"t": [0]}), OffsetFetchResponse, 9)
    (group,) = response.groups
    assert (group.error_code, group.topics[0].partitions[0].committed_offset) == (0, -1)
    assert committed(host) == {}


def test_version_10_fetches_topics_by_id(host: GroupHost) -> None:
    commit(host, commit_request({("t", 0): 5}))
    response = host.request(fetch_request({"t": [0], "zz": [1]}), OffsetFetchResponse, 10)
    (group,) = response.groups
    assert [t.topic_id for t in group.topics] == [id_of("t"), id_of("zz")]
    assert group.topics[0].partitions[0].committed_offset == 5
    assert group.topics[1].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    response = host.request(fetch_request(None), OffsetFetchResponse, 10)
    assert [t.topic_id for t in response.groups[0].topics] == [id_of("t")]


def test_an_offset_of_a_deleted_topic_of_the_same_name_is_not_returned(host: GroupHost) -> None:
    commit(host, commit_request({("t", 0): 5}))
    (record,) = host.records()
    assert isinstance(record, OffsetRecord)
    assert record.value is not None
    record.value.topic_id = UUID(int=5)
    host.shard.apply(record)
    response = host.request(fetch_request({"t": [0]}), OffsetFetchResponse, 10)
    assert response.groups[0].topics[0].partitions[0].committed_offset == -1


# --- delete


def test_offsets_of_an_empty_group_are_deleted(host: GroupHost) -> None:
    commit(host, commit_request({("t", 0): 1, ("t", 1): 2, ("u", 0): 3}))
    assert delete_errors(delete(host, [("t", 0), ("u", 1), ("t", 9)])) == [
        0,
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert committed(host) == {("t", 1): 2, ("u", 0): 3}
    assert len(host.log) == 4
    host.restart()
    assert committed(host) == {("t", 1): 2, ("u", 0): 3}


def test_offsets_of_subscribed_topics_are_not_deleted(host: GroupHost) -> None:
    (member,) = stable_group(host, 1)
    offsets = {("t", 0): 1, ("u", 0): 2}
    commit(host, commit_request(offsets, member_id=member, generation=1))
    errors = delete_errors(delete(host, [("t", 0), ("u", 0)]))
    assert errors == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, 0]
    assert committed(host) == {("t", 0): 1}


def test_a_live_group_of_another_type_keeps_its_offsets(host: GroupHost) -> None:
    host.send(join_request(protocol_type="connect"), 3)
    assert delete(host, [("t", 0)]).error_code == ErrorCode.NON_EMPTY_GROUP


def test_unreadable_subscriptions_keep_all_offsets(host: GroupHost) -> None:
    waiter = host.send(join_request(protocols={"range": b"\x00"}), 3)
    host.advance(3_000)
    assert host.response(waiter, JoinGroupResponse).error_code == 0
    errors = delete_errors(delete(host, [("u", 0)]))
    assert errors == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


def test_offsets_of_unknown_groups_cannot_be_deleted(host: GroupHost) -> None:
    assert delete(host, [("t", 0)]).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    response = host.request(OffsetDeleteRequest(""), OffsetDeleteResponse)
    assert response.error_code == ErrorCode.INVALID_GROUP_ID


def test_offsets_of_a_deleted_topic_are_removed(host: GroupHost) -> None:
    for group in ("a", "b"):
        commit(host, commit_request({("t", 0): 1, ("u", 0): 2}, group=group))
    host.event(PartitionsDeleted(frozenset({TopicPartition("t", 0), TopicPartition("t", 1)})))
    for group in ("a", "b"):
        assert committed(host, group=group) == {("u", 0): 2}


# --- expiry


def test_a_simple_group_expires_after_its_last_commit(host: GroupHost) -> None:
    commit(host, commit_request({("t", 0): 1}))
    host.advance(RETENTION_MS // 2)
    commit(host, commit_request({("t", 1): 1}))
    host.advance(RETENTION_MS // 2 + CHECK_MS)
    assert committed(host) == {("t", 1): 1}
    host.advance(RETENTION_MS // 2)
    assert committed(host) == {}
    assert not host.shard.groups
    last = host.records()[-1]
    assert isinstance(last, ClassicGroupRecord)
    assert last.value is None


def advance_with_heartbeats(
    host: GroupHost, member: str, milliseconds: int, generation: int = 1
) -> None:
    """Advances the clock while a member sends heartbeats."""
    end = host.now + milliseconds
    while host.now < end:
        beat = host.request(HeartbeatRequest("g", generation, member), HeartbeatResponse)
        assert beat.error_code == 0
        host.advance(min(9_000, end - host.now))


def test_a_group_expires_after_its_last_member_left() -> None:
    """The age of the commits does not matter while the group has members."""
    host = GroupHost(GroupConfig(offsets_retention_minutes=20))
    (member,) = stable_group(host, 1)
    commit(host, commit_request({("t", 0): 1}, member_id=member, generation=1))
    advance_with_heartbeats(host, member, 30 * MINUTE)
    host.advance(SESSION_MS)
    left_at = host.classic().state_timestamp
    host.advance(left_at + 20 * MINUTE - host.now - 1)
    assert committed(host) == {("t", 0): 1}
    host.advance(CHECK_MS + 1)
    assert committed(host) == {}
    assert "g" not in host.shard.groups


def test_offsets_of_topics_that_a_live_group_reads_do_not_expire() -> None:
    host = GroupHost(GroupConfig(offsets_retention_minutes=20))
    (member,) = stable_group(host, 1)
    offsets = {("t", 0): 1, ("u", 0): 2}
    commit(host, commit_request(offsets, member_id=member, generation=1))
    advance_with_heartbeats(host, member, 20 * MINUTE - CHECK_MS)
    assert committed(host) == offsets
    advance_with_heartbeats(host, member, 2 * CHECK_MS)
    assert committed(host) == {("t", 0): 1}
    assert "g" in host.shard.groups


def test_a_live_group_of_another_type_does_not_expire() -> None:
    host = GroupHost(GroupConfig(offsets_retention_minutes=20))
    waiter = host.send(join_request(protocol_type="connect"), 3)
    host.advance(3_000)
    member = host.response(waiter, JoinGroupResponse).member_id
    host.send(sync_request(member, 1, protocol_type="connect"))
    commit(host, commit_request({("t", 0): 1}, member_id=member, generation=1))
    advance_with_heartbeats(host, member, 40 * MINUTE)
    assert committed(host) == {("t", 0): 1}


@pytest.mark.parametrize("retention_ms", [2**63 - 1, -(2**63), -2])
def test_any_retention_of_a_request_can_be_stored(host: GroupHost, retention_ms: int) -> None:
    commit(host, commit_request({("t", 0): 9}, retention_ms=retention_ms), 4)
    assert host.log[0][1] is not None
    assert committed(host) == {("t", 0): 9}


def test_an_explicit_expiry_overrides_the_retention(host: GroupHost) -> None:
    commit(host, commit_request({("t", 0): 9}, retention_ms=CHECK_MS), 4)
    host.advance(CHECK_MS)
    assert committed(host) == {}


def test_an_empty_group_without_offsets_is_removed_by_the_next_check(host: GroupHost) -> None:
    stable_group(host, 1)
    host.advance(SESSION_MS)
    assert "g" in host.shard.groups
    host.advance(CHECK_MS)
    assert "g" not in host.shard.groups
    host.restart()
    assert "g" not in host.shard.groups
