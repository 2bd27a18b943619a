"""Members of groups over the wire, of both protocols."""

import time
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from penstock.core.errors import ErrorCode
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from penstock.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from penstock.protocol.messages.heartbeat import HeartbeatRequest
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from penstock.protocol.versioned import decode_versioned, encode_versioned
from tests.support.broker.in_process import TIMEOUT_S, WireClient

LEAVE, LEAVE_FOR_NOW = -1, -2
Partitions = dict[UUID, list[int]]
"""Partitions by id of the topic."""


class ConsumerMember:
    """A member of a consumer group (KIP-848) that follows its assignment."""

    def __init__(
        self,
        client: WireClient,
        group: str,
        member_id: str,
        *,
        names: Sequence[str] | None = None,
        regex: str | None = None,
        instance: str | None = None,
        assignor: str | None = None,
        version: int = 1,
    ) -> None:
        self.client = client
        self.group = group
        self.member_id = member_id
        self.names = names
        self.regex = regex
        self.instance = instance
        self.assignor = assignor
        self.version = version
        self.epoch = 0
        self.assigned: Partitions = {}

    def request(
        self,
        epoch: int,
        *,
        owned: Mapping[UUID, Sequence[int]] | None = None,
        names: Sequence[str] | None = None,
        regex: str | None = None,
        assignor: str | None = None,
        rebalance_ms: int = -1,
    ) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.instance,
            rebalance_timeout_ms=rebalance_ms,
            subscribed_topic_names=None if names is None else list(names),
            server_assignor=assignor,
        )
        if regex is not None:
            request.subscribed_topic_regex = regex
        if owned is not None:
            request.topic_partitions = [
                ConsumerGroupHeartbeatRequestTopicPartitions(topic_id, list(partitions))
                for topic_id, partitions in owned.items()
            ]
        return request

    def join_request(self) -> ConsumerGroupHeartbeatRequest:
        return self.request(
            0,
            owned={},
            names=self.names,
            regex=self.regex,
            assignor=self.assignor,
            rebalance_ms=60_000,
        )

    def join(self) -> Any:
        """Joins and returns the response, which may be an error."""
        self.epoch, self.assigned = 0, {}
        return self.send(self.join_request())

    def joined(self) -> "ConsumerMember":
        """Joins, which must succeed, and returns the member itself."""
        response = self.join()
        assert response.error_code == 0, (ErrorCode(response.error_code), response.error_message)
        return self

    def beat(
        self,
        owned: Mapping[UUID, Sequence[int]] | None = None,
        *,
        names: Sequence[str] | None = None,
        regex: str | None = None,
        assignor: str | None = None,
    ) -> Any:
        """Sends a heartbeat; None omits a field."""
        return self.send(
            self.request(self.epoch, owned=owned, names=names, regex=regex, assignor=assignor)
        )

    def obey(self) -> Any:
        """Sends a heartbeat that reports the assigned partitions as owned; it must succeed."""
        response = self.beat(self.assigned)
        assert response.error_code == 0, (ErrorCode(response.error_code), response.error_message)
        return response

    def leave(self, epoch: int = LEAVE) -> Any:
        return self.client.request(self.request(epoch), self.version)

    def send(self, request: ConsumerGroupHeartbeatRequest) -> Any:
        response = self.client.request(request, self.version)
        if not response.error_code:
            self.take(response)
        return response

    def take(self, response: Any) -> None:
        """Applies a response."""
        self.member_id, self.epoch = response.member_id, response.member_epoch
        if response.assignment is not None:
            topic_partitions = response.assignment.topic_partitions
            self.assigned = {topic.topic_id: sorted(topic.partitions) for topic in topic_partitions}


class ClassicMember:
    """A member of a classic group. As the leader it assigns all partitions to itself."""

    def __init__(
        self,
        client: WireClient,
        group: str,
        topics: Sequence[str],
        *,
        instance: str | None = None,
        session_ms: int = 45_000,
        version: int = 9,
    ) -> None:
        self.client = client
        self.group = group
        self.topics = topics
        self.instance = instance
        self.session_ms = session_ms
        self.version = version
        self.member_id = ""
        self.generation = -1
        self.protocol: str | None = None
        self.assigned: dict[str, list[int]] = {}

    def join_request(self) -> JoinGroupRequest:
        owned = [
            ConsumerProtocolSubscriptionTopicPartition(topic, partitions)
            for topic, partitions in self.assigned.items()
        ]
        subscription = ConsumerProtocolSubscription(
            topics=list(self.topics), owned_partitions=owned, generation_id=self.generation
        )
        return JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=60_000,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", encode_versioned(subscription, 2))],
        )

    def send_join(self) -> JoinGroupRequest:
        """Sends a JoinGroup, whose response arrives when all members have joined."""
        request = self.join_request()
        self.client.send(request, self.version)
        return request

    def receive_join(self, request: JoinGroupRequest) -> Any:
        response: Any = self.client.receive(request, self.version)
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            return self.receive_join(self.send_join())
        if not response.error_code:
            self.member_id, self.generation = response.member_id, response.generation_id
            self.protocol = response.protocol_name
        return response

    def join(self) -> Any:
        return self.receive_join(self.send_join())

    def sync(self, assignments: Mapping[str, Mapping[str, Sequence[int]]] | None = None) -> Any:
        """Sends a SyncGroup; the leader includes the assignments of all members."""
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocol_name=self.protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id, encode_assignment(assignment))
                for member_id, assignment in (assignments or {}).items()
            ],
        )
        response = self.client.request(request, 5)
        if not response.error_code:
            self.assigned = decode_assignment(response.assignment)
        return response

    def joined(self, assigned: Mapping[str, Sequence[int]] | None = None) -> "ClassicMember":
        """Joins and syncs, alone or in a group that assigns for it; returns the member itself."""
        response = self.join()
        assert response.error_code == 0, ErrorCode(response.error_code)
        assignments = (
            {self.member_id: assigned or {}} if response.leader == self.member_id else None
        )
        response = self.sync(assignments)
        assert response.error_code == 0, ErrorCode(response.error_code)
        return self

    def beat(self) -> ErrorCode:
        request = HeartbeatRequest(self.group, self.generation, self.member_id, self.instance)
        return ErrorCode(self.client.request(request, 4).error_code)

    def leave(self) -> ErrorCode:
        leaving = MemberIdentity(self.member_id, self.instance)
        response = self.client.request(LeaveGroupRequest(self.group, members=[leaving]), 5)
        return ErrorCode(response.error_code or response.members[0].error_code)


def encode_assignment(partitions: Mapping[str, Sequence[int]]) -> bytes:
    parts = [
        ConsumerProtocolAssignmentTopicPartition(topic, list(partition))
        for topic, partition in partitions.items()
    ]
    return encode_versioned(ConsumerProtocolAssignment(parts), 2)


def decode_assignment(data: bytes) -> dict[str, list[int]]:
    if not data:
        return {}
    result, _ = decode_versioned(ConsumerProtocolAssignment, data)
    return {
        partition.topic: sorted(partition.partitions) for partition in result.assigned_partitions
    }


def reconcile(*members: ConsumerMember) -> None:
    """Sends heartbeats until no response changes a member."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        before = [(member.epoch, member.assigned) for member in members]
        for item in members:
            item.obey()
        if before == [(member.epoch, member.assigned) for member in members]:
            return
        assert time.monotonic() < deadline, before


def reconcile_to(expected: Sequence[Partitions], *members: ConsumerMember) -> None:
    """Sends heartbeats until each member has its expected partitions."""
    deadline = time.monotonic() + TIMEOUT_S
    while [member.assigned for member in members] != list(expected):
        assert time.monotonic() < deadline, [member.assigned for member in members]
        for item in members:
            item.obey()


def owned_by(*members: ConsumerMember) -> Partitions:
    """Returns the partitions of all members, and checks that none has two owners."""
    result: Partitions = {}
    for member in members:
        for topic_id, partitions in member.assigned.items():
            result.setdefault(topic_id, []).extend(partitions)
    for partitions in result.values():
        assert len(partitions) == len(set(partitions)), "a partition has two owners"
        partitions.sort()
    return result
