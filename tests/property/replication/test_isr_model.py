"""Random histories of a leader, followers and a controller: the high watermark is safe (R2, R3).

The controller commits proposals at some time or never, its responses may be lost and requests
repeated, brokers crash and return with a part of their log. Whatever happens, each replica in the
ISR that the controller has stored has all records below the leader's high watermark: the controller
may elect any of them.
"""

from dataclasses import dataclass, field
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.replication.isr import (
    CommittedState,
    Outcome,
    apply_outcome,
    expand_isr,
    shrink_isr,
)
from penstock.replication.partition import IsrProposal, IsrRules, Partition

LEADER = 1
FOLLOWERS = (2, 3)
LAG_MS = 1000


@dataclass
class Controller:
    """The state that the controller has stored."""

    isr: tuple[int, ...] = (1, 2, 3)
    leader_epoch: int = 0
    partition_epoch: int = 0
    alive: dict[int, int] = field(default_factory=lambda: {1: 1, 2: 2, 3: 3})
    """The epochs of the brokers that are up."""

    def alter(self, proposal: IsrProposal) -> CommittedState | ErrorCode:
        if proposal.leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if proposal.partition_epoch < self.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        for broker_id, epoch in proposal.members:
            if broker_id not in self.alive or epoch not in (-1, self.alive[broker_id]):
                return ErrorCode.INELIGIBLE_REPLICA
        self.isr = proposal.isr
        self.partition_epoch += 1
        return CommittedState(self.leader_epoch, self.partition_epoch, self.isr)


class LeaderHistory(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.controller = Controller()
        self.now_ms = 10_000
        self.end = 0
        self.high_watermark = 0
        self.logs = dict.fromkeys(FOLLOWERS, 0)
        """What the followers have, whether the leader knows it or not."""
        self.known_epochs = dict(self.controller.alive)
        """The brokers that the leader knows to be up; it learns of changes late."""
        self.isr_rules = IsrRules(LAG_MS, self.known_epochs.get)
        self.in_flight: IsrProposal | None = None
        self.response: CommittedState | ErrorCode | None = None
        self.next_epoch = 10
        self.partition = Partition(TopicPartition("t", 0), UUID(int=1), LEADER)
        self.receive_state()

    def advance(self) -> None:
        offset = self.partition.high_watermark(self.end, self.now_ms, self.isr_rules)
        self.high_watermark = max(self.high_watermark, offset)

    @rule(count=st.integers(1, 5))
    def append(self, count: int) -> None:
        self.end += count
        self.advance()

    @rule(ms=st.sampled_from([1, 300, 1001]))
    def wait(self, ms: int) -> None:
        self.now_ms += ms

    @rule(broker_id=st.sampled_from(FOLLOWERS), copies=st.booleans())
    def fetch(self, broker_id: int, copies: bool) -> None:
        """The follower fetches from its end; the response may be lost."""
        epoch = self.controller.alive.get(broker_id)
        if epoch is None:
            return
        follower = self.partition.followers[broker_id]
        follower.record_fetch(self.logs[broker_id], 0, self.end, self.now_ms, epoch)
        proposal = expand_isr(self.partition, broker_id, self.high_watermark, self.isr_rules, 1)
        if proposal is not None:
            self.in_flight, self.response = proposal, None
        self.advance()
        if copies:
            self.logs[broker_id] = self.end

    @rule()
    def shrink(self) -> None:
        proposal = shrink_isr(self.partition, self.end, self.now_ms, self.isr_rules, 1)
        if proposal is not None:
            self.in_flight, self.response = proposal, None

    @precondition(lambda self: self.in_flight is not None)
    @rule()
    def handle_proposal(self) -> None:
        """Also a second time, if the first response was lost."""
        assert self.in_flight is not None
        self.response = self.controller.alter(self.in_flight)

    @precondition(lambda self: self.response is not None)
    @rule()
    def receive_response(self) -> None:
        assert self.in_flight is not None
        assert self.response is not None
        outcome = apply_outcome(self.partition, self.in_flight, self.response)
        if outcome is not Outcome.RETRY:
            self.in_flight = None
        self.response = None
        self.advance()

    @rule()
    def receive_state(self) -> None:
        """The state that the controller has stored arrives, maybe again."""
        state = self.controller
        self.partition.update(
            leader=LEADER,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            isr=state.isr,
            replicas=(1, 2, 3),
            log_end_offset=self.end,
            now_ms=self.now_ms,
        )
        self.advance()

    @rule(broker_id=st.sampled_from(FOLLOWERS), lost=st.integers(0, 4))
    def crash(self, broker_id: int, lost: int) -> None:
        """A follower loses the end of its log; the controller removes it from the ISR."""
        state = self.controller
        if broker_id not in state.alive:
            return
        del state.alive[broker_id]
        self.logs[broker_id] = max(0, self.logs[broker_id] - lost)
        if broker_id in state.isr:
            state.isr = tuple(member for member in state.isr if member != broker_id)
            state.leader_epoch += 1
            state.partition_epoch += 1

    @rule(broker_id=st.sampled_from(FOLLOWERS))
    def restart(self, broker_id: int) -> None:
        if broker_id not in self.controller.alive:
            self.next_epoch += 1
            self.controller.alive[broker_id] = self.next_epoch

    @rule()
    def learn_brokers(self) -> None:
        self.known_epochs.clear()
        self.known_epochs.update(self.controller.alive)

    @invariant()
    def every_replica_that_may_be_elected_has_all_committed_records(self) -> None:
        for member in self.controller.isr:
            if member != LEADER:
                assert self.logs[member] >= self.high_watermark, member

    @invariant()
    def the_high_watermark_is_in_the_log(self) -> None:
        assert 0 <= self.high_watermark <= self.end


LeaderHistory.TestCase.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
TestLeaderHistory = LeaderHistory.TestCase
