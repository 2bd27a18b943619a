"""Members of groups in a simulated cluster, which read partitions and commit their positions.

`GroupMember` has what both protocols share, `Member` belongs to a classic group. Members of the
consumer protocol are in `cluster_consumer_groups.py`.
"""

from typing import Any

from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.protocol.fields import Message
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.messages.join_group import JoinGroupResponse
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from penstock.protocol.messages.sync_group import SyncGroupResponse
from tests.sim.cluster.cluster_clients import DATA, GROUP_KEY, Client, Cluster, Consumer
from tests.support.coordinator.groups import join_request, sync_request

PARTITIONS = 3


class LeftError(Exception):
    """The client is not a member of the current generation."""


class StaleEpochError(Exception):
    """The member does not know its current epoch yet."""


class GroupHistory:
    """The owners of the partitions of a group, and the offsets that were committed."""

    def __init__(self, group: str) -> None:
        self.group = group
        self._owners: dict[tuple[int, int], str] = {}
        self.committed = dict.fromkeys(range(PARTITIONS), 0)
        """The highest offset of each partition whose commit was acknowledged."""

    def own(self, epoch: int, partition: int, member_id: str) -> None:
        """Notes the owner of a partition in a generation, or in an epoch of members."""
        owner = self._owners.setdefault((epoch, partition), member_id)
        assert owner == member_id, (
            f"{self.group}: {owner} and {member_id} own partition {partition} in epoch {epoch}"
        )


class GroupReader(Consumer):
    """Reads for a member, with `auto.offset.reset=earliest`."""

    def check_error(self, key: TopicPartition, error: ErrorCode) -> None:
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self.seek(key, 0)
        else:
            super().check_error(key, error)


class GroupMember(Client):
    """A member of a group, of either protocol.

    It begins to read at the committed offset, and never gets back behind it. Sometimes its process
    is replaced by another one, which knows nothing of the cluster.
    """

    timeout_ms = 1000
    can_be_late = False
    """An offset that is committed late would replace a newer one, as in Kafka."""
    left_errors: frozenset[ErrorCode]
    """They mean that the client is not a member any longer."""
    commit_version: int
    pause_ms = 500
    """The longest time between two requests."""

    def __init__(self, cluster: Cluster, name: str, history: GroupHistory) -> None:
        super().__init__(cluster, name)
        self.history = history
        self.can_restart = True
        self.member_id = ""
        self.epoch = -1
        """The generation, or the member's epoch; negative while it is not a member."""
        self.offsets: dict[int, int] = {}
        """The partitions that it owns, with the offsets that it has committed."""
        self._reader = self._new_reader()

    async def run(self) -> None:
        while not self.is_stopping:
            try:
                await self.take_part()
                for partition in list(self.offsets):
                    await self._read(partition)
                    await self.commit(partition)
            except LeftError:
                self.leave()
            except StaleEpochError:
                self.cluster.note(f"{self.name} has an old epoch")
            if self.can_restart and self.rng.random() < 0.03:
                await self.restart()
            await self.pause(self.pause_ms)

    async def take_part(self) -> None:
        """Joins the group, or shows that it is alive; raises LeftError."""
        raise NotImplementedError

    def leave(self) -> None:
        """The member does not own anything any longer."""
        self.epoch = -1
        self.offsets.clear()

    async def restart(self) -> None:
        """Replaces the process by one with another member id, which must find the leaders again."""
        self.leave()
        self.member_id = ""
        self._reader = self._new_reader()

    def _new_reader(self) -> GroupReader:
        keys = [TopicPartition(DATA, number) for number in range(PARTITIONS)]
        return GroupReader(self.cluster, self.name, keys)

    async def call_group(
        self, message: Message, response_type: type[Message], version: int, code: Any = None
    ) -> Any:
        """Returns the response of the coordinator; raises LeftError."""
        response, error, _ = await self.call(
            GROUP_KEY, self.history.group, message, response_type, version, code or _error_code
        )
        if error is ErrorCode.STALE_MEMBER_EPOCH:
            raise StaleEpochError
        if error:
            assert error in self.left_errors, f"{self.name}: {type(message).__name__} {error.name}"
            if error is ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            elif error is ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = response.member_id
            raise LeftError
        return response

    async def own(self, partition: int) -> None:
        """Begins to read a partition."""
        self.history.own(self.epoch, partition, self.member_id)
        offset = await self.committed_offset(partition)
        self._reader.seek(TopicPartition(DATA, partition), offset)
        self.offsets[partition] = offset

    async def committed_offset(self, partition: int) -> int:
        """Returns the committed offset, which must not be less than an acknowledged one."""
        group = self.history.group
        least = self.history.committed[partition]
        request = OffsetFetchRequest(group, [OffsetFetchRequestTopic(DATA, [partition])])

        def code(response: OffsetFetchResponse) -> int:
            return response.error_code or response.topics[0].partitions[0].error_code

        response, error, _ = await self.call_current(group, request, OffsetFetchResponse, 7, code)
        assert not error, f"{self.name}: OffsetFetch {error.name}"
        offset: int = max(response.topics[0].partitions[0].committed_offset, 0)
        assert offset >= least, f"{group} had committed {least} of {partition}, now {offset}"
        return offset

    async def _read(self, partition: int) -> None:
        key = TopicPartition(DATA, partition)
        reader = self._reader
        try:
            for offset, value in await reader.poll(key):
                self.cluster.history.observe("consumed", key, offset, value)
        except KafkaError:
            reader.forget(key)
        position, committed = reader.position(key), self.offsets[partition]
        assert position >= committed, (
            f"{self.name} of {self.history.group} had committed {key} to {committed}, and its "
            f"position goes back to {position}"
        )

    async def commit(self, partition: int) -> None:
        offset = self._reader.position(TopicPartition(DATA, partition))
        topic = OffsetCommitRequestTopic(
            DATA, partitions=[OffsetCommitRequestPartition(partition, offset)]
        )
        request = OffsetCommitRequest(
            self.history.group, self.epoch, self.member_id, topics=[topic]
        )
        await self.call_group(
            request,
            OffsetCommitResponse,
            self.commit_version,
            lambda r: r.topics[0].partitions[0].error_code,
        )
        self.offsets[partition] = offset
        committed = self.history.committed
        committed[partition] = max(committed[partition], offset)


class Member(GroupMember):
    """A member of a classic group."""

    left_errors = frozenset(
        {
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.REBALANCE_IN_PROGRESS,
            ErrorCode.MEMBER_ID_REQUIRED,
        }
    )
    commit_version = 8

    async def take_part(self) -> None:
        if self.epoch < 0:
            await self._join()
        else:
            heartbeat = HeartbeatRequest(self.history.group, self.epoch, self.member_id)
            await self.call_group(heartbeat, HeartbeatResponse, 4)

    async def _join(self) -> None:
        group = self.history.group
        join = join_request(self.member_id, group=group, session_ms=1500, rebalance_ms=1500)
        joined = await self.call_group(join, JoinGroupResponse, 9)
        self.member_id = joined.member_id
        members = sorted(member.member_id for member in joined.members)
        assignments = {
            member: b",".join(b"%d" % p for p in range(PARTITIONS) if p % len(members) == number)
            for number, member in enumerate(members)
        }
        sync = sync_request(self.member_id, joined.generation_id, assignments, group=group)
        synced = await self.call_group(sync, SyncGroupResponse, 5)
        self.epoch = joined.generation_id
        for partition in map(int, filter(None, synced.assignment.split(b","))):
            await self.own(partition)


class AssignedConsumer(GroupMember):
    """A consumer that reads all partitions and commits, without the group's assignment."""

    left_errors = frozenset()
    commit_version = 8

    async def take_part(self) -> None:
        for partition in range(PARTITIONS):
            if partition not in self.offsets:
                await self.own(partition)


class RestartedConsumer(GroupMember):
    """A consumer that is started again and again at the offsets that another one has committed.

    It may find a leader that does not know yet that it was replaced, and has fewer records than
    were committed.
    """

    pause_ms = 100

    async def take_part(self) -> None:
        await self.restart()
        await self.own(self.rng.randrange(PARTITIONS))

    async def commit(self, partition: int) -> None:
        """Does nothing: the other consumer commits."""


def unassigned(members: list[GroupMember]) -> str:
    """Returns what is wrong with the assignment of a group that nothing disturbs; empty if nothing.

    Every partition has one owner, and every member owns a partition.
    """
    owned = [sorted(member.offsets) for member in members]
    partitions = sorted(partition for partitions in owned for partition in partitions)
    if all(owned) and partitions == list(range(PARTITIONS)):
        return ""
    owners = {member.name: sorted(member.offsets) for member in members}
    return f"the members of {members[0].history.group} own {owners}"


def _error_code(response: Any) -> int:
    code: int = response.error_code
    return code
