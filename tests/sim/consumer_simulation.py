"""A simulation of consumer-protocol members and one group shard that crashes and restarts.

The seed determines everything. The coordinator appends to a log whose high watermark lags behind;
when it crashes, uncommitted records may be lost. The invariants of a consumer group (KIP-848) are
checked at every step; see `Coordinator.check`.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol
from uuid import UUID

from penstock.coordinator.group.config import ConsumerGroupConfig, GroupConfig
from penstock.coordinator.group.consumer.model import ConsumerGroup
from penstock.coordinator.group.events import (
    Context,
    Event,
    RegexResolved,
    Requested,
    ResolveRegexes,
    Result,
    Timer,
    TopicsChanged,
)
from penstock.coordinator.group.offsets.records import OffsetRecord
from penstock.coordinator.group.record import Record
from penstock.coordinator.group.records import decode_record, encode_record
from penstock.coordinator.group.responses import error_response
from penstock.coordinator.group.shard import GroupShard
from penstock.coordinator.machine import SetTimer, Skipped, TimerFired
from penstock.coordinator.timers import TimerQueue
from penstock.core.errors import ErrorCode
from penstock.protocol.fields import Message
from tests.sim.event_queue import EventQueue
from tests.support.coordinator.groups import FakeTopics, id_of

GROUP = "readers"
SESSION_MS = 6_000
REBALANCE_MS = 9_000
MAX_DELAY_MS = 600
COMMIT_TIMEOUT_MS = 5_000


@dataclass
class Faults:
    """The probabilities of faults. All zero: the simulation recovers."""

    loss: float = 0.0
    append: float = 0.0
    slow_commit: float = 0.0
    disruptions: bool = False


class Owner(Protocol):
    """A member's own view of its state."""

    alive: bool
    member_id: str
    epoch: int
    owned: dict[tuple[UUID, int], int]
    """The partitions that it reads, with their positions."""


class Simulation(EventQueue):
    """The clock, the network and the topics."""

    def __init__(self, seed: int, faults: Faults) -> None:
        super().__init__(seed, lambda: self.coordinator.check())
        self.faults = faults
        self.topics = FakeTopics({"a": 4, "b": 3})
        self.owners: list[Owner] = []
        self.coordinator = Coordinator(self)

    def call(
        self, request: Message, version: int, client: str, on_response: Callable[[Message], None]
    ) -> None:
        """Sends a request; the response arrives later or never. Requests keep their order."""

        def arrive() -> None:
            self.coordinator.receive(request, version, client, respond)

        def respond(response: Message) -> None:
            if not self.chance(self.faults.loss):
                self.later(self.random.randrange(1, MAX_DELAY_MS), lambda: on_response(response))

        if not self.chance(self.faults.loss):
            self.later(self.random.randrange(1, MAX_DELAY_MS), arrive)

    def change_topics(self) -> None:
        """Creates a topic or adds a partition."""
        name = self.random.choice(["a", "b", "x1", "x2", "x3"])
        created = name not in self.topics.partitions
        self.topics.partitions[name] = self.topics.partitions.get(name, 1) + 1
        self.coordinator.happen(TopicsChanged(frozenset([name]), created))


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
        self.config = GroupConfig(
            consumer=ConsumerGroupConfig(SESSION_MS, 1_500, 500),
            group_consumer_regex_refresh_interval_ms=30_000,
        )
        self.log: list[tuple[bytes, bytes | None]] = []
        self.committed = 0
        self.incarnation = 0
        self.up = False
        self.waiter = 0
        self.responded_epoch = 0
        """The highest member epoch in any response."""
        self.offsets: dict[tuple[str, int], int] = {}
        self.deaths = 0
        self._start()

    # --- start and crash

    def _start(self) -> None:
        self.incarnation += 1
        self.up = True
        self.shard = self.reloaded()
        self.timers: TimerQueue[Timer] = TimerQueue()
        self.waiting: dict[int, tuple[Message, int, Callable[[Message], None]]] = {}
        self.held: list[Held] = []
        self.committed = len(self.log)
        self.epochs = (0, 0)
        group = self.group
        assert group is None or group.group_epoch >= self.responded_epoch, "an epoch was lost"
        stored = self.shard.offsets.of(GROUP)
        self.offsets = {(t, p): v.offset for t, ps in stored.items() for p, v in ps.items()}
        self._perform(self.shard.start(self.simulation.now))

    def reloaded(self) -> GroupShard:
        """Returns a shard that is loaded from the bytes of the log alone."""
        shard = GroupShard(self.config, self.simulation.topics)
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
        self.deaths += 1
        del self.log[self.simulation.random.randint(self.committed, len(self.log)) :]
        self.simulation.later(self.simulation.random.randrange(100, 3_000), self._start)

    @property
    def group(self) -> ConsumerGroup | None:
        result = self.shard.groups.get(GROUP)
        return result if isinstance(result, ConsumerGroup) else None

    # --- the host

    def receive(
        self, request: Message, version: int, client: str, response: Callable[[Message], None]
    ) -> None:
        if not self.up:
            response(error_response(request, version, ErrorCode.NOT_COORDINATOR))
            return
        self.waiter += 1
        self.waiting[self.waiter] = (request, version, response)
        uuid = str(UUID(int=self.simulation.random.getrandbits(128)))
        context = Context(self.waiter, version, client, "/sim", uuid, self.simulation.topics)
        self.happen(Requested(request, context))

    def happen(self, event: Event) -> None:
        if self.up:
            self._perform(self.shard.handle(event, self.simulation.now))

    def _perform(self, result: Result) -> None:
        simulation = self.simulation
        if result.records and simulation.chance(simulation.faults.append):
            error = ErrorCode.NOT_ENOUGH_REPLICAS
            failed = self.shard.write_failed(result, error, simulation.now, applied=False)
            self._change(failed)
            self._respond(failed)
            return
        self.log.extend(encode_record(record) for record in result.records)
        self._appended(result.records)
        self._change(result)
        for search in result.regexes:
            self._resolve(search)
        slow = simulation.chance(simulation.faults.slow_commit)
        delay = simulation.random.randrange(2 * COMMIT_TIMEOUT_MS) if slow else 1
        held = Held(result, len(self.log), simulation.now + COMMIT_TIMEOUT_MS)
        self.held.append(held)
        incarnation = self.incarnation
        simulation.later(delay, lambda: self._commit(held.end, incarnation))
        simulation.later(COMMIT_TIMEOUT_MS, lambda: self._expire(incarnation))

    def _appended(self, records: Sequence[Record]) -> None:
        for record in records:
            if isinstance(record, OffsetRecord) and record.value is not None:
                at = (record.key.topic, record.key.partition)
                assert record.value.offset >= self.offsets.get(at, -1), f"{at} went back"
                self.offsets[at] = record.value.offset

    def _change(self, result: Result) -> None:
        for change in result.changes:
            self.shard.apply(change)
        for timer in result.timers:
            if isinstance(timer, SetTimer):
                self.timers.set(timer.timer, timer.deadline_ms)
                delay = max(timer.deadline_ms - self.simulation.now, 0)
                self.simulation.later(delay, partial(self._tick, self.incarnation))
            else:
                self.timers.cancel(timer.timer)

    def _tick(self, incarnation: int) -> None:
        while (
            incarnation == self.incarnation
            and (timer := self.timers.pop_due(self.simulation.now)) is not None
        ):
            self._perform(self.shard.handle(TimerFired(timer), self.simulation.now))

    def _commit(self, end: int, incarnation: int) -> None:
        if incarnation != self.incarnation:
            return
        self.committed = max(self.committed, end)
        while self.held and self.held[0].end <= self.committed:
            self._respond(self.held.pop(0).result)

    def _expire(self, incarnation: int) -> None:
        while (
            incarnation == self.incarnation
            and self.held
            and self.held[0].deadline <= self.simulation.now
        ):
            held = self.held.pop(0)
            error = ErrorCode.REQUEST_TIMED_OUT
            failed = self.shard.write_failed(held.result, error, self.simulation.now, applied=True)
            self._change(failed)
            self._respond(failed)

    def _respond(self, result: Result) -> None:
        for response in result.responses:
            _, _, on_response = self.waiting.pop(response.waiter)
            self.responded_epoch = max(
                self.responded_epoch, getattr(response.message, "member_epoch", 0)
            )
            on_response(response.message)

    def _resolve(self, search: ResolveRegexes) -> None:
        started, incarnation = self.simulation.now, self.incarnation
        result = {
            pattern: frozenset(
                t for t in self.simulation.topics.partitions if re.fullmatch(pattern, t)
            )
            for pattern in search.patterns
        }

        def done() -> None:
            if incarnation == self.incarnation:
                topics = None if self.simulation.chance(self.simulation.faults.append) else result
                self.happen(RegexResolved(search.group_id, topics, 1, started))

        self.simulation.later(self.simulation.random.randrange(1, 2_000), done)

    # --- invariants

    def check(self) -> None:
        """Checks for one owner per partition, non-decreasing epochs and consistent members."""
        group = self.group if self.up else None
        if group is None:
            return
        owners: dict[tuple[UUID, int], str] = {}
        for member in group.members.values():
            for epochs in (member.assigned, member.pending_revocation):
                for topic_id, partitions in epochs.items():
                    for partition in partitions:
                        previous_owner = owners.setdefault((topic_id, partition), member.member_id)
                        assert previous_owner == member.member_id, (
                            f"{previous_owner} and {member.member_id}"
                        )
            assert member.member_epoch <= group.assignment_epoch <= group.group_epoch
        assert owners == {(t, p): m for t, ps in group.owners.items() for p, m in ps.items()}
        assert self.epochs <= (group.group_epoch, group.assignment_epoch), "an epoch fell"
        self.epochs = (group.group_epoch, group.assignment_epoch)
        self._check_views(group)

    def _check_views(self, group: ConsumerGroup) -> None:
        """Checks that no two members with a valid epoch read the same partition."""
        readers: dict[tuple[UUID, int], str] = {}
        for owner in self.simulation.owners:
            member = group.members.get(owner.member_id)
            if not owner.alive or member is None:
                continue
            if owner.epoch not in (member.member_epoch, member.previous_member_epoch):
                continue
            for partition in owner.owned:
                previous_owner = readers.setdefault(partition, owner.member_id)
                assert previous_owner == owner.member_id, (
                    f"{previous_owner} and {owner.member_id} read {partition}"
                )

    def check_replay(self) -> None:
        """Checks that the log alone restores the same state, except for unrecorded fields."""
        replayed = self.reloaded()
        assert replayed.offsets.groups == self.shard.offsets.groups
        assert replayed.groups.keys() == self.shard.groups.keys()
        for group_id, group in self.shard.groups.items():
            stored = replayed.groups[group_id]
            if isinstance(group, ConsumerGroup) and isinstance(stored, ConsumerGroup):
                stored.metadata_checked = group.metadata_checked
                stored.topics_created_ms = group.topics_created_ms
                stored.resolving = group.resolving
            assert stored == group


def every_partition(topics: FakeTopics, names: set[str]) -> set[tuple[UUID, int]]:
    return {(id_of(name), p) for name in names for p in range(topics.partitions.get(name, 0))}
