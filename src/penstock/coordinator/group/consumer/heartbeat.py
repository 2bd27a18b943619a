"""ConsumerGroupHeartbeat: members join, live and leave, and get their assignments (C3).

The checks come in Kafka's order, because clients depend on which error they see first.
"""

from base64 import urlsafe_b64encode
from uuid import UUID

from msgspec.structs import replace

from penstock.coordinator.group.config import GroupConfig
from penstock.coordinator.group.consumer.model import (
    LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    ConsumerGroup,
    ConsumerGroupMember,
    EpochsByPartition,
)
from penstock.coordinator.group.consumer.reconcile import Owned, is_subset
from penstock.coordinator.group.consumer.records import (
    current_record,
    member_record,
    member_tombstones,
    target_record,
)
from penstock.coordinator.group.consumer.regexes import RegexChange, update_regexes
from penstock.coordinator.group.consumer.update import ConsumerGroupUpdate
from penstock.coordinator.group.events import Context
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatAssignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)

_CLIENT_MAKES_MEMBER_ID_VERSION = 1


def check_request(
    request: ConsumerGroupHeartbeatRequest, version: int, config: GroupConfig
) -> None:
    """Raises for what can be said without looking at the group."""
    epoch = request.member_epoch
    if version >= _CLIENT_MAKES_MEMBER_ID_VERSION or epoch > 0 or epoch == LEAVE_GROUP_MEMBER_EPOCH:
        _not_blank(request.member_id, "MemberId")
    _not_blank(request.group_id, "GroupId")
    _not_blank(request.instance_id, "InstanceId")
    _not_blank(request.rack_id, "RackId")
    if epoch == 0:
        if request.rebalance_timeout_ms == -1:
            raise _invalid("who joins must say its RebalanceTimeoutMs")
        if request.topic_partitions is None or request.topic_partitions:
            raise _invalid("who joins owns nothing yet: send empty TopicPartitions")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise _invalid("who joins must subscribe: send SubscribedTopicNames or a regex")
    elif epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH:
        if request.instance_id is None:
            raise _invalid("epoch -2 is for static members: send the InstanceId")
    elif epoch < LEAVE_GROUP_STATIC_MEMBER_EPOCH:
        raise _invalid(f"there is no MemberEpoch {epoch}: join with 0, leave with -1 or -2")
    assignor = request.server_assignor
    if assignor is not None and assignor not in config.group_consumer_assignors:
        known = ", ".join(config.group_consumer_assignors)
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"there is no assignor {assignor!r} here, only {known}: set group.remote.assignor",
        )


def _not_blank(value: str | None, name: str) -> None:
    if value is not None and not value.strip():
        raise _invalid(f"{name} is blank: leave it out, or give it a value")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


# --- a member lives


def heartbeat(
    turn: ConsumerGroupUpdate, request: ConsumerGroupHeartbeatRequest, context: Context
) -> ConsumerGroupHeartbeatResponse:
    """What a member hears that joins or goes on; raises where it is refused."""
    group = turn.group
    check_room(group, request.member_id, turn.config)
    member_id = request.member_id or short_id(context.uuid)
    owned = request.topic_partitions
    if request.instance_id is None:
        member = _dynamic_member(group, member_id, request.member_epoch, owned)
    else:
        member = _static_member(turn, member_id, request.instance_id, request.member_epoch, owned)
    updated = _updated(member, request, context)
    names_changed = False
    if updated is not member:
        turn.records.append(member_record(group.group_id, updated))
        names_changed = updated.subscribed_topic_names != member.subscribed_topic_names
    regex = update_regexes(turn, member, updated, context.session)
    epoch = group.group_epoch
    bump = names_changed or regex is RegexChange.RESOLVED
    if bump or not group.metadata_checked:
        epoch = turn.update_metadata(member, updated, bump=bump)
    target_epoch, target = turn.update_target(epoch, member, updated)
    updated = turn.reconcile(
        updated,
        target_epoch,
        target,
        owned,
        subscription_changed=names_changed or regex is not RegexChange.NONE,
    )
    turn.expect_heartbeat(updated)
    wants_assignment = (
        request.member_epoch == 0 or _is_full(request) or updated.assigned != member.assigned
    )
    return ConsumerGroupHeartbeatResponse(
        member_id=updated.member_id,
        member_epoch=updated.member_epoch,
        heartbeat_interval_ms=turn.config.consumer_of(group.group_id).heartbeat_interval_ms,
        assignment=_assignment(updated.assigned) if wants_assignment else None,
    )


def check_room(group: ConsumerGroup, member_id: str, config: GroupConfig) -> None:
    limit = config.group_consumer_max_size
    if len(group.members) >= limit and member_id not in group.members:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"the group has {limit} members, all that group.consumer.max.size allows: raise it",
        )


def short_id(uuid: str) -> str:
    """A UUID as Kafka writes it, in base64; like Kafka's it never starts with a dash."""
    data = bytearray(UUID(uuid).bytes)
    text = urlsafe_b64encode(data)
    if text.startswith(b"-"):
        data[0] ^= 0x80
        text = urlsafe_b64encode(data)
    return text.rstrip(b"=").decode()


def _dynamic_member(
    group: ConsumerGroup, member_id: str, epoch: int, owned: Owned
) -> ConsumerGroupMember:
    if epoch == 0:
        return group.members.get(member_id) or ConsumerGroupMember(member_id)
    member = group.member(member_id)
    _check_epoch(member, epoch, owned)
    return member


def _static_member(
    turn: ConsumerGroupUpdate, member_id: str, instance_id: str, epoch: int, owned: Owned
) -> ConsumerGroupMember:
    group = turn.group
    if epoch != 0:
        member = known_static_member(group, member_id, instance_id)
        _check_epoch(member, epoch, owned)
        return member
    existing = group.static_member(instance_id)
    if existing is None:
        return group.members.get(member_id) or ConsumerGroupMember(member_id)
    if (
        not existing.uses_classic_protocol
        and existing.member_epoch != LEAVE_GROUP_STATIC_MEMBER_EPOCH
    ):
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"the instance id {instance_id} is {existing.member_id}'s: stop that member first, or "
            "wait until its session is over",
        )
    return replace_member(turn, existing, member_id)


def replace_member(
    turn: ConsumerGroupUpdate, existing: ConsumerGroupMember, member_id: str
) -> ConsumerGroupMember:
    """The same instance has come back, under a new id: it takes over what the old one had."""
    group_id = turn.group.group_id
    member = replace(existing, member_id=member_id, member_epoch=0, previous_member_epoch=0)
    target = turn.group.target.get(existing.member_id, {})
    turn.records.extend(member_tombstones(group_id, existing.member_id))
    turn.records.append(member_record(group_id, member))
    turn.records.append(target_record(group_id, member_id, target))
    turn.records.append(current_record(group_id, member))
    turn.cancel_timers(existing)
    return member


def known_static_member(
    group: ConsumerGroup, member_id: str, instance_id: str
) -> ConsumerGroupMember:
    """The member that has the instance id; raises where there is none, or another."""
    member = group.static_member(instance_id)
    if member is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"no member has the instance id {instance_id}: join"
        )
    if member.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"the instance id {instance_id} is {member.member_id}'s now: another process uses the "
            "same group.instance.id",
        )
    return member


def _check_epoch(member: ConsumerGroupMember, epoch: int, owned: Owned) -> None:
    if epoch == member.member_epoch:
        return
    # The answer that told of the new epoch may have got lost.
    if epoch == member.previous_member_epoch < member.member_epoch and is_subset(
        owned, member.assigned
    ):
        return
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"epoch {epoch} is not that of member {member.member_id}, {member.member_epoch}: let go of "
        "all partitions and join again",
    )


def _updated(
    member: ConsumerGroupMember, request: ConsumerGroupHeartbeatRequest, context: Context
) -> ConsumerGroupMember:
    """The member as the request describes it; itself where that is nothing new."""
    if (
        request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
        and request.rebalance_timeout_ms == -1
        and request.instance_id == member.instance_id
        and request.rack_id is None
        and request.server_assignor is None
        and context.client_id == member.client_id
        and context.client_host == member.client_host
        and member.classic is None
    ):
        return member
    names, timeout = request.subscribed_topic_names, request.rebalance_timeout_ms
    updated = replace(
        member,
        instance_id=_given(request.instance_id, member.instance_id),
        rack_id=_given(request.rack_id, member.rack_id),
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout == -1 else timeout,
        server_assignor=_given(request.server_assignor, member.server_assignor),
        subscribed_topic_names=member.subscribed_topic_names if names is None else frozenset(names),
        subscribed_topic_regex=_given(
            request.subscribed_topic_regex, member.subscribed_topic_regex
        ),
        client_id=context.client_id,
        client_host=context.client_host,
        classic=None,
    )
    return member if updated == member else updated


def _given(value: str | None, before: str | None) -> str | None:
    return before if value is None else value


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the request says everything, as after an error: then so does the answer."""
    return (
        request.rebalance_timeout_ms != -1
        and (
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        )
        and request.topic_partitions is not None
    )


def _assignment(assigned: EpochsByPartition) -> ConsumerGroupHeartbeatAssignment:
    return ConsumerGroupHeartbeatAssignment(
        [
            ConsumerGroupHeartbeatResponseTopicPartitions(topic_id, sorted(partitions))
            for topic_id, partitions in assigned.items()
        ]
    )


# --- a member leaves


def leave(
    turn: ConsumerGroupUpdate, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    """A member is gone; a static one may say that it will be back."""
    if request.instance_id is None:
        turn.fence([turn.group.member(request.member_id)])
    else:
        member = known_static_member(turn.group, request.member_id, request.instance_id)
        if request.member_epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH:
            # Whoever comes back is given what it has, as if it had had it from the start.
            leaving = replace(
                member,
                member_epoch=LEAVE_GROUP_STATIC_MEMBER_EPOCH,
                pending_revocation={},
                assigned={t: dict.fromkeys(ps, 0) for t, ps in member.assigned.items()},
            )
            turn.records.append(current_record(turn.group.group_id, leaving))
        else:
            turn.fence([member])
    return ConsumerGroupHeartbeatResponse(
        member_id=request.member_id, member_epoch=request.member_epoch
    )
