"""A simulation of one group shard: a clock, a lossy network, a coordinator that crashes.

The seed determines everything. The coordinator appends to a log whose high watermark lags behind;
when it crashes, uncommitted records may be lost. Invariants are checked at every step; see
`GroupChecks`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.coordinator.group.classic.model import ClassicGroup, ClassicGroupState, group_value
from penstock.coordinator.group.classic.records import ClassicGroupRecord
from penstock.coordinator.group.config import GroupConfig
from penstock.coordinator.group.events import Context, Requested, Result, Timer
from penstock.coordinator.group.offsets.records import OffsetRecord
from penstock.coordinator.group.record import Record
from penstock.coordinator.group.records import decode_record, encode_record
from penstock.coordinator.group.responses import error_response
from penstock.coordinator.group.shard import GroupShard
from penstock.coordinator.machine import SetTimer, Skipped, TimerFired
from penstock.coordinator.timers import TimerQueue
from penstock.core.errors import ErrorCode
from penstock.protocol.fields import Message
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.sim.event_queue import EventQueue
from tests.support.coordinator.groups import FakeTopics

GROUP = "readers"
PARTITIONS = 6
REBALANCE_MS = 12_000
SESSION_MS = 6_000
COMMIT_TIMEOUT_MS = 5_000
MAX_DELAY_MS = 800
RESET = "reset"
"""The metadata of a commit with which a user resets offsets to earlier ones."""

WAIT_LIMIT_MS = REBALANCE_MS + COMMIT_TIMEOUT_MS + 1_000
"""The limit for the response to a JoinGroup or SyncGroup that reached the coordinator."""


@dataclass
class Faults:
    """The probabilities of faults. All zero: the simulation recovers."""

    loss: float = 0.0
    late: float = 0.0
    append: float = 0.0
    slow_commit: float = 0.0
    crashes: bool = False


class Simulation(EventQueue):
    """The clock and the network."""

    def __init__(self, seed: int, faults: Faults) -> None:
        super().__init__(seed, lambda: self.coordinator.check())
        self.faults = faults
        self.coordinator = Coordinator(self)

    def call(
        self,
        request: Message,
        version: int,
        client_id: str,
        on_response: Callable[[Message], None],
    ) -> None:
        """Sends a request; the response arrives later or never.

        Requests in flight are lost with the connection when the coordinator crashes. The next
        coordinator would accept a SyncGroup of the old one for its own generation: classic groups
        store a generation only once it is assigned, so that its number may be reused.
        """
        incarnation = self.coordinator.incarnation

        def arrive() -> None:
            if incarnation == self.coordinator.incarnation:
                self.coordinator.receive(request, version, client_id, respond)

        def respond(response: Message) -> None:
            if not self.chance(self.faults.loss):
                self.later(self.random.randrange(1, MAX_DELAY_MS), lambda: on_response(response))

        if self.chance(self.faults.loss):
            return
        delay = self.random.randrange(1, MAX_DELAY_MS)
        # A commit that overtakes a later one of the same member would win, as in Kafka.
        if not isinstance(request, OffsetCommitRequest) and self.chance(self.faults.late):
            delay += self.random.randrange(WAIT_LIMIT_MS)
        self.later(delay, arrive)


@dataclass
class Waiting:
    request: Message
    version: int
    since: int
    respond: Callable[[Message], None]


@dataclass
class Held:
    """A result whose responses wait until the log is committed up to `end`."""

    result: Result
    end: int
    deadline: int


class Coordinator:
    """A host of a shard, as its docstring describes, over a log in memory."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.config = GroupConfig(group_initial_rebalance_delay_ms=1_000)
        self.topics = FakeTopics({"t": PARTITIONS})
        self.log: list[tuple[bytes, bytes | None]] = []
        self.committed = 0
        self.checks = GroupChecks()
        self.incarnation = 0
        self.up = False
        self.waiter = 0
        self._start()

    # --- start and crash

    def _start(self) -> None:
        self.incarnation += 1
        self.up = True
        self.shard = self.reloaded()
        self.timers: TimerQueue[Timer] = TimerQueue()
        self.waiting: dict[int, Waiting] = {}
        self.held: list[Held] = []
        self.committed = len(self.log)
        self.checks.restarted(self.shard)
        self._perform(self.shard.start(self.simulation.now))

    def reloaded(self) -> GroupShard:
        """Returns a shard that is loaded from the bytes of the log alone."""
        shard = GroupShard(self.config, self.topics)
        for key, value in self.log:
            record = decode_record(key, value)
            assert not isinstance(record, Skipped)
            shard.apply(record)
        return shard

    def crash(self) -> None:
        """Stops the coordinator and loses some uncommitted records; the next one starts soon."""
        if not self.up:
            return
        self.up = False
        self.incarnation += 1
        keep = self.simulation.random.randint(self.committed, len(self.log))
        del self.log[keep:]
        self.simulation.later(self.simulation.random.randrange(100, 3_000), self._start)

    # --- the host

    def receive(
        self, request: Message, version: int, client_id: str, response: Callable[[Message], None]
    ) -> None:
        if not self.up:
            if self.simulation.chance(0.5):
                response(error_response(request, version, ErrorCode.NOT_COORDINATOR))
            return
        self.waiter += 1
        self.waiting[self.waiter] = Waiting(request, version, self.simulation.now, response)
        uuid = f"{self.simulation.random.getrandbits(64):016x}"
        context = Context(self.waiter, version, client_id, "/sim", uuid, self.topics)
        self._perform(self.shard.handle(Requested(request, context), self.simulation.now))
        self._schedule_timers()

    def _tick(self, incarnation: int) -> None:
        if not self.up or incarnation != self.incarnation:
            return
        now = self.simulation.now
        while (timer := self.timers.pop_due(now)) is not None:
            self._perform(self.shard.handle(TimerFired(timer), now))
        self._schedule_timers()

    def _schedule_timers(self) -> None:
        deadline = self.timers.next_deadline()
        if deadline is not None:
            incarnation = self.incarnation
            self.simulation.later(
                max(deadline - self.simulation.now, 0), lambda: self._tick(incarnation)
            )

    def _perform(self, result: Result) -> None:
        now = self.simulation.now
        if result.records and self.simulation.chance(self.simulation.faults.append):
            error = ErrorCode.NOT_ENOUGH_REPLICAS
            self._perform_failed(self.shard.write_failed(result, error, now, applied=False))
            return
        self.log.extend(encode_record(record) for record in result.records)
        self._change(result)
        self.checks.appended(result.records)
        self.held.append(Held(result, len(self.log), now + COMMIT_TIMEOUT_MS))
        if self.simulation.chance(self.simulation.faults.slow_commit):
            delay = self.simulation.random.randrange(1, 2 * COMMIT_TIMEOUT_MS)
            incarnation, end = self.incarnation, len(self.log)
            self.simulation.later(delay, lambda: self._commit(incarnation, end))
            self.simulation.later(COMMIT_TIMEOUT_MS, lambda: self._time_out(incarnation))
        else:
            self._commit(self.incarnation, len(self.log))

    def _perform_failed(self, result: Result) -> None:
        assert not result.records
        self._change(result)
        self._respond(result)

    def _change(self, result: Result) -> None:
        self.checks.decided(result, classic_group(self.shard))
        for change in result.changes:
            self.shard.apply(change)
        for timer in result.timers:
            if isinstance(timer, SetTimer):
                self.timers.set(timer.timer, timer.deadline_ms)
            else:
                self.timers.cancel(timer.timer)

    def _commit(self, incarnation: int, end: int) -> None:
        if not self.up or incarnation != self.incarnation:
            return
        self.committed = max(self.committed, end)
        ready = [held for held in self.held if held.end <= self.committed]
        self.held = [held for held in self.held if held.end > self.committed]
        for held in ready:
            self._respond(held.result)

    def _time_out(self, incarnation: int) -> None:
        if not self.up or incarnation != self.incarnation:
            return
        late = [held for held in self.held if held.deadline <= self.simulation.now]
        self.held = [held for held in self.held if held.deadline > self.simulation.now]
        for held in late:
            error = ErrorCode.REQUEST_TIMED_OUT
            self._perform_failed(
                self.shard.write_failed(held.result, error, self.simulation.now, applied=True)
            )
        self._schedule_timers()

    def _respond(self, result: Result) -> None:
        for response in result.responses:
            waiting = self.waiting.pop(response.waiter, None)
            assert waiting is not None, f"{response} is for nobody, or comes twice"
            self.checks.responded(waiting.request, response.message)
            waiting.respond(response.message)

    # --- invariants

    def check(self) -> None:
        if not self.up:
            return
        for waiting in self.waiting.values():
            age = self.simulation.now - waiting.since
            assert age <= WAIT_LIMIT_MS, f"{waiting.request} has waited for {age} ms"
            if not isinstance(waiting.request, JoinGroupRequest | SyncGroupRequest):
                assert age <= COMMIT_TIMEOUT_MS, f"{waiting.request} waits for the log only"
        group = classic_group(self.shard)
        if group is not None:
            awaiting = [m for m in group.members.values() if m.awaiting_join is not None]
            assert group.awaiting_joins == len(awaiting)
            assert set(group.static_members.values()) <= set(group.members)
            assert group.pending_syncs <= set(group.members)
            assert (group.leader in group.members) == bool(group.members)

    def check_replay(self) -> None:
        """Checks that the log alone restores the offsets, and a stable or empty group."""
        replayed = self.reloaded()
        assert replayed.offsets.groups == self.shard.offsets.groups
        assert set(replayed.groups) == set(self.shard.groups)
        for group_id, group in self.shard.groups.items():
            stored_group = replayed.groups[group_id]
            assert isinstance(group, ClassicGroup)
            assert isinstance(stored_group, ClassicGroup)
            if group.state in (ClassicGroupState.STABLE, ClassicGroupState.EMPTY):
                stored, live = group_value(stored_group), group_value(group)
                assert stored == live


class GroupChecks:
    """The invariants of records and responses."""

    def __init__(self) -> None:
        self.offsets: dict[int, int] = {}
        self.acknowledged: dict[int, int] = {}
        self.generation = -1
        self.owners: dict[tuple[int, int], str] = {}
        self.stable_generations: set[int] = set()
        self.joined: dict[int, set[str]] = {}
        self.syncs = 0

    def restarted(self, shard: GroupShard) -> None:
        """Checks that no acknowledged commit is lost."""
        partitions = shard.offsets.of(GROUP).get("t", {})
        self.offsets = {partition: value.offset for partition, value in partitions.items()}
        for partition, offset in self.acknowledged.items():
            assert self.offsets.get(partition, -1) >= offset, f"t-{partition} lost {offset}"
        group = classic_group(shard)
        generation = -1 if group is None else group.generation
        assert generation >= max(self.stable_generations, default=-1), "a generation was lost"
        self.generation = generation
        self.joined.clear()

    def decided(self, result: Result, group: ClassicGroup | None) -> None:
        """Checks that only current members commit and sync, and only joined ones continue."""
        request = result.event.request if isinstance(result.event, Requested) else None
        if isinstance(request, OffsetCommitRequest) and result.records:
            generation = request.generation_id_or_member_epoch
            if generation >= 0:
                assert group is not None
                assert generation == group.generation, "a commit of another generation"
                assert request.member_id in group.members, "a commit of a stranger"
        for response in result.responses:
            if isinstance(response.message, JoinGroupResponse) and not response.message.error_code:
                generation = response.message.generation_id
                self.joined.setdefault(generation, set()).add(response.message.member_id)
            if isinstance(response.message, SyncGroupResponse) and not response.message.error_code:
                assert group is not None
                if isinstance(request, SyncGroupRequest):
                    assert request.generation_id == group.generation, "a sync of another generation"
        for changed in result.state_updates:
            assert isinstance(changed, ClassicGroup)
            if changed.state is ClassicGroupState.COMPLETING_REBALANCE:
                dynamic = {m.member_id for m in changed.members.values() if m.instance_id is None}
                assert dynamic <= self.joined[changed.generation], "a member that did not join"

    def appended(self, records: Sequence[Record]) -> None:
        for record in records:
            if isinstance(record, ClassicGroupRecord) and record.value is not None:
                generation = record.value.generation
                assert generation >= self.generation, "the generation fell"
                self.generation = generation
            elif isinstance(record, OffsetRecord) and record.value is not None:
                partition, offset = record.key.partition, record.value.offset
                if record.value.metadata == RESET:
                    self.acknowledged[partition] = min(
                        offset, self.acknowledged.get(partition, offset)
                    )
                else:
                    previous_offset = self.offsets.get(partition, -1)
                    assert offset >= previous_offset, (
                        f"t-{partition} went from {previous_offset} to {offset}"
                    )
                self.offsets[partition] = offset

    def responded(self, request: Message, response: Message) -> None:
        if isinstance(request, SyncGroupRequest) and isinstance(response, SyncGroupResponse):
            if response.error_code == 0 and response.assignment:
                self._assigned(request, response)
        elif isinstance(request, OffsetCommitRequest) and isinstance(
            response, OffsetCommitResponse
        ):
            self._acknowledged(request, response)

    def _acknowledged(self, request: OffsetCommitRequest, response: OffsetCommitResponse) -> None:
        for topic, topic_response in zip(request.topics, response.topics, strict=True):
            for partition, result in zip(topic.partitions, topic_response.partitions, strict=True):
                if result.error_code == 0:
                    at = partition.partition_index
                    self.acknowledged[at] = partition.committed_offset

    def _assigned(self, request: SyncGroupRequest, response: SyncGroupResponse) -> None:
        generation, partitions = read_assignment(response.assignment)
        assert generation == request.generation_id, "an assignment of another generation"
        self.stable_generations.add(generation)
        self.syncs += 1
        owner = request.group_instance_id or request.member_id
        for partition in partitions:
            previous_owner = self.owners.setdefault((generation, partition), owner)
            assert previous_owner == owner, (
                f"t-{partition} of generation {generation}: {previous_owner}, {owner}"
            )


def classic_group(shard: GroupShard) -> ClassicGroup | None:
    group = shard.groups.get(GROUP)
    assert group is None or isinstance(group, ClassicGroup)
    return group


def write_assignment(generation: int, partitions: list[int]) -> bytes:
    return f"{generation}:{','.join(map(str, partitions))}".encode()


def read_assignment(data: bytes) -> tuple[int, list[int]]:
    generation, _, partitions = data.decode().partition(":")
    return int(generation), [int(p) for p in partitions.split(",") if p]
