"""The requests of a member with the classic protocol, and the errors of their responses."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from penstock.client.consumer.assignors import Assignor, Subscription
from penstock.client.consumer.assignors.encoding import encode_subscription
from penstock.client.consumer.group.actions import MemberSettings
from penstock.client.errors import error_code_of
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.heartbeat import HeartbeatRequest
from penstock.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from penstock.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

PROTOCOL_TYPE: Final = "consumer"
_JOIN_LAPSE_MS: Final = 5_000
"""Added to the rebalance timeout, for which a JoinGroup may wait."""
_MAX_INT: Final = 2**31 - 1
_REASON_LENGTH: Final = 255
"""Brokers reject longer reasons."""


class Generation(NamedTuple):
    """A generation and the member in it; -1 and an empty id without a membership."""

    id: int = -1
    member_id: str = ""
    protocol: str | None = None
    """The assignor that the coordinator has chosen."""


def join_request(
    settings: MemberSettings,
    generation: Generation,
    topics: Collection[str],
    owned: Iterable[TopicPartition],
    assignors: Iterable[Assignor],
    reason: str,
) -> JoinGroupRequest:
    protocols = []
    for assignor in assignors:
        subscription = Subscription(
            sorted(topics),
            assignor.subscription_user_data(topics),
            sorted(owned),
            generation.id,
            settings.rack_id,
        )
        protocols.append(JoinGroupRequestProtocol(assignor.name, encode_subscription(subscription)))
    return JoinGroupRequest(
        settings.group_id,
        settings.session_timeout_ms,
        settings.max_poll_interval_ms,
        generation.member_id,
        settings.group_instance_id,
        PROTOCOL_TYPE,
        protocols,
        reason[:_REASON_LENGTH],
    )


def join_timeout_ms(settings: MemberSettings) -> int:
    """Returns the timeout of a JoinGroup, which may wait for the whole rebalance timeout."""
    timeout_ms = max(settings.request_timeout_ms, settings.max_poll_interval_ms + _JOIN_LAPSE_MS)
    return min(timeout_ms, _MAX_INT)


def join_error(response: JoinGroupResponse) -> ErrorCode:
    """Returns the error of a response; INCONSISTENT_GROUP_PROTOCOL for a group of another type."""
    if not response.error_code and response.protocol_type not in (None, PROTOCOL_TYPE):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return error_code_of(response.error_code)


def sync_error(response: SyncGroupResponse, generation: Generation) -> ErrorCode:
    """Returns the error of a response; INCONSISTENT_GROUP_PROTOCOL for another assignor."""
    if not response.error_code and (
        response.protocol_type not in (None, PROTOCOL_TYPE)
        or response.protocol_name not in (None, generation.protocol)
    ):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return error_code_of(response.error_code)


def sync_request(
    settings: MemberSettings, generation: Generation, assignments: Mapping[str, bytes]
) -> SyncGroupRequest:
    """Returns the request; `assignments` are empty unless the member is the leader."""
    return SyncGroupRequest(
        settings.group_id,
        generation.id,
        generation.member_id,
        settings.group_instance_id,
        PROTOCOL_TYPE,
        generation.protocol,
        [SyncGroupRequestAssignment(member, data) for member, data in assignments.items()],
    )


def heartbeat_request(settings: MemberSettings, generation: Generation) -> HeartbeatRequest:
    return HeartbeatRequest(
        settings.group_id, generation.id, generation.member_id, settings.group_instance_id
    )


def leave_request(
    settings: MemberSettings, generation: Generation, reason: str
) -> LeaveGroupRequest:
    member = MemberIdentity(generation.member_id, None, reason[:_REASON_LENGTH])
    return LeaveGroupRequest(settings.group_id, members=[member])
