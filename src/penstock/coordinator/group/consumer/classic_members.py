"""Members of a consumer group that use the classic protocol: JoinGroup, SyncGroup and so on.

Such a member joins to make its next step towards the target assignment, fetches the assignment with
SyncGroup, and learns from its heartbeats when it has to join again. Every request gets its response
at once: no member waits for another.
"""

from msgspec.structs import replace

from penstock.coordinator.group.classic.model import CONSUMER_PROTOCOL_TYPE
from penstock.coordinator.group.config import MigrationPolicy
from penstock.coordinator.group.consumer.consumer_protocol import (
    owned_partitions,
    read_subscription,
    write_assignment,
)
from penstock.coordinator.group.consumer.heartbeat import (
    check_room,
    known_static_member,
    replace_member,
    short_id,
)
from penstock.coordinator.group.consumer.migration import can_downgrade
from penstock.coordinator.group.consumer.model import (
    ConsumerGroup,
    ConsumerGroupMember,
    ConsumerGroupSoftState,
    MemberState,
)
from penstock.coordinator.group.consumer.records import member_record
from penstock.coordinator.group.consumer.regexes import RegexChange, update_regexes
from penstock.coordinator.group.consumer.update import ConsumerGroupUpdate
from penstock.coordinator.group.events import (
    Context,
    RejoinTimer,
    ResyncTimer,
    SessionTimer,
)
from penstock.coordinator.machine import CancelTimer
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from penstock.protocol.messages.heartbeat import HeartbeatRequest
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.protocol.messages.leave_group import MemberIdentity, MemberResponse
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from penstock.protocol.stored.consumer_group import ClassicMemberMetadata, ClassicProtocol

_MEMBER_ID_REQUIRED_VERSION = 4

# --- JoinGroup


def join(
    update: ConsumerGroupUpdate, request: JoinGroupRequest, context: Context
) -> JoinGroupResponse:
    """Returns the response to a member that joins or rejoins; raises a KafkaError to refuse it."""
    group = update.group
    if update.config.group_consumer_migration_policy is MigrationPolicy.DISABLED:
        raise _inconsistent(
            f"{group.group_id} is a consumer group, and group.consumer.migration.policy allows no "
            "classic members: set group.protocol=consumer"
        )
    member_id = request.member_id or short_id(context.uuid)
    check_room(group, member_id, update.config)
    _check_protocols(group, member_id, request)
    if (
        not request.member_id
        and request.group_instance_id is None
        and context.version >= _MEMBER_ID_REQUIRED_VERSION
    ):
        return JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
    replaced = group.static_member(request.group_instance_id)
    member = _joining_member(update, request, member_id)
    subscription = read_subscription(request.protocols[0].metadata)
    updated = _updated(member, request, subscription, context)
    names_changed = False
    if updated != member:
        update.records.append(member_record(group.group_id, updated))
        names_changed = updated.subscribed_topic_names != member.subscribed_topic_names
    regex = update_regexes(update, member, updated, context.session)
    bump = regex is not RegexChange.NONE or names_changed
    epoch = group.group_epoch
    if bump or not group.metadata_checked:
        epoch = update.update_metadata(member, updated, bump=bump)
    downgrades = replaced is not None and can_downgrade(group, update.config, replaced=replaced)
    stale = downgrades and group.assignment_epoch < epoch
    if not stale:
        if downgrades:
            target_epoch, target = group.assignment_epoch, group.target_of(updated)
        else:
            target_epoch, target = update.update_target(epoch, member, updated)
        owned = owned_partitions(subscription, update.topics)
        updated = update.reconcile(updated, target_epoch, target, owned, subscription_changed=bump)
    if downgrades:
        update.convert_to_classic(joining=updated, rebalance=stale)
    else:
        _start_member_timers(update, updated, request)
    assert updated.classic is not None
    return JoinGroupResponse(
        member_id=updated.member_id,
        generation_id=updated.member_epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=updated.classic.supported_protocols[0].name,
    )


def _check_protocols(group: ConsumerGroup, member_id: str, request: JoinGroupRequest) -> None:
    """Raises unless it has a protocol that all other members of the classic protocol support."""
    supported = request.protocol_type == CONSUMER_PROTOCOL_TYPE and any(
        group.classic_protocols.get(protocol.name, 0) == group.classic_members
        for protocol in request.protocols
    )
    if not supported:
        raise _inconsistent(f"the group supports none of the protocols of member {member_id}")


def _inconsistent(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, message)


def _joining_member(
    update: ConsumerGroupUpdate, request: JoinGroupRequest, member_id: str
) -> ConsumerGroupMember:
    group, instance_id = update.group, request.group_instance_id
    if instance_id is None:
        return group.members.get(member_id) or ConsumerGroupMember(member_id)
    if request.member_id:
        return known_static_member(group, member_id, instance_id)
    existing = group.static_member(instance_id)
    if existing is None:
        return ConsumerGroupMember(member_id)
    return replace_member(update, existing, member_id)


def _updated(
    member: ConsumerGroupMember,
    request: JoinGroupRequest,
    subscription: ConsumerProtocolSubscription,
    context: Context,
) -> ConsumerGroupMember:
    timeout = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=request.group_instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout == -1 else timeout,
        subscribed_topic_names=frozenset(subscription.topics),
        subscribed_topic_regex="",
        client_id=context.client_id,
        client_host=context.client_host,
        classic=ClassicMemberMetadata(
            request.session_timeout_ms,
            [ClassicProtocol(p.name, p.metadata) for p in request.protocols],
        ),
    )


def _start_member_timers(
    update: ConsumerGroupUpdate, member: ConsumerGroupMember, request: JoinGroupRequest
) -> None:
    group, member_id = update.group, member.member_id
    if member_id in group.rejoining:
        update.timers.append(CancelTimer(RejoinTimer(group.group_id, member_id)))
        waiting = group.rejoining - {member_id}
        update.state_updates.append(ConsumerGroupSoftState(group.group_id, rejoining=waiting))
    update.set_timer(SessionTimer(group.group_id, member_id), request.session_timeout_ms)
    update.set_timer(ResyncTimer(group.group_id, member_id), request.rebalance_timeout_ms)


# --- SyncGroup and Heartbeat


def sync(update: ConsumerGroupUpdate, request: SyncGroupRequest) -> SyncGroupResponse:
    """Returns the member's current assignment, or an error if it has to join again first."""
    group = update.group
    member, classic = _known_member(group, request)
    protocol = classic.supported_protocols[0]
    if (request.protocol_type or CONSUMER_PROTOCOL_TYPE) != CONSUMER_PROTOCOL_TYPE or (
        request.protocol_name or protocol.name
    ) != protocol.name:
        raise _inconsistent(
            f"member {member.member_id} has joined with the protocol {protocol.name}"
        )
    if (
        group.assignment_epoch > member.member_epoch
        and member.state is not MemberState.UNREVOKED_PARTITIONS
    ):
        _expect_rejoin(update, member)
        return SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    update.timers.append(CancelTimer(ResyncTimer(group.group_id, member.member_id)))
    update.set_timer(SessionTimer(group.group_id, member.member_id), classic.session_timeout_ms)
    return SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=write_assignment(member.assigned, protocol.metadata, update.topics),
    )


def heartbeat(update: ConsumerGroupUpdate, request: HeartbeatRequest) -> ErrorCode:
    """Returns REBALANCE_IN_PROGRESS if the member has to join again to make its next step."""
    group = update.group
    member, classic = _known_member(group, request)
    update.set_timer(SessionTimer(group.group_id, member.member_id), classic.session_timeout_ms)
    if (
        member.member_epoch < group.assignment_epoch
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (
            member.state is MemberState.UNRELEASED_PARTITIONS
            and not _waits_for_others(group, member)
        )
    ):
        _expect_rejoin(update, member)
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _known_member(
    group: ConsumerGroup, request: SyncGroupRequest | HeartbeatRequest
) -> tuple[ConsumerGroupMember, ClassicMemberMetadata]:
    if request.group_instance_id is None:
        member = group.member(request.member_id)
    else:
        member = known_static_member(group, request.member_id, request.group_instance_id)
    if member.classic is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"member {member.member_id} joined with group.protocol=consumer",
            remedy="join again",
        )
    if request.generation_id != member.member_epoch:
        raise KafkaError(
            ErrorCode.ILLEGAL_GENERATION,
            f"member {member.member_id} is in generation {member.member_epoch}",
            remedy="join again",
        )
    return member, member.classic


def _expect_rejoin(update: ConsumerGroupUpdate, member: ConsumerGroupMember) -> None:
    group = update.group
    if member.member_id not in group.rejoining:
        timer = RejoinTimer(group.group_id, member.member_id)
        update.set_timer(timer, member.rebalance_timeout_ms)
        waiting = group.rejoining | {member.member_id}
        update.state_updates.append(ConsumerGroupSoftState(group.group_id, rejoining=waiting))


def _waits_for_others(group: ConsumerGroup, member: ConsumerGroupMember) -> bool:
    return any(
        partition not in member.assigned.get(topic_id, {})
        and group.owner_of(topic_id, partition) is not None
        for topic_id, partitions in group.target.get(member.member_id, {}).items()
        for partition in partitions
    )


# --- LeaveGroup


def leave(update: ConsumerGroupUpdate, leaving: list[MemberIdentity]) -> list[MemberResponse]:
    """Removes members of either protocol; an administrator may name only their instance."""
    removed: dict[str, ConsumerGroupMember] = {}
    responses = []
    for identity in leaving:
        code = ErrorCode.NONE
        try:
            member = _leaving_member(update.group, identity)
            removed[member.member_id] = member
        except KafkaError as error:
            code = error.code
        responses.append(MemberResponse(identity.member_id, identity.group_instance_id, code))
    update.fence(list(removed.values()))
    return responses


def _leaving_member(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerGroupMember:
    instance_id = identity.group_instance_id
    if instance_id is None:
        return group.member(identity.member_id)
    member_id = identity.member_id or group.static_members.get(instance_id, "")
    return known_static_member(group, member_id, instance_id)
