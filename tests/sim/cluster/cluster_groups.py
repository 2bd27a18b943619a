"""Members of a group in a simulated cluster, which commit offsets for the partitions they own."""

from typing import Any

from penstock.core.errors import ErrorCode
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
from tests.sim.cluster.cluster_clients import DATA, GROUP_KEY, Client, Cluster
from tests.support.coordinator.groups import join_request, sync_request

GROUP = "members"
_PARTITIONS = 3
_NOT_A_MEMBER = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.MEMBER_ID_REQUIRED,
    }
)


class LeftError(Exception):
    """The client is not a member of the current generation."""


class GroupHistory:
    """The owners of partitions, and the offsets that were committed."""

    def __init__(self) -> None:
        self._owners: dict[tuple[int, int], str] = {}
        self.committed = dict.fromkeys(range(_PARTITIONS), 0)
        """The highest offset of each partition whose commit was acknowledged."""

    def own(self, generation: int, partition: int, member_id: str) -> None:
        owner = self._owners.setdefault((generation, partition), member_id)
        assert owner == member_id, (
            f"{owner} and {member_id} own partition {partition} in generation {generation}"
        )


class Member(Client):
    """A member of a classic group."""

    can_be_late = False
    """An offset that is committed late would replace a newer one, as in Kafka."""

    def __init__(self, cluster: Cluster, name: str, history: GroupHistory) -> None:
        super().__init__(cluster, name)
        self._history = history
        self._member_id = ""
        self._generation = -1
        self._offsets: dict[int, int] = {}

    async def run(self) -> None:
        while not self.is_stopping:
            try:
                if self._generation < 0:
                    await self._join()
                else:
                    heartbeat = HeartbeatRequest(GROUP, self._generation, self._member_id)
                    await self._call(heartbeat, HeartbeatResponse, 4)
                    for partition in self._offsets:
                        await self._commit(partition)
            except LeftError:
                self._generation = -1
                self._offsets.clear()
            await self.pause(500)

    async def _call(
        self, message: Message, response_type: type[Message], version: int, code: Any = None
    ) -> Any:
        response, error, _ = await self.call(
            GROUP_KEY, GROUP, message, response_type, version, code or _error_code
        )
        if error:
            assert error in _NOT_A_MEMBER, f"{self.name}: {type(message).__name__} {error.name}"
            if error is ErrorCode.UNKNOWN_MEMBER_ID:
                self._member_id = ""
            elif error is ErrorCode.MEMBER_ID_REQUIRED:
                self._member_id = response.member_id
            raise LeftError
        return response

    async def _join(self) -> None:
        join = join_request(self._member_id, group=GROUP, session_ms=1500, rebalance_ms=1500)
        joined = await self._call(join, JoinGroupResponse, 9)
        self._member_id = joined.member_id
        members = sorted(member.member_id for member in joined.members)
        assignments = {
            member: b",".join(b"%d" % p for p in range(_PARTITIONS) if p % len(members) == number)
            for number, member in enumerate(members)
        }
        sync = sync_request(self._member_id, joined.generation_id, assignments, group=GROUP)
        synced = await self._call(sync, SyncGroupResponse, 5)
        self._generation = joined.generation_id
        for partition in map(int, filter(None, synced.assignment.split(b","))):
            self._history.own(self._generation, partition, self._member_id)
            self._offsets[partition] = await self.committed_offset(partition)

    async def committed_offset(self, partition: int) -> int:
        """Returns the committed offset, which must not be less than an acknowledged one."""
        least = self._history.committed[partition]
        request = OffsetFetchRequest(GROUP, [OffsetFetchRequestTopic(DATA, [partition])])

        def code(response: OffsetFetchResponse) -> int:
            return response.error_code or response.topics[0].partitions[0].error_code

        response, error, _ = await self.call_current(GROUP, request, OffsetFetchResponse, 7, code)
        assert not error, f"{self.name}: OffsetFetch {error.name}"
        offset: int = max(response.topics[0].partitions[0].committed_offset, 0)
        assert offset >= least, f"{GROUP} had committed {least} of {partition}, now {offset}"
        return offset

    async def _commit(self, partition: int) -> None:
        offset = self._offsets[partition] + 1
        topic = OffsetCommitRequestTopic(
            DATA, partitions=[OffsetCommitRequestPartition(partition, offset)]
        )
        request = OffsetCommitRequest(GROUP, self._generation, self._member_id, topics=[topic])
        await self._call(
            request, OffsetCommitResponse, 8, lambda r: r.topics[0].partitions[0].error_code
        )
        self._offsets[partition] = offset
        committed = self._history.committed
        committed[partition] = max(committed[partition], offset)


def _error_code(response: Any) -> int:
    code: int = response.error_code
    return code
