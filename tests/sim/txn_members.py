"""Transformers that share the input as members of a classic group.

Each has its own transactional id. A removed member is rejected by the generation in its offset
commit, and the next owner of its partitions waits until its transaction has ended.
"""

from penstock.core.errors import ErrorCode
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.messages.join_group import JoinGroupResponse
from penstock.protocol.messages.sync_group import SyncGroupResponse
from tests.sim.txn_transforms import NOT_A_MEMBER, Transformer
from tests.support.coordinator.groups import join_request, sync_request

MEMBERS = "members"
SESSION_MS = 1_200
REBALANCE_MS = 1_200
_JOIN_TIMEOUT_MS = 4_000
_AGAIN = NOT_A_MEMBER | {ErrorCode.MEMBER_ID_REQUIRED}


class Member(Transformer):
    """A transformer of the partitions that its group assigns to it."""

    group = MEMBERS

    async def cycle(self) -> bool:
        """Sends heartbeats, and processes some of its partitions."""
        if self.generation < 0 or not await self._is_member():
            await self._join()
            return True
        await super().cycle()
        return True

    async def _is_member(self) -> bool:
        request = HeartbeatRequest(MEMBERS, self.generation, self.member_id)
        _, error, _ = await self.request_until_final(
            request, 4, HeartbeatResponse, lambda r: r.error_code
        )
        if error:
            self._left(error)
        return not error

    def _left(self, error: ErrorCode) -> None:
        assert error in _AGAIN, f"{self.name}: {error.name}"
        self.generation = -1
        self.own([])
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""

    async def _join(self) -> None:
        request = join_request(
            self.member_id, group=MEMBERS, session_ms=SESSION_MS, rebalance_ms=REBALANCE_MS
        )
        joined, error, _ = await self.request_until_final(
            request, 9, JoinGroupResponse, lambda r: r.error_code, _JOIN_TIMEOUT_MS
        )
        if error:
            if error is ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = joined.member_id
            self._left(error)
            return
        self.member_id = joined.member_id
        members = sorted(member.member_id for member in joined.members)
        assignments = {
            member: b",".join(b"%d" % p for p in range(2) if p % len(members) == n)
            for n, member in enumerate(members)
        }
        sync = sync_request(self.member_id, joined.generation_id, assignments, group=MEMBERS)
        synced, error, _ = await self.request_until_final(
            sync, 5, SyncGroupResponse, lambda r: r.error_code, _JOIN_TIMEOUT_MS
        )
        if error:
            self._left(error)
            return
        self.generation = joined.generation_id
        self.own([int(p) for p in synced.assignment.split(b",") if p])
        self.simulation.note(f"{self.name} has {self.sources} in generation {self.generation}")
        for number in self.sources:
            self.simulation.checks.owns(self.generation, number, self.member_id)
