"""The registry of group types. A new type has its own package and one line in `GROUP_TYPES`."""

from typing import Any

from penstock.coordinator.group.classic.group_type import ClassicGroupType
from penstock.coordinator.group.consumer.group_type import ConsumerGroupType
from penstock.coordinator.group.group import Group
from penstock.coordinator.group.group_type import (
    DescribeRequest,
    ErrorResponse,
    GroupType,
    MemberHandler,
)
from penstock.coordinator.group.record import Record, RecordType
from penstock.protocol.fields import Message

GROUP_TYPES: tuple[GroupType[Any], ...] = (
    ClassicGroupType(),
    ConsumerGroupType(),
)

_BY_GROUP_CLASS: dict[type, GroupType[Any]] = {
    group_type.group_class: group_type for group_type in GROUP_TYPES
}
TYPE_OF_RECORD: dict[type[Record], GroupType[Any]] = {
    group_type.record_class: group_type for group_type in GROUP_TYPES
}
GROUP_RECORD_TYPES: dict[int, RecordType] = {
    number: record_type
    for group_type in GROUP_TYPES
    for number, record_type in group_type.record_types.items()
}
ENTRY_REQUESTS: dict[type[Message], MemberHandler] = {
    request: handler
    for group_type in GROUP_TYPES
    for request, handler in group_type.entry_requests.items()
}
DESCRIBE_REQUESTS: dict[type[Message], DescribeRequest] = {
    request: description
    for group_type in GROUP_TYPES
    for request, description in group_type.describe_requests.items()
}
ERROR_RESPONSES: dict[type[Message], ErrorResponse] = {
    request: responder
    for group_type in GROUP_TYPES
    for request, responder in group_type.error_responses.items()
}


def type_of(group: Group) -> GroupType[Any]:
    return _BY_GROUP_CLASS[type(group)]
