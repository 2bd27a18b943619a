"""Members of a group of the consumer protocol (KIP-848) in a simulated cluster."""

from contextlib import suppress
from typing import Final
from uuid import UUID

from penstock.core.errors import ErrorCode
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from tests.sim.cluster.cluster_clients import DATA, Cluster
from tests.sim.cluster.cluster_groups import GroupHistory, GroupMember, LeftError

_VERSION: Final = 1
_LEAVE: Final = -1


class ConsumerMember(GroupMember):
    """A member that reconciles its partitions with those that the coordinator assigns.

    It stops reading a partition before it reports that it does not own it, and begins to read one
    only after a response that assigns it.
    """

    left_errors = frozenset(
        {
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.GROUP_ID_NOT_FOUND,
        }
    )
    commit_version = 9

    def __init__(self, cluster: Cluster, name: str, history: GroupHistory) -> None:
        super().__init__(cluster, name, history)
        self._processes = 0
        self._assigned: dict[int, UUID] = {}
        """The partitions that it is to own, with the id of their topic."""

    def leave(self) -> None:
        super().leave()
        self._assigned = {}

    async def restart(self) -> None:
        if self.epoch > 0 and self.rng.random() < 0.5:
            request = ConsumerGroupHeartbeatRequest(self.history.group, self.member_id, _LEAVE)
            with suppress(LeftError):
                await self.call_group(request, ConsumerGroupHeartbeatResponse, _VERSION)
        await super().restart()

    async def take_part(self) -> None:
        if not self.member_id:
            self._processes += 1
            self.member_id = f"{self.name}.{self._processes}"
        response = await self.call_group(
            self._heartbeat(), ConsumerGroupHeartbeatResponse, _VERSION
        )
        assert response.member_epoch >= self.epoch, f"{self.name}: its epoch falls"
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self._assigned = {
                partition: topic.topic_id
                for topic in response.assignment.topic_partitions
                for partition in topic.partitions
            }
        for partition in self.offsets.keys() - self._assigned.keys():
            del self.offsets[partition]
        for partition in self._assigned:
            if partition in self.offsets:
                self.history.own(self.epoch, partition, self.member_id)
            else:
                await self.own(partition)

    def _heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        owned: dict[UUID, list[int]] = {}
        for partition in self.offsets:
            owned.setdefault(self._assigned[partition], []).append(partition)
        return ConsumerGroupHeartbeatRequest(
            self.history.group,
            self.member_id,
            max(self.epoch, 0),
            rebalance_timeout_ms=3000,
            subscribed_topic_names=[DATA],
            topic_partitions=[
                ConsumerGroupHeartbeatRequestTopicPartitions(topic_id, partitions)
                for topic_id, partitions in owned.items()
            ],
        )
