"""Members of consumer groups (KIP-848) for tests: their requests and the responses they receive."""

from collections.abc import Mapping, Sequence

from penstock.coordinator.group.config import ConsumerGroupConfig, GroupConfig
from penstock.core.errors import ErrorCode
from penstock.protocol.fields import Message
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from tests.support.coordinator.groups import GroupHost, id_of

SESSION_MS = 45_000
REBALANCE_MS = 30_000
INTERVAL_MS = 1_000
Partitions = dict[str, list[int]]
"""Partitions by name of the topic."""


def consumer_host(
    topics: Mapping[str, int] | None = None, config: GroupConfig | None = None
) -> GroupHost:
    """Returns a host whose groups reassign with every heartbeat, unless `config` differs."""
    if config is None:
        config = GroupConfig(consumer=ConsumerGroupConfig(assignment_interval_ms=0))
    return GroupHost(config, topics=topics or {"t": 4})


def beat_request(
    member: str,
    epoch: int,
    *,
    group: str = "g",
    names: Sequence[str] | None = None,
    regex: str | None = None,
    owned: Mapping[str, Sequence[int]] | None = None,
    instance: str | None = None,
    rebalance_ms: int = -1,
    assignor: str | None = None,
    rack: str | None = None,
) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        instance_id=instance,
        rack_id=rack,
        rebalance_timeout_ms=rebalance_ms,
        subscribed_topic_names=None if names is None else list(names),
        subscribed_topic_regex=regex,
        server_assignor=assignor,
        topic_partitions=None
        if owned is None
        else [
            ConsumerGroupHeartbeatRequestTopicPartitions(id_of(name), list(partitions))
            for name, partitions in owned.items()
        ],
    )


class Consumer:
    """A member that follows its assignment, one heartbeat at a time."""

    def __init__(
        self,
        host: GroupHost,
        member_id: str,
        *,
        names: Sequence[str] | None = ("t",),
        regex: str | None = None,
        instance: str | None = None,
        assignor: str | None = None,
        group: str = "g",
    ) -> None:
        self.host = host
        self.member_id = member_id
        self.names = names
        self.regex = regex
        self.instance = instance
        self.assignor = assignor
        self.group = group
        self.epoch = 0
        self.assigned: Partitions = {}

    def join(self) -> ConsumerGroupHeartbeatResponse:
        self.epoch, self.assigned = 0, {}
        return self.hear(
            beat_request(
                self.member_id,
                0,
                group=self.group,
                names=self.names,
                regex=self.regex,
                owned={},
                instance=self.instance,
                rebalance_ms=REBALANCE_MS,
                assignor=self.assignor,
            )
        )

    def beat(
        self,
        owned: Mapping[str, Sequence[int]] | None = None,
        *,
        names: Sequence[str] | None = None,
        regex: str | None = None,
        assignor: str | None = None,
    ) -> ConsumerGroupHeartbeatResponse:
        """Sends a heartbeat. `owned` are the partitions to report; None omits the field."""
        return self.hear(
            beat_request(
                self.member_id,
                self.epoch,
                group=self.group,
                names=names,
                regex=regex,
                owned=owned,
                instance=self.instance,
                assignor=assignor,
            )
        )

    def obey(self) -> ConsumerGroupHeartbeatResponse:
        """Sends a heartbeat that reports exactly the assigned partitions as owned."""
        return self.beat(self.assigned)

    def leave(self, epoch: int = -1) -> ConsumerGroupHeartbeatResponse:
        request = beat_request(self.member_id, epoch, group=self.group, instance=self.instance)
        return self.host.request(request, ConsumerGroupHeartbeatResponse, 1)

    def hear(self, request: Message) -> ConsumerGroupHeartbeatResponse:
        response = self.host.request(request, ConsumerGroupHeartbeatResponse, 1)
        if not response.error_code:
            self.epoch = response.member_epoch
            if response.assignment is not None:
                self.assigned = assigned_in(self.host, response)
        return response


def assigned_in(host: GroupHost, response: ConsumerGroupHeartbeatResponse) -> Partitions:
    assert response.assignment is not None
    result: Partitions = {}
    for topic in response.assignment.topic_partitions:
        name = host.topics.topic_name(topic.topic_id)
        assert name is not None
        result[name] = topic.partitions
    return result


def reconcile(*members: Consumer, rounds: int = 4) -> None:
    """Sends heartbeats until the assignment is reconciled."""
    for _ in range(rounds):
        for member in members:
            assert member.obey().error_code == ErrorCode.NONE


def kinds(host: GroupHost, since: int) -> list[int]:
    """Returns the types of the records since an offset; tombstones are negative."""
    result = []
    for record in host.records(since):
        kind = type(record.key).INFO.key
        assert kind is not None
        result.append(-kind if record.value is None else kind)
    return result
