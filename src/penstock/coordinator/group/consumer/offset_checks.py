"""Who may commit and fetch the offsets of a consumer group with members."""

from uuid import UUID

from penstock.coordinator.group.consumer.model import ConsumerGroup, ConsumerGroupMember
from penstock.core.errors import ErrorCode

_MEMBER_EPOCH_VERSION = 9


def may_commit(group: ConsumerGroup, member_id: str, epoch: int, version: int) -> ErrorCode:
    """An epoch of the past may do, for partitions that the member has had since then."""
    member = group.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if not member.uses_classic_protocol and version < _MEMBER_EPOCH_VERSION:
        return ErrorCode.UNSUPPORTED_VERSION
    return _wrong_epoch(member) if epoch > member.member_epoch else ErrorCode.NONE


def may_commit_partition(
    member: ConsumerGroupMember, epoch: int, topic_id: UUID, partition: int
) -> ErrorCode:
    """For an epoch of the past: whether it was the member's partition then, and still is."""
    since = member.epoch_of(topic_id, partition)
    return _wrong_epoch(member) if since is None or epoch < since else ErrorCode.NONE


def may_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> ErrorCode:
    if member_id is None and epoch < 0:
        # A tool, or a client that does not say who it is.
        return ErrorCode.NONE
    member = group.members.get(member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if epoch == member.member_epoch else _wrong_epoch(member)


def _wrong_epoch(member: ConsumerGroupMember) -> ErrorCode:
    if member.uses_classic_protocol:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.STALE_MEMBER_EPOCH
