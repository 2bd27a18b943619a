"""Three brokers that replicate two partitions, on virtual time and a virtual network (R2, R4, R5).

Requests and responses are delayed and lost; brokers are paused, crash, lose records that were not
flushed, and return; leaders change. `Simulation.run` ends with a time without faults, in which
everything must become in sync.

What is checked, after every change of a high watermark and of a leader:

- a committed record (below the high watermark of a leader) never changes, and no leader lacks it;
- the logs of all replicas agree below their high watermarks.

At most one broker at a time lacks committed records that it had: others lose nothing until it has
them again. The last member of an ISR that is up loses nothing either: as in Kafka 3.9, it would be
elected without them.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.fetch import FetchResponse
from penstock.replication.follower import FollowerRequest, FollowerResponse
from penstock.replication.isr import CommittedState
from penstock.replication.partition import IsrProposal, IsrRules
from tests.sim.event_queue import EventQueue
from tests.sim.replication_broker import MAX_LAG_MS, LeaderSide, SimReplica
from tests.sim.replication_follower import NO_FAULTS, FollowerHost, PlantedFaults

TOPIC_ID: Final = UUID(int=7)
KEYS: Final = (TopicPartition("t", 0), TopicPartition("t", 1))
BROKERS: Final = (0, 1, 2)
MIN_INSYNC_REPLICAS: Final = 2
NO_LEADER: Final = -1
SESSION_TIMEOUT_MS: Final = 60
REQUEST_TIMEOUT_MS: Final = 150
FETCH_WAIT_MS: Final = 50


class ReplicationError(AssertionError):
    """A check has failed."""


@dataclass(frozen=True, slots=True)
class SimState:
    """The controller's state of a partition."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


class SimBroker:
    """One broker; `epoch` rises with each restart, and is 0 while it is down."""

    def __init__(self, simulation: "Simulation", broker_id: int) -> None:
        self.simulation = simulation
        self.id = broker_id
        self.epoch = 0
        self.replicas = {key: SimReplica(key, TOPIC_ID, broker_id) for key in KEYS}
        rules = IsrRules(MAX_LAG_MS, lambda member: simulation.known_epochs.get(member))
        self.leader_side = LeaderSide(
            broker_id,
            self.replicas,
            rules,
            MIN_INSYNC_REPLICAS,
            simulation.check_commit,
            lambda replica, proposal: simulation.alter_partition(self, replica, proposal),
        )
        faults = simulation.faults
        self.leader_side.checks_epochs = not faults.ignores_leader_epochs
        self.leader_side.counts_followers = not faults.commits_too_early
        self.leader_side.fences = not faults.ignores_fencing
        self.hosts: dict[int, FollowerHost] = {}
        self.busy: set[TopicPartition] = set()
        self.waiting: dict[TopicPartition, list[SimState]] = {}
        self.delivered_at = 0

    def start(self, epoch: int) -> None:
        self.epoch = self.leader_side.broker_epoch = epoch
        self.leader_side.restart()
        self.hosts = {}
        self.busy = set()
        self.waiting = {}
        for replica in self.replicas.values():
            replica.restart()

    def stop(self) -> None:
        self.epoch = 0
        for host in self.hosts.values():
            host.is_closed = True

    def apply_state(self, key: TopicPartition, state: SimState) -> None:
        """LeaderAndIsr: stops following, waits for a truncation, then leads or follows."""
        for host in self.hosts.values():
            partition = self.replicas[key].partition
            if state.leader_epoch > partition.leader_epoch or key in self.busy:
                host.remove(key)
        if key in self.busy:
            self.waiting.setdefault(key, []).append(state)
            return
        replica = self.replicas[key]
        if not self.leader_side.become_leader(replica, state, self.simulation.queue.now):
            return
        if replica.partition.is_leader:
            self.simulation.check_leader(replica)
        elif state.leader != NO_LEADER:
            self.host(state.leader).add(replica)

    def on_idle(self, key: TopicPartition) -> None:
        states = self.waiting.pop(key, [])
        for state in states:
            self.apply_state(key, state)

    def host(self, leader_id: int) -> FollowerHost:
        host = self.hosts.get(leader_id)
        if host is None:
            simulation, epoch = self.simulation, self.epoch
            host = self.hosts[leader_id] = FollowerHost(
                self.id,
                epoch,
                simulation.queue,
                lambda request, respond: simulation.send(self, leader_id, request, respond),
                self.replicas,
                self.busy,
                self.on_idle,
                simulation.check_follower,
                simulation.faults,
            )
        return host


class Simulation:
    """A history of the cluster that its seed determines."""

    def __init__(self, seed: int, faults: PlantedFaults = NO_FAULTS) -> None:
        self.faults = faults
        self.queue = EventQueue(seed, lambda: None)
        self.random = self.queue.random
        self.known_epochs: dict[int, int] = {}
        self.brokers = {broker_id: SimBroker(self, broker_id) for broker_id in BROKERS}
        self.states = {key: SimState(key.partition, 0, 0, (0, 1, 2)) for key in KEYS}
        self.committed: dict[TopicPartition, list[int]] = {key: [] for key in KEYS}
        """The values of the committed records, by offset."""
        self.has_faults = True
        self.values = 0
        self.epochs = 0
        self.log: list[str] = []

    # --- checks

    def fail(self, message: str) -> None:
        raise ReplicationError(f"{message} at {self.queue.now}\n" + "\n".join(self.log[-40:]))

    def check_commit(self, replica: SimReplica) -> None:
        """The high watermark of a leader has advanced: what is below it is committed."""
        committed, log = self.committed[replica.key], replica.log
        for offset in range(len(committed), log.high_watermark):
            committed.append(log.at(offset).value)
        self.check_follower(replica)

    def check_follower(self, replica: SimReplica) -> None:
        """Compares the last records below the high watermark with the committed ones."""
        committed, log = self.committed[replica.key], replica.log
        if log.high_watermark > len(committed):
            self.fail(f"{replica.key} on {replica.broker_id}: a high watermark that no leader had")
        for offset in range(max(log.log_start_offset, log.high_watermark - 8), log.high_watermark):
            if log.at(offset).value != committed[offset]:
                self.fail(f"{replica.key} on {replica.broker_id}: offset {offset} differs")

    def check_leader(self, replica: SimReplica) -> None:
        """A new leader has every committed record."""
        committed, log = self.committed[replica.key], replica.log
        if log.log_end_offset < len(committed):
            self.fail(
                f"{replica.key}: leader {replica.broker_id} ends at {log.log_end_offset}, "
                f"{len(committed)} records are committed"
            )
        for offset in range(log.log_start_offset, len(committed)):
            if log.at(offset).value != committed[offset]:
                self.fail(f"{replica.key}: leader {replica.broker_id} lacks offset {offset}")

    def check_end(self) -> None:
        """Without faults, everything is led, in sync and committed."""
        for key in KEYS:
            state = self.states[key]
            logs = [broker.replicas[key].log for broker in self.brokers.values()]
            if state.leader == NO_LEADER or sorted(state.isr) != list(BROKERS):
                self.fail(f"{key} is not in sync: {state}, {[log.log_end_offset for log in logs]}")
            start = max(log.log_start_offset for log in logs)
            contents = [
                [log.at(offset) for offset in range(start, log.log_end_offset)] for log in logs
            ]
            # A leader that has appended nothing knows its epoch, its followers do not.
            epochs = [
                [entry for entry in log.epochs if start < entry[1] < log.log_end_offset]
                for log in logs
            ]
            if contents[0] != contents[1] or contents[1] != contents[2]:
                self.fail(f"the logs of {key} differ")
            if epochs[0] != epochs[1] or epochs[1] != epochs[2]:
                self.fail(f"the leader epochs of {key} differ: {epochs}")
            if len({log.high_watermark for log in logs}) != 1:
                self.fail(f"the high watermarks of {key} differ")
            leader_log = logs[state.leader]
            if leader_log.high_watermark != leader_log.log_end_offset:
                self.fail(f"{key} has records that are never committed")

    # --- network

    def delay(self) -> int:
        return (
            self.random.randint(1, 6) if self.random.random() < 0.9 else self.random.randint(6, 90)
        )

    def is_lost(self) -> bool:
        return self.has_faults and self.random.random() < 0.03

    def send(
        self,
        sender: SimBroker,
        leader_id: int,
        request: FollowerRequest,
        respond: Callable[[FollowerResponse | None], None],
    ) -> None:
        """Delivers a request and its response, or reports a timeout; late requests still arrive."""
        done = False

        def finish(response: FollowerResponse | None) -> None:
            nonlocal done
            if not done:
                done = True
                respond(response)

        leader = self.brokers[leader_id]
        leader_epoch = leader.epoch

        def arrive() -> None:
            if not leader.epoch or leader.epoch != leader_epoch:
                self.queue.later(1, lambda: finish(None))
                return
            response = leader.leader_side.handle(request, self.queue.now)
            if self.is_lost():
                return
            delay = self.delay()
            if isinstance(response, FetchResponse) and not response.responses:
                delay += FETCH_WAIT_MS
            self.queue.later(delay, lambda: finish(response))

        self.queue.later(REQUEST_TIMEOUT_MS, lambda: finish(None))
        if not self.is_lost():
            self.queue.later(self.delay(), arrive)

    # --- controller

    def put_state(self, key: TopicPartition, state: SimState) -> None:
        self.states[key] = state
        self.log.append(f"{self.queue.now} {key}: {state}")
        for broker in self.brokers.values():
            self.deliver(broker, key, state)

    def deliver(self, broker: SimBroker, key: TopicPartition, state: SimState) -> None:
        """LeaderAndIsr: requests to one broker arrive in order, unless it is down."""
        epoch = broker.epoch
        broker.delivered_at = max(broker.delivered_at, self.queue.now + self.delay())

        def arrive() -> None:
            if epoch and broker.epoch == epoch:
                broker.apply_state(key, state)

        self.queue.later(broker.delivered_at - self.queue.now, arrive)

    def alter_partition(
        self, broker: SimBroker, replica: SimReplica, proposal: IsrProposal
    ) -> None:
        epoch = broker.epoch

        def arrive() -> None:
            if broker.epoch != epoch:
                return
            response = self.decide_isr(proposal)
            self.queue.later(self.delay(), lambda: finish(response))

        def finish(response: CommittedState | ErrorCode) -> None:
            if broker.epoch == epoch:
                broker.leader_side.finish_proposal(replica, proposal, response, self.queue.now)

        self.queue.later(self.delay(), arrive)

    def decide_isr(self, proposal: IsrProposal) -> CommittedState | ErrorCode:
        key, state = proposal.key, self.states[proposal.key]
        if proposal.leader_epoch != state.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if proposal.partition_epoch != state.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        for member in proposal.members:
            if self.known_epochs.get(member.broker_id) != member.broker_epoch and (
                member.broker_epoch != -1 or member.broker_id not in self.known_epochs
            ):
                return ErrorCode.INELIGIBLE_REPLICA
        state = replace(state, partition_epoch=state.partition_epoch + 1, isr=proposal.isr)
        self.states[key] = state
        self.log.append(f"{self.queue.now} {key}: isr {state.isr}")
        return CommittedState(state.leader_epoch, state.partition_epoch, state.isr)

    def elect(
        self, key: TopicPartition, isr: tuple[int, ...], preferred: int | None = None
    ) -> None:
        state = self.states[key]
        live = [member for member in isr if member in self.known_epochs]
        leader = state.leader if state.leader in live else NO_LEADER
        if preferred in live and preferred is not None:
            leader = preferred
        elif leader == NO_LEADER and live:
            leader = live[0]
        self.put_state(
            key, SimState(leader, state.leader_epoch + 1, state.partition_epoch + 1, isr)
        )

    def on_broker_failure(self, broker_id: int) -> None:
        del self.known_epochs[broker_id]
        for key, state in list(self.states.items()):
            isr = tuple(member for member in state.isr if member != broker_id) or state.isr
            if broker_id in state.isr or state.leader == broker_id:
                self.elect(key, isr)

    def register(self, broker: SimBroker) -> None:
        if broker.id in self.known_epochs:
            self.on_broker_failure(broker.id)
        self.epochs += 1
        broker.start(self.epochs)
        self.known_epochs[broker.id] = broker.epoch
        for key, state in self.states.items():
            if state.leader == NO_LEADER and broker.id in state.isr:
                self.elect(key, state.isr)
            else:
                self.deliver(broker, key, state)

    # --- faults and load

    def produce(self) -> None:
        for broker in self.brokers.values():
            for replica in broker.replicas.values():
                if broker.epoch and replica.partition.is_leader and self.random.random() < 0.5:
                    self.values += 1
                    broker.leader_side.append(replica, self.values, self.queue.now)
        if self.has_faults:
            self.queue.later(self.random.randint(2, 25), self.produce)

    def maintain(self) -> None:
        for broker in self.brokers.values():
            if not broker.epoch:
                continue
            broker.leader_side.shrink_isrs(self.queue.now)
            for replica in broker.replicas.values():
                log = replica.log
                if self.random.random() < 0.3:
                    log.flush()
                if (
                    self.has_faults
                    and replica.partition.is_leader
                    and self.random.random() < 0.05
                    and log.high_watermark > log.log_start_offset
                ):
                    log.advance_log_start(
                        self.random.randint(log.log_start_offset, log.high_watermark)
                    )
        self.queue.later(30, self.maintain)

    def disturb(self) -> None:
        """Crashes a broker, or moves a leader."""
        if not self.has_faults:
            return
        self.queue.later(self.random.randint(20, 200), self.disturb)
        if self.random.random() < 0.4:
            key = self.random.choice(KEYS)
            state = self.states[key]
            if state.leader != NO_LEADER:
                self.elect(key, state.isr, self.random.choice(BROKERS))
            return
        self.crash(self.brokers[self.random.choice(BROKERS)])

    def crash(self, broker: SimBroker) -> None:
        if not broker.epoch:
            return
        loses = self.random.random() < 0.6 and self.may_lose_records(broker)
        self.log.append(f"{self.queue.now} crash of {broker.id}{', records lost' if loses else ''}")
        epoch = broker.epoch
        broker.stop()
        for replica in broker.replicas.values():
            replica.log.crash(self.random, loses_records=loses)

        def expire() -> None:
            if self.known_epochs.get(broker.id) == epoch:
                self.on_broker_failure(broker.id)

        self.queue.later(self.random.randint(20, SESSION_TIMEOUT_MS), expire)
        self.queue.later(self.random.randint(10, 400), lambda: self.register(broker))

    def may_lose_records(self, broker: SimBroker) -> bool:
        others = [other for other in self.brokers.values() if other is not broker]
        return not any(self.lacks_committed(other) for other in others) and all(
            any(other.epoch and other.id in state.isr for other in others)
            for state in self.states.values()
        )

    def lacks_committed(self, broker: SimBroker) -> bool:
        return any(
            replica.log.log_end_offset < len(self.committed[key])
            for key, replica in broker.replicas.items()
        )

    def run(self, duration_ms: int = 1500, settle_ms: int = 2500) -> None:
        """Runs the history; raises ReplicationError if a check fails."""
        for broker in self.brokers.values():
            self.epochs += 1
            broker.start(self.epochs)
            self.known_epochs[broker.id] = broker.epoch
        for key, state in list(self.states.items()):
            self.put_state(key, state)
        self.produce()
        self.maintain()
        self.queue.later(50, self.disturb)
        self.queue.run_until(self.queue.now + duration_ms)
        self.has_faults = False
        self.queue.run_until(self.queue.now + settle_ms)
        self.check_end()


def run_seed(seed: int) -> None:
    """Runs the history of a seed; raises ReplicationError if a check fails."""
    Simulation(seed).run()
