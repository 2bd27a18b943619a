"""ConsumerGroupHeartbeat: members join, stay and leave, and receive their assignments (C3).

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
    """Checks what does not depend on the group; raises a KafkaError."""
    epoch = request.member_epoch
    if version >= _CLIENT_MAKES_MEMBER_ID_VERSION or epoch > 0 or epoch == LEAVE_GROUP_MEMBER_EPOCH:
        _not_blank(request.member_id, "MemberId")
    _not_blank(request.group_id, "GroupId")
    _not_blank(request.instance_id, "InstanceId")
    _not_blank(request.rack_id, "RackId")
    if epoch == 0:
        if request.rebalance_timeout_ms == -1:
            raise _invalid("a member that joins must send RebalanceTimeoutMs")
        if request.topic_partitions is None or request.topic_partitions:
            raise _invalid("a member that joins owns no partitions: send empty TopicPartitions")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise _invalid(
                "a member that joins must subscribe: send SubscribedTopicNames or a regex"
            )
    elif epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH:
        if request.instance_id is None:
            raise _invalid("epoch -2 is for static members: send the InstanceId")
    elif epoch < LEAVE_GROUP_STATIC_MEMBER_EPOCH:
        raise _invalid(f"MemberEpoch {epoch} is invalid: join with 0, leave with -1 or -2")
    assignor = request.server_assignor
    if assignor is not None and assignor not in config.group_consumer_assignors:
        available = ", ".join(config.group_consumer_assignors)
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"the broker has no assignor {assignor!r}, only {available}",
            remedy="set group.remote.assignor",
        )


def _not_blank(value: str | None, name: str) -> None:
    if value is not None and not value.strip():
        raise _invalid(f"{name} is blank: omit it, or set a value")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


# --- joining and staying


def heartbeat(
    update: ConsumerGroupUpdate, request: ConsumerGroupHeartbeatRequest, context: Context
) -> ConsumerGroupHeartbeatResponse:
    """Returns the response to a member that joins or stays; raises a KafkaError to refuse it."""
    group = update.group
    check_room(group, request.member_id, update.config)
    member_id = request.member_id or short_id(context.uuid)
    owned = request.topic_partitions
    if request.instance_id is None:
        member = _dynamic_member(group, member_id, request.member_epoch, owned)
    else:
        member = _static_member(update, member_id, request.instance_id, request.member_epoch, owned)
    updated = _updated(member, request, context)
    names_changed = False
    if updated is not member:
        update.records.append(member_record(group.group_id, updated))
        names_changed = updated.subscribed_topic_names != member.subscribed_topic_names
    regex = update_regexes(update, member, updated, context.session)
    epoch = group.group_epoch
    bump = names_changed or regex is RegexChange.RESOLVED
    if bump or not group.metadata_checked:
        epoch = update.update_metadata(member, updated, bump=bump)
    target_epoch, target = update.update_target(epoch, member, updated)
    updated = update.reconcile(
        updated,
        target_epoch,
        target,
        owned,
        subscription_changed=names_changed or regex is not RegexChange.NONE,
    )
    update.expect_heartbeat(updated)
    wants_assignment = (
        request.member_epoch == 0 or _is_full(request) or updated.assigned != member.assigned
    )
    return ConsumerGroupHeartbeatResponse(
        member_id=updated.member_id,
        member_epoch=updated.member_epoch,
        heartbeat_interval_ms=update.config.consumer_of(group.group_id).heartbeat_interval_ms,
        assignment=_assignment(updated.assigned) if wants_assignment else None,
    )


def check_room(group: ConsumerGroup, member_id: str, config: GroupConfig) -> None:
    """Raises GROUP_MAX_SIZE_REACHED for a new member of a full group."""
    limit = config.group_consumer_max_size
    if len(group.members) >= limit and member_id not in group.members:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"the group has {limit} members, the limit of group.consumer.max.size",
            remedy="raise it",
        )


def short_id(uuid: str) -> str:
    """Returns a UUID as Kafka writes it, in base64; like Kafka's it never starts with a dash."""
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
    update: ConsumerGroupUpdate, member_id: str, instance_id: str, epoch: int, owned: Owned
) -> ConsumerGroupMember:
    group = update.group
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
            f"member {existing.member_id} has the instance id {instance_id}",
            remedy="stop that member, or wait until its session expires",
        )
    return replace_member(update, existing, member_id)


def replace_member(
    update: ConsumerGroupUpdate, existing: ConsumerGroupMember, member_id: str
) -> ConsumerGroupMember:
    """Returns the member of a restarted static instance: a new id with the old assignment."""
    group_id = update.group.group_id
    member = replace(existing, member_id=member_id, member_epoch=0, previous_member_epoch=0)
    target = update.group.target.get(existing.member_id, {})
    update.records.extend(member_tombstones(group_id, existing.member_id))
    update.records.append(member_record(group_id, member))
    update.records.append(target_record(group_id, member_id, target))
    update.records.append(current_record(group_id, member))
    update.cancel_timers(existing)
    return member


def known_static_member(
    group: ConsumerGroup, member_id: str, instance_id: str
) -> ConsumerGroupMember:
    """Returns the member with the instance id; raises if there is none or it has another id."""
    member = group.static_member(instance_id)
    if member is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"no member has the instance id {instance_id}",
            remedy="join",
        )
    if member.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"member {member.member_id} has the instance id {instance_id} now: another process "
            "uses the same group.instance.id",
        )
    return member


def _check_epoch(member: ConsumerGroupMember, epoch: int, owned: Owned) -> None:
    if epoch == member.member_epoch:
        return
    # The response with the new epoch may have been lost.
    if epoch == member.previous_member_epoch < member.member_epoch and is_subset(
        owned, member.assigned
    ):
        return
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"member {member.member_id} has epoch {member.member_epoch}, not {epoch}",
        remedy="give up all partitions and join again",
    )


def _updated(
    member: ConsumerGroupMember, request: ConsumerGroupHeartbeatRequest, context: Context
) -> ConsumerGroupMember:
    """Returns the member as the request describes it; the same object if nothing changes."""
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
        instance_id=_or_previous(request.instance_id, member.instance_id),
        rack_id=_or_previous(request.rack_id, member.rack_id),
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout == -1 else timeout,
        server_assignor=_or_previous(request.server_assignor, member.server_assignor),
        subscribed_topic_names=member.subscribed_topic_names if names is None else frozenset(names),
        subscribed_topic_regex=_or_previous(
            request.subscribed_topic_regex, member.subscribed_topic_regex
        ),
        client_id=context.client_id,
        client_host=context.client_host,
        classic=None,
    )
    return member if updated == member else updated


def _or_previous(value: str | None, previous: str | None) -> str | None:
    return previous if value is None else value


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the request has all fields, as after an error: then the response has them too."""
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


# --- leaving


def leave(
    update: ConsumerGroupUpdate, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    """Removes a member; a static one may announce that it will return."""
    if request.instance_id is None:
        update.fence([update.group.member(request.member_id)])
    else:
        member = known_static_member(update.group, request.member_id, request.instance_id)
        if request.member_epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH:
            # When it returns it owns these partitions as if it had had them from the start.
            leaving = replace(
                member,
                member_epoch=LEAVE_GROUP_STATIC_MEMBER_EPOCH,
                pending_revocation={},
                assigned={t: dict.fromkeys(ps, 0) for t, ps in member.assigned.items()},
            )
            update.records.append(current_record(update.group.group_id, leaving))
        else:
            update.fence([member])
    return ConsumerGroupHeartbeatResponse(
        member_id=request.member_id, member_epoch=request.member_epoch
    )
