"""Checks of commits and fetches of offsets against a consumer group with members."""

from penstock.coordinator.group.consumer.model import ConsumerGroup, ConsumerGroupMember
from penstock.coordinator.group.group_type import CommitRequest
from penstock.core.errors import ErrorCode

_MEMBER_EPOCH_VERSION = 9


def check_commit(group: ConsumerGroup, commit: CommitRequest) -> ErrorCode:
    """Returns an error that holds for all partitions of the commit.

    An earlier epoch is accepted if the member has owned all partitions since then.
    """
    member = group.members.get(commit.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if commit.is_transactional:
        stale = ErrorCode.ILLEGAL_GENERATION
    elif not member.uses_classic_protocol and commit.version < _MEMBER_EPOCH_VERSION:
        return ErrorCode.UNSUPPORTED_VERSION
    else:
        stale = _stale_epoch(member)
    if commit.generation > member.member_epoch:
        return stale
    if commit.generation < member.member_epoch:
        for topic_id, partition in commit.partitions():
            owned_since = member.epoch_of(topic_id, partition)
            if owned_since is None or commit.generation < owned_since:
                return stale
    return ErrorCode.NONE


def check_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> ErrorCode:
    if member_id is None and epoch < 0:
        # A tool, or a client that does not name its member.
        return ErrorCode.NONE
    member = group.members.get(member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if epoch == member.member_epoch else _stale_epoch(member)


def _stale_epoch(member: ConsumerGroupMember) -> ErrorCode:
    if member.uses_classic_protocol:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.STALE_MEMBER_EPOCH
