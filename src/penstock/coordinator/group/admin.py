"""ListGroups and DeleteGroups; each group type describes its own groups."""

from collections.abc import Iterable, Mapping

from penstock.coordinator.group.group import Group
from penstock.coordinator.group.group_types import type_of
from penstock.coordinator.group.offsets.store import Offsets
from penstock.coordinator.group.record import Record
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.delete_groups import DeletableGroupResult
from penstock.protocol.messages.list_groups import ListedGroup


def list_groups(
    groups: Iterable[Group], states: Iterable[str], types: Iterable[str]
) -> list[ListedGroup]:
    """Returns the groups in one of these states and of one of these types; empty means any."""
    state_filter = {state.strip().lower() for state in states}
    type_filter = {name.strip().lower() for name in types}
    listed = []
    for group in groups:
        group_type = type_of(group)
        if type_filter and group_type.name not in type_filter:
            continue
        state = group.state.value
        if not state_filter or state.lower() in state_filter:
            protocol_type = group_type.protocol_type(group)
            listed.append(ListedGroup(group.group_id, protocol_type, state, group_type.name))
    return listed


def delete_groups(
    group_ids: Iterable[str], groups: Mapping[str, Group], offsets: Offsets
) -> tuple[list[Record], list[DeletableGroupResult]]:
    """Returns the records that delete those groups that are empty, and the results."""
    records: list[Record] = []
    results: list[DeletableGroupResult] = []
    for group_id in group_ids:
        group = groups.get(group_id)
        if group is None:
            error, message = ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found."
            results.append(DeletableGroupResult(group_id, error, message))
        elif not group.is_empty:
            message = f"Group {group_id} still has members: stop them first."
            results.append(DeletableGroupResult(group_id, ErrorCode.NON_EMPTY_GROUP, message))
        else:
            records.extend(offsets.tombstones(group_id))
            records.extend(type_of(group).tombstones(group))
            results.append(DeletableGroupResult(group_id, ErrorCode.NONE, None))
    return records, results
