"""Online migration: a group with members changes from classic to consumer, and back.

Upgrade: a member joins a classic group with ConsumerGroupHeartbeat. The existing members become
members that use the classic protocol, with the partitions that the group's leader assigned.
Downgrade: the last member that sends ConsumerGroupHeartbeat leaves, and the others continue as a
classic group.
"""

from collections.abc import Collection, Iterator, Mapping

from msgspec.structs import replace

from penstock.coordinator.group.classic.model import (
    CONSUMER_PROTOCOL_TYPE,
    ClassicGroup,
    ClassicGroupState,
    Member,
)
from penstock.coordinator.group.config import GroupConfig
from penstock.coordinator.group.consumer.consumer_protocol import (
    read_assignment,
    read_subscription,
    write_assignment,
)
from penstock.coordinator.group.consumer.metadata_hash import metadata_hash
from penstock.coordinator.group.consumer.model import ConsumerGroup, ConsumerGroupMember
from penstock.coordinator.group.consumer.records import (
    ConsumerGroupRecord,
    current_record,
    epoch_record,
    member_record,
    target_epoch_record,
    target_record,
)
from penstock.coordinator.group.consumer.replay import replay
from penstock.coordinator.group.topics import Topics
from penstock.core.errors import ErrorCode, KafkaError, ProtocolError
from penstock.protocol.stored.consumer_group import ClassicMemberMetadata, ClassicProtocol

# --- upgrade


def upgrade(
    group: ClassicGroup, config: GroupConfig, topics: Topics
) -> tuple[list[ConsumerGroupRecord], ConsumerGroup]:
    """Returns the records that convert a classic group, and the resulting consumer group.

    Raises GROUP_ID_NOT_FOUND, as Kafka does, if the group cannot be converted.
    """
    _check_upgrade(group, config)
    try:
        members = [_consumer_member(group, m, topics) for m in group.members.values()]
    except ProtocolError as error:
        raise _cannot(group, f"its consumer protocol is malformed: {error.message}") from None
    group_id, epoch = group.group_id, group.generation
    names = {name for member in members for name in member.subscribed_topic_names}
    records = [
        *(member_record(group_id, member) for member in members),
        epoch_record(group_id, epoch, metadata_hash(names, topics)),
        *(
            target_record(group_id, m.member_id, {t: frozenset(p) for t, p in m.assigned.items()})
            for m in members
        ),
        target_epoch_record(group_id, epoch, 0),
        *(current_record(group_id, member) for member in members),
    ]
    consumer_group = ConsumerGroup(group_id)
    for record in records:
        replay(consumer_group, record)
    return records, consumer_group


def _check_upgrade(group: ClassicGroup, config: GroupConfig) -> None:
    if not config.group_consumer_migration_policy.allows_upgrade:
        raise _cannot(
            group,
            "group.consumer.migration.policy does not allow it: stop the classic members first",
        )
    if not group.uses_consumer_protocol:
        raise _cannot(group, "its members are no consumers: use another group.id")
    if len(group.members) > config.group_consumer_max_size:
        raise _cannot(group, "it has more members than group.consumer.max.size allows")


def _cannot(group: ClassicGroup, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"{group.group_id} is a classic group and stays one, {reason}",
    )


def _consumer_member(group: ClassicGroup, member: Member, topics: Topics) -> ConsumerGroupMember:
    offered = dict(member.protocols)
    name = group.protocol_name
    subscription = read_subscription(offered[name] if name in offered else member.protocols[0][1])
    assigned = {}
    if member.assignment:
        assignment = read_assignment(member.assignment)
        if assignment.user_data:
            raise _cannot(group, "a custom assignor is in use: switch to a default one first")
        for topic in assignment.assigned_partitions:
            topic_id = topics.topic_id(topic.topic)
            if topic_id is not None:
                assigned[topic_id] = dict.fromkeys(topic.partitions, group.generation)
    return ConsumerGroupMember(
        member_id=member.member_id,
        member_epoch=group.generation,
        previous_member_epoch=group.generation,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=frozenset(subscription.topics),
        assigned=assigned,
        classic=ClassicMemberMetadata(
            member.session_timeout_ms,
            [ClassicProtocol(protocol, metadata) for protocol, metadata in member.protocols],
        ),
    )


# --- downgrade


def can_downgrade(
    group: ConsumerGroup,
    config: GroupConfig,
    *,
    removed: Collection[ConsumerGroupMember] = (),
    replaced: ConsumerGroupMember | None = None,
) -> bool:
    """Returns whether all members use the classic protocol afterwards, and the policy allows it.

    Afterwards: without `removed`, or with `replaced` replaced by a member of the classic protocol.
    """
    if replaced is not None:
        remaining = len(group.members)
        others_are_classic = (
            group.classic_members == remaining - 1 and not replaced.uses_classic_protocol
        )
    else:
        remaining = len(group.members) - len(removed)
        leaving = sum(member.uses_classic_protocol for member in removed)
        others_are_classic = group.classic_members - leaving == remaining
    return (
        others_are_classic
        and remaining > 0
        and config.group_consumer_migration_policy.allows_downgrade
        and remaining <= config.group_max_size
    )


def downgrade(
    group: ConsumerGroup,
    now: int,
    topics: Topics,
    *,
    removed: Collection[ConsumerGroupMember] = (),
    joining: ConsumerGroupMember | None = None,
) -> ClassicGroup:
    """Returns the stable classic group of the remaining members.

    `joining` replaces the member of the same static instance.
    """
    classic_group = ClassicGroup(
        group.group_id,
        state=ClassicGroupState.STABLE,
        state_timestamp=now,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        generation=group.group_epoch,
    )
    targets: Mapping[str, str] = {}
    if joining is not None and joining.instance_id is not None:
        targets = {joining.member_id: group.static_members[joining.instance_id]}
    for member in _remaining(group, removed, joining):
        classic_group.put(_classic_member(member))
    classic_group.protocol_name = classic_group.select_protocol()
    classic_group.subscribed_topics = classic_group.compute_subscribed_topics()
    for member_id, classic in list(classic_group.members.items()):
        target = group.target.get(targets.get(member_id, member_id), {})
        assignment = write_assignment(target, classic.metadata(classic_group.protocol_name), topics)
        classic_group.members[member_id] = replace(classic, assignment=assignment)
    return classic_group


def _remaining(
    group: ConsumerGroup,
    removed: Collection[ConsumerGroupMember],
    joining: ConsumerGroupMember | None,
) -> Iterator[ConsumerGroupMember]:
    removed_ids = {member.member_id for member in removed}
    for member in group.members.values():
        replaced = joining is not None and member.instance_id == joining.instance_id
        if member.member_id not in removed_ids and not replaced:
            yield member
    if joining is not None:
        yield joining


def _classic_member(member: ConsumerGroupMember) -> Member:
    assert member.classic is not None
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocols=tuple((p.name, p.metadata) for p in member.classic.supported_protocols),
    )
