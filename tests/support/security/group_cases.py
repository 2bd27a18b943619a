"""The matrix's requests of groups and their members."""

from collections.abc import Callable
from typing import Final

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import ZERO_UUID, Message
from penstock.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from penstock.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.protocol.messages.delete_groups import DeleteGroupsRequest
from penstock.protocol.messages.describe_groups import DescribeGroupsRequest
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.heartbeat import HeartbeatRequest
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.protocol.messages.list_groups import ListGroupsRequest
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from penstock.protocol.messages.sync_group import SyncGroupRequest
from penstock.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.support.security.case import Case
from tests.support.security.world import (
    DOOMED_GROUP,
    GROUP,
    MEMBER,
    MIXED_GROUP,
    MODERN_GROUP,
    OTHER,
    OTHER_GROUP,
    OTHER_TXN,
    TOPIC,
    TXN,
    TXN_GROUP,
    World,
    restore_groups,
)

_GROUP_COORDINATOR: Final = 0
_TRANSACTION_COORDINATOR: Final = 1
_FIRST_BATCHED_FIND: Final = 4
_FIRST_BATCHED_FETCH: Final = 8
_FIRST_WITH_IDS: Final = 10
_FIRST_TXN_COMMIT_WITH_IDS: Final = 6


def _find_coordinator(version: int, kind: int, *names: str) -> Message:
    request = FindCoordinatorRequest()
    if version >= 1:
        request.key_type = kind
    if version >= _FIRST_BATCHED_FIND:
        request.coordinator_keys = list(names)
    else:
        request.key = names[0]
    return request


def _offset_commit(world: World, version: int, group: str = GROUP) -> Message:
    partitions = [OffsetCommitRequestPartition(0, 0)]
    topics = [
        OffsetCommitRequestTopic(name, ZERO_UUID, partitions)
        if version < _FIRST_WITH_IDS
        else OffsetCommitRequestTopic("", world.topic_ids[name], partitions)
        for name in (TOPIC, OTHER)
    ]
    return OffsetCommitRequest(group, topics=topics)


def _txn_offset_commit(
    world: World, version: int, transactional_id: str = TXN, group: str = TXN_GROUP
) -> Message:
    partitions = [TxnOffsetCommitRequestPartition(0, 0)]
    topics = [
        TxnOffsetCommitRequestTopic(name, ZERO_UUID, partitions)
        if version < _FIRST_TXN_COMMIT_WITH_IDS
        else TxnOffsetCommitRequestTopic("", world.topic_ids[name], partitions)
        for name in (TOPIC, OTHER)
    ]
    request = TxnOffsetCommitRequest(transactional_id, group, 123_456, 0, topics=topics)
    if version >= 3:
        request.generation_id_or_member_epoch, request.member_id = 5, MEMBER
    return request


def _offset_fetch(world: World, version: int, group: str = GROUP) -> Message:
    if version < _FIRST_BATCHED_FETCH:
        topics = [OffsetFetchRequestTopic(name, [0]) for name in (TOPIC, OTHER)]
        return OffsetFetchRequest(group, topics)
    named = [
        OffsetFetchRequestTopics(name, ZERO_UUID, [0])
        if version < _FIRST_WITH_IDS
        else OffsetFetchRequestTopics("", world.topic_ids[name], [0])
        for name in (TOPIC, OTHER)
    ]
    groups = [OffsetFetchRequestGroup(name, topics=named) for name in (group, OTHER_GROUP)]
    return OffsetFetchRequest(groups=groups)


def _offset_fetch_all(world: World, version: int) -> Message:
    if version < _FIRST_BATCHED_FETCH:
        return OffsetFetchRequest(GROUP, None)
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(GROUP, topics=None)])


def _join(group: str) -> Message:
    return JoinGroupRequest(
        group, 10_000, 10_000, MEMBER, None, "consumer", [JoinGroupRequestProtocol("range", b"")]
    )


def _leave(group: str, version: int) -> Message:
    if version < 3:
        return LeaveGroupRequest(group, MEMBER)
    return LeaveGroupRequest(group, members=[MemberIdentity(MEMBER)])


def _describe_groups(world: World, version: int) -> Message:
    return DescribeGroupsRequest([GROUP, OTHER_GROUP], version >= 3)


def _offset_delete(group: str) -> Message:
    partitions = [OffsetDeleteRequestPartition(0)]
    topics = [OffsetDeleteRequestTopic(name, partitions) for name in (TOPIC, OTHER)]
    return OffsetDeleteRequest(group, topics)


def _heartbeat(*topics: str, regex: str | None = None, group: str = MODERN_GROUP) -> Message:
    request = ConsumerGroupHeartbeatRequest(group, MEMBER, 5, topic_partitions=[])
    request.subscribed_topic_names = list(topics)
    if regex is not None:
        request.subscribed_topic_regex = regex
    return request


def _describe_consumers(world: World, version: int) -> Message:
    return ConsumerGroupDescribeRequest([MODERN_GROUP, MIXED_GROUP, OTHER_GROUP], True)


def _with_groups(
    key: ApiKey, group: str, build: Callable[[str, int], Message]
) -> tuple[Case, Case]:
    """Returns the requests about a group, and about one that only the super user has rights on."""
    restore = restore_groups if group == DOOMED_GROUP else None
    return (
        Case("", key, lambda world, version: build(group, version), restore=restore),
        Case(
            "with another group",
            key,
            lambda world, version: build(OTHER_GROUP, version),
            restore=restore,
        ),
    )


GROUP_CASES: Final = (
    Case("", ApiKey.LIST_GROUPS, lambda world, version: ListGroupsRequest()),
    Case(
        "of groups",
        ApiKey.FIND_COORDINATOR,
        lambda world, version: _find_coordinator(version, _GROUP_COORDINATOR, GROUP, OTHER_GROUP),
    ),
    Case(
        "of transactions",
        ApiKey.FIND_COORDINATOR,
        lambda world, version: _find_coordinator(version, _TRANSACTION_COORDINATOR, TXN, OTHER_TXN),
        first=1,
    ),
    # Version 0 has its offsets in ZooKeeper.
    Case("", ApiKey.OFFSET_COMMIT, _offset_commit, first_recorded=1),
    Case("of topics", ApiKey.OFFSET_FETCH, _offset_fetch, first_recorded=1),
    Case("of all topics", ApiKey.OFFSET_FETCH, _offset_fetch_all, first=2),
    Case("", ApiKey.DESCRIBE_GROUPS, _describe_groups),
    Case(
        "",
        ApiKey.DELETE_GROUPS,
        lambda world, version: DeleteGroupsRequest([DOOMED_GROUP, "allowed-unknown", OTHER_GROUP]),
        restore=restore_groups,
    ),
    Case("", ApiKey.TXN_OFFSET_COMMIT, _txn_offset_commit, one_by_one=True),
    Case(
        "with topics",
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        lambda world, version: _heartbeat(TOPIC),
    ),
    Case(
        "with a topic without rights",
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        lambda world, version: _heartbeat(OTHER),
    ),
    Case(
        "with a pattern",
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        lambda world, version: _heartbeat(regex="allowed-.*"),
        first=1,
    ),
    Case("", ApiKey.CONSUMER_GROUP_DESCRIBE, _describe_consumers),
    *_with_groups(ApiKey.OFFSET_DELETE, DOOMED_GROUP, lambda group, version: _offset_delete(group)),
    Case(
        "with another group",
        ApiKey.OFFSET_COMMIT,
        lambda world, version: _offset_commit(world, version, OTHER_GROUP),
        first_recorded=1,
    ),
    Case(
        "with another group",
        ApiKey.TXN_OFFSET_COMMIT,
        lambda world, version: _txn_offset_commit(world, version, group=OTHER_GROUP),
        one_by_one=True,
    ),
    Case(
        "with another transactional id",
        ApiKey.TXN_OFFSET_COMMIT,
        lambda world, version: _txn_offset_commit(world, version, OTHER_TXN),
        one_by_one=True,
    ),
    Case(
        "with another group",
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        lambda world, version: _heartbeat(TOPIC, group="other-consumers"),
    ),
    *_with_groups(ApiKey.JOIN_GROUP, GROUP, lambda group, version: _join(group)),
    *_with_groups(ApiKey.LEAVE_GROUP, GROUP, _leave),
    *_with_groups(
        ApiKey.SYNC_GROUP, GROUP, lambda group, version: SyncGroupRequest(group, 5, MEMBER)
    ),
    *_with_groups(
        ApiKey.HEARTBEAT, GROUP, lambda group, version: HeartbeatRequest(group, 5, MEMBER)
    ),
)
