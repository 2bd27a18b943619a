"""A simulated classic consumer: it joins, reads, commits, and times out like a real one."""

from collections.abc import Callable
from typing import TypeVar

from penstock.core.errors import ErrorCode
from penstock.protocol.fields import Message
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.messages.join_group import JoinGroupResponse
from penstock.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.protocol.messages.offset_commit import OffsetCommitResponse
from penstock.protocol.messages.offset_fetch import OffsetFetchResponse
from penstock.protocol.messages.sync_group import SyncGroupResponse
from tests.sim.group_simulation import (
    GROUP,
    MAX_DELAY_MS,
    PARTITIONS,
    REBALANCE_MS,
    SESSION_MS,
    WAIT_LIMIT_MS,
    Simulation,
    read_assignment,
    write_assignment,
)
from tests.support.coordinator.groups import (
    commit_errors,
    commit_request,
    fetch_request,
    join_request,
    sync_request,
)

R = TypeVar("R", bound=Message)
HEARTBEAT_MS = 1_500
REQUEST_TIMEOUT_MS = 8_000
_LOST_ID = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
_GO_ON = {ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}


class Client:
    """One consumer. `era` counts its attempts: responses to earlier ones are ignored."""

    def __init__(
        self, simulation: Simulation, name: str, instance: str | None, version: int
    ) -> None:
        self.simulation = simulation
        self.name = name
        self.instance = instance
        self.version = 9 if instance is not None else version
        self.alive = True
        self.member_id = ""
        self.generation = -1
        self.partitions: list[int] = []
        self.positions: dict[int, int] = {}
        self.era = 0
        self.deaf_until = 0
        """Until this time the consumer ignores errors and continues as a member."""
        self.patience_ms = simulation.random.choice([3_000, WAIT_LIMIT_MS + 2 * MAX_DELAY_MS])
        """The timeout of a JoinGroup before it is sent again."""
        self._join()

    def stop(self, *, leave: bool) -> None:
        """Crashes, or leaves the group first."""
        self.alive = False
        if leave and self.member_id:
            members = [MemberIdentity(self.member_id, self.instance)]
            request = LeaveGroupRequest(group_id=GROUP, members=members)
            self.simulation.call(request, 5, self.name, lambda response: None)

    # --- requests

    def _call(
        self,
        request: Message,
        version: int,
        response_type: type[R],
        then: Callable[[R], None],
        or_else: Callable[[], None],
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> None:
        """Sends a request; calls `then` or, after a timeout, `or_else`, unless the era ends."""
        era = self.era
        done = False

        def on_response(response: Message) -> None:
            nonlocal done
            if self.alive and era == self.era and not done:
                done = True
                assert isinstance(response, response_type)
                then(response)

        def on_timeout() -> None:
            nonlocal done
            if self.alive and era == self.era and not done:
                done = True
                or_else()

        self.simulation.call(request, version, self.name, on_response)
        self.simulation.later(timeout_ms, on_timeout)

    def _join_soon(self, *, forget: bool = False) -> None:
        self.era += 1
        era = self.era
        self.partitions = []
        if forget:
            self.member_id, self.generation = "", -1

        def go() -> None:
            if self.alive and era == self.era:
                self._join()

        self.simulation.later(self.simulation.random.randrange(50, 500), go)

    # --- joining

    def _join(self) -> None:
        request = join_request(
            self.member_id,
            group=GROUP,
            instance=self.instance,
            session_ms=SESSION_MS,
            rebalance_ms=REBALANCE_MS,
        )
        self._call(
            request,
            self.version,
            JoinGroupResponse,
            self._joined,
            self._join_soon,
            self.patience_ms,
        )

    def _joined(self, response: JoinGroupResponse) -> None:
        match ErrorCode(response.error_code):
            case ErrorCode.NONE:
                self.member_id = response.member_id
                self.generation = response.generation_id
                self._sync(response)
            case ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = response.member_id
                self._join()
            case ErrorCode.FENCED_INSTANCE_ID:
                self.alive = False
            case error:
                self._join_soon(forget=error in _LOST_ID)

    def _sync(self, joined: JoinGroupResponse) -> None:
        assignments: dict[str, bytes] = {}
        if joined.leader == self.member_id and not joined.skip_assignment:
            members = sorted(member.member_id for member in joined.members)
            for index, member in enumerate(members):
                partitions = list(range(index, PARTITIONS, len(members)))
                assignments[member] = write_assignment(self.generation, partitions)
        request = sync_request(
            self.member_id, self.generation, assignments, group=GROUP, instance=self.instance
        )
        self._call(request, 5, SyncGroupResponse, self._synced, self._join_soon, self.patience_ms)
        self._beat_soon()

    def _synced(self, response: SyncGroupResponse) -> None:
        if response.error_code:
            self._failed(ErrorCode(response.error_code))
            return
        partitions = read_assignment(response.assignment)[1] if response.assignment else []
        request = fetch_request({"t": partitions}, group=GROUP)

        def fetched(response: OffsetFetchResponse) -> None:
            group = response.groups[0]
            if group.error_code:
                self._join_soon()
                return
            self.positions = {
                p.partition_index: p.committed_offset
                for topic in group.topics
                for p in topic.partitions
            }
            self.partitions = partitions
            self._commit_soon()

        self._call(request, 9, OffsetFetchResponse, fetched, self._join_soon)

    def _failed(self, error: ErrorCode) -> None:
        if error is ErrorCode.FENCED_INSTANCE_ID:
            self.alive = False
        else:
            self._join_soon(forget=error in _LOST_ID)

    # --- membership

    def _beat_soon(self) -> None:
        era = self.era

        def beat() -> None:
            if not self.alive or era != self.era:
                return
            request = HeartbeatRequest(GROUP, self.generation, self.member_id, self.instance)
            self._call(request, 4, HeartbeatResponse, self._beaten, lambda: None)
            self._beat_soon()

        self.simulation.later(HEARTBEAT_MS, beat)

    def _beaten(self, response: HeartbeatResponse) -> None:
        error = ErrorCode(response.error_code)
        if error not in _GO_ON and not self._is_deaf():
            self._failed(error)

    def _is_deaf(self) -> bool:
        return self.simulation.now < self.deaf_until

    def _commit_soon(self) -> None:
        era = self.era

        def commit() -> None:
            if self.alive and era == self.era and self.partitions:
                self._commit()

        self.simulation.later(self.simulation.random.randrange(100, 2_000), commit)

    def _commit(self) -> None:
        """Reads some records and commits; the next commit waits for this one."""
        step = self.simulation.random.randrange(0, 10)
        self.positions = {p: max(at, 0) + step for p, at in self.positions.items()}
        request = commit_request(
            {("t", p): at for p, at in self.positions.items()},
            group=GROUP,
            member_id=self.member_id,
            generation=self.generation,
            instance=self.instance,
        )

        def done(response: OffsetCommitResponse) -> None:
            errors = set(commit_errors(response))
            if errors <= _GO_ON or self._is_deaf():
                self._commit_soon()
            else:
                self._failed(ErrorCode(max(errors)))

        self._call(request, 9, OffsetCommitResponse, done, self._commit_soon)
