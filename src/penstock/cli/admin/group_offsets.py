"""Committed offsets, ends and lags of groups: what `penstock group describe` shows (C2)."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client.admin import GroupDescription, MemberDescription, OffsetSpec
    from penstock.client.admin.admin import Admin
    from penstock.client.consumer.record import OffsetAndMetadata

    Committed = Mapping[TopicPartition, OffsetAndMetadata | None]


class OffsetRow(NamedTuple):
    """A partition of a group; a member without partitions has a row without one."""

    topic: str | None
    partition: int | None
    current_offset: int | None
    log_end_offset: int | None
    lag: int | None
    member_id: str | None
    host: str | None
    client_id: str | None
    group_instance_id: str | None
    leader_epoch: int | None
    metadata: str | None


def offset_rows(
    members: "Iterable[MemberDescription]",
    committed: "Committed",
    ends: Mapping[TopicPartition, int],
) -> list[OffsetRow]:
    """Returns a row for each assigned or committed partition, and each member without one."""
    owners: dict[TopicPartition, MemberDescription] = {}
    idle: list[MemberDescription] = []
    for member in members:
        owners |= dict.fromkeys(member.assignment, member)
        if not member.assignment:
            idle.append(member)
    rows = []
    for owner in sorted({*owners, *committed}):
        offset = committed.get(owner)
        end = ends.get(owner)
        current = None if offset is None else offset.offset
        rows.append(
            OffsetRow(
                owner.topic,
                owner.partition,
                current,
                end,
                None if current is None or end is None else max(0, end - current),
                *_owner(owners.get(owner)),
                None if offset is None or offset.leader_epoch < 0 else offset.leader_epoch,
                None if offset is None else offset.metadata or None,
            )
        )
    rows += [
        OffsetRow(None, None, None, None, None, *_owner(member), None, None) for member in idle
    ]
    return rows


def _owner(
    member: "MemberDescription | None",
) -> tuple[str | None, str | None, str | None, str | None]:
    if member is None:
        return None, None, None, None
    return member.member_id, member.client_host, member.client_id, member.group_instance_id


def rows_of_groups(
    admin: "Admin", groups: "Mapping[str, GroupDescription]"
) -> dict[str, list[OffsetRow]]:
    """Returns the rows of each group, with two requests for all groups together."""
    from penstock.client.admin import OffsetSpec

    committed = admin.list_group_offsets(list(groups)) if groups else {}
    partitions = {offset for offsets in committed.values() for offset in offsets}
    for group in groups.values():
        partitions.update(partition for member in group.members for partition in member.assignment)
    ends = offsets_at(admin, partitions, OffsetSpec.LATEST)
    return {
        name: offset_rows(group.members, committed.get(name, {}), ends)
        for name, group in groups.items()
    }


def offsets_at(
    admin: "Admin", partitions: Iterable[TopicPartition], spec: "OffsetSpec | int"
) -> dict[TopicPartition, int]:
    """Returns offsets of partitions, without those that do not exist or are not available now."""
    from penstock.client.admin import AdminError

    specs = dict.fromkeys(partitions, spec)
    if not specs:
        return {}
    try:
        listed_offsets = admin.list_offsets(specs)
    except AdminError as error:
        listed_offsets = error.results
    return {
        partition: listed.offset
        for partition, listed in listed_offsets.items()
        if listed.offset >= 0
    }
