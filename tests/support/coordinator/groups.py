"""A host of one group shard in memory: a log of bytes, a manual clock, responses by number."""

from collections.abc import Mapping, Sequence
from uuid import UUID, uuid5

from penstock.coordinator.group.classic.model import ClassicGroup
from penstock.coordinator.group.config import GroupConfig
from penstock.coordinator.group.consumer.model import ConsumerGroup
from penstock.coordinator.group.events import (
    Context,
    Event,
    Requested,
    ResolveRegexes,
    Result,
    TopicsChanged,
)
from penstock.coordinator.group.record import Record
from penstock.coordinator.group.records import decode_record, encode_record
from penstock.coordinator.group.shard import GroupShard
from penstock.coordinator.machine import Skipped
from penstock.core.errors import ErrorCode
from penstock.protocol.fields import Message
from penstock.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from penstock.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from penstock.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from penstock.protocol.versioned import encode_versioned
from tests.support.coordinator.shard_host import ShardHost

SESSION_MS = 10_000
REBALANCE_MS = 60_000

_NAMESPACE = UUID(int=7)


class FakeTopics:
    """Topics with so many partitions each; an id follows from the name."""

    def __init__(self, partitions: Mapping[str, int]) -> None:
        self.partitions = dict(partitions)
        self.racks: dict[tuple[str, int], list[str]] = {}

    def topic_id(self, name: str) -> UUID | None:
        return id_of(name) if name in self.partitions else None

    def topic_name(self, topic_id: UUID) -> str | None:
        return next((name for name in self.partitions if id_of(name) == topic_id), None)

    def has_partition(self, name: str, partition: int) -> bool:
        return 0 <= partition < self.partitions.get(name, 0)

    def partition_count(self, name: str) -> int:
        return self.partitions.get(name, 0)

    def partition_racks(self, name: str, partition: int) -> Sequence[str]:
        return self.racks.get((name, partition), ())


def id_of(topic: str) -> UUID:
    return uuid5(_NAMESPACE, topic)


class GroupHost(ShardHost[GroupShard, Event, Result, Record]):
    """Hosts a `GroupShard`."""

    def __init__(
        self,
        config: GroupConfig | None = None,
        *,
        topics: Mapping[str, int] | None = None,
        check_pure: bool = True,
    ) -> None:
        self.config = config or GroupConfig(group_initial_rebalance_delay_ms=3_000)
        self.topics = FakeTopics({"t": 4, "u": 2} if topics is None else topics)
        self.regexes: list[ResolveRegexes] = []
        """Patterns that wait for the test to resolve them."""
        super().__init__(check_pure=check_pure)

    def new_shard(self) -> GroupShard:
        return GroupShard(self.config, self.topics)

    def _state(self) -> str:
        return f"{self.shard.groups!r} {self.shard.offsets.groups!r}"

    def _encode(self, record: Record) -> tuple[bytes, bytes | None]:
        return encode_record(record)

    def _decode(self, key: bytes, value: bytes | None) -> Record | Skipped:
        return decode_record(key, value)

    def _has_bytes(self, message: Message, version: int) -> bool:
        return version >= 8 or not isinstance(message, OffsetFetchResponse)

    def send(
        self,
        request: Message,
        version: int | None = None,
        *,
        client_id: str = "client",
        client_host: str = "/127.0.0.1",
    ) -> int:
        """Returns the number of the waiter; the response may come at once, or later."""
        waiter, version = self._new_waiter(request, version)
        uuid = str(uuid5(_NAMESPACE, str(waiter)))
        context = Context(waiter, version, client_id, client_host, uuid, self.topics)
        self.event(Requested(request, context))
        return waiter

    def make_topics(self, partitions: Mapping[str, int]) -> None:
        """Creates topics, or sets their number of partitions; 0 deletes a topic."""
        before = set(self.topics.partitions)
        for name, count in partitions.items():
            if count:
                self.topics.partitions[name] = count
            else:
                del self.topics.partitions[name]
        created = not partitions.keys() <= before
        self.event(TopicsChanged(frozenset(partitions), created))

    def classic(self, group_id: str = "g") -> ClassicGroup:
        group = self.shard.groups[group_id]
        assert isinstance(group, ClassicGroup)
        return group

    def consumer(self, group_id: str = "g") -> ConsumerGroup:
        group = self.shard.groups[group_id]
        assert isinstance(group, ConsumerGroup)
        return group

    def _perform(self, result: Result) -> None:
        if not (result.records and self.append_error is not None):
            self.regexes.extend(result.regexes)
        super()._perform(result)

    def commit_fails(self, error: ErrorCode = ErrorCode.REQUEST_TIMED_OUT) -> None:
        """The results that are held back time out."""
        held, self.held, self.commits = self.held, [], True
        for result in held:
            self._perform(self.shard.write_failed(result, error, self.now, applied=True))


# --- requests


def subscription(*topics: str) -> bytes:
    return encode_versioned(ConsumerProtocolSubscription(topics=list(topics)), 1)


def assignment(*partitions: tuple[str, int]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    parts = [ConsumerProtocolAssignmentTopicPartition(t, p) for t, p in by_topic.items()]
    return encode_versioned(ConsumerProtocolAssignment(parts), 1)


def join_request(
    member_id: str = "",
    *,
    group: str = "g",
    instance: str | None = None,
    protocols: Mapping[str, bytes] | None = None,
    protocol_type: str = "consumer",
    session_ms: int = SESSION_MS,
    rebalance_ms: int = REBALANCE_MS,
) -> JoinGroupRequest:
    offered = {"range": subscription("t")} if protocols is None else protocols
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name, data) for name, data in offered.items()],
    )


def sync_request(
    member_id: str,
    generation: int,
    assignments: Mapping[str, bytes] | None = None,
    *,
    group: str = "g",
    instance: str | None = None,
    protocol_type: str | None = "consumer",
    protocol_name: str | None = "range",
) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        assignments=[SyncGroupRequestAssignment(m, a) for m, a in (assignments or {}).items()],
    )


def commit_request(
    offsets: Mapping[tuple[str, int], int],
    *,
    group: str = "g",
    member_id: str = "",
    generation: int = -1,
    instance: str | None = None,
    metadata: str | None = "",
    retention_ms: int = -1,
) -> OffsetCommitRequest:
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for (name, partition), offset in offsets.items():
        topic = topics.setdefault(name, OffsetCommitRequestTopic(name, id_of(name)))
        topic.partitions.append(
            OffsetCommitRequestPartition(partition, offset, committed_metadata=metadata)
        )
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance,
        retention_time_ms=retention_ms,
        topics=list(topics.values()),
    )


def fetch_request(
    partitions: Mapping[str, list[int]] | None, *, group: str = "g"
) -> OffsetFetchRequest:
    """In the form that a shard gets: that of version 8 and later."""
    topics = (
        None
        if partitions is None
        else [OffsetFetchRequestTopics(n, id_of(n), p) for n, p in partitions.items()]
    )
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=topics)])


def committed(host: GroupHost, *, group: str = "g") -> dict[tuple[str, int], int]:
    """Returns all offsets of a group from OffsetFetch."""
    response = host.request(fetch_request(None, group=group), OffsetFetchResponse, 9)
    return {
        (topic.name, p.partition_index): p.committed_offset
        for topic in response.groups[0].topics
        for p in topic.partitions
    }


def commit_errors(response: OffsetCommitResponse) -> list[int]:
    return [p.error_code for topic in response.topics for p in topic.partitions]


# --- groups that are there already


def stable_group(host: GroupHost, size: int, *, instances: Sequence[str] = ()) -> list[str]:
    """Form a group of `size` dynamic members and some static ones; ids, the leader's first.

    Each member is assigned the bytes of its own id.
    """
    waiters = [host.send(join_request(), 3) for _ in range(size)]
    waiters += [host.send(join_request(instance=name)) for name in instances]
    host.advance(2 * host.config.group_initial_rebalance_delay_ms)
    joined = [host.response(waiter, JoinGroupResponse) for waiter in waiters]
    ids = [response.member_id for response in joined]
    ids.sort(key=lambda member_id: member_id != joined[0].leader)
    sync_all(host, ids, joined[0].generation_id)
    return ids


def sync_all(host: GroupHost, ids: Sequence[str], generation: int) -> list[SyncGroupResponse]:
    """All members send SyncGroup; the first is the leader, which assigns ids as bytes."""
    followers = [host.send(sync_request(member, generation)) for member in ids[1:]]
    assigned = {member: member.encode() for member in ids}
    leader = host.send(sync_request(ids[0], generation, assigned))
    return [host.response(waiter, SyncGroupResponse) for waiter in [leader, *followers]]
