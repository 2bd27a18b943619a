"""The host of a replica fetcher in the replication simulation.

It runs a real `FollowerMachine` as `ReplicaFetcher` does: one request in flight, effects one after
another with pauses in between, truncations that take a while.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from penstock.core.ids import TopicPartition
from penstock.replication.follower import FollowerMachine, FollowerRequest, FollowerResponse
from penstock.replication.follower_effects import Append, Effect, InitialFetch, Truncate
from penstock.replication.follower_session import FetcherSettings
from tests.sim.event_queue import EventQueue
from tests.sim.replication_broker import SimReplica

BACKOFF_MS = 40


@dataclass(frozen=True, slots=True)
class PlantedFaults:
    """Faults of the implementation, which the checks of the simulation must find."""

    truncates_to_high_watermark: bool = False
    ignores_leader_epochs: bool = False
    commits_too_early: bool = False
    appends_after_removal: bool = False
    fetches_before_append: bool = False
    truncates_too_little: bool = False
    ignores_fencing: bool = False


NO_FAULTS = PlantedFaults()


class FollowerHost:
    """Fetches from one leader for one incarnation of a broker."""

    def __init__(
        self,
        broker_id: int,
        broker_epoch: int,
        queue: EventQueue,
        send: Callable[[FollowerRequest, Callable[[FollowerResponse | None], None]], None],
        replicas: dict[TopicPartition, SimReplica],
        busy: set[TopicPartition],
        on_idle: Callable[[TopicPartition], None],
        on_changed: Callable[[SimReplica], None],
        faults: PlantedFaults,
    ) -> None:
        self.machine = FollowerMachine(
            FetcherSettings(broker_id, replica_fetch_backoff_ms=BACKOFF_MS)
        )
        self.broker_epoch = broker_epoch
        self.queue = queue
        self.send = send
        self.replicas = replicas
        self.busy = busy
        """Partitions of this broker whose log is being truncated."""
        self.on_idle = on_idle
        self.on_changed = on_changed
        self.faults = faults
        self.is_closed = False
        self._is_running = False
        self._wake_ups = 0

    def add(self, replica: SimReplica) -> None:
        if self.faults.truncates_to_high_watermark:
            replica.log.truncate(replica.log.high_watermark)
        partition = replica.partition
        self.machine.add(
            replica.key, InitialFetch(replica.topic_id, partition.leader_epoch, replica.log)
        )
        self.pump()

    def remove(self, key: TopicPartition) -> None:
        self.machine.remove([key])

    def pump(self) -> None:
        """Sends the next request unless one is in flight."""
        if self._is_running or self.is_closed:
            return
        request = self.machine.next_request(self.queue.now, self.broker_epoch)
        if request is None:
            wake_up_ms = self.machine.wake_up_ms(self.queue.now)
            if wake_up_ms is not None:
                self._wake_ups += 1
                number = self._wake_ups
                self.queue.later(
                    max(1, wake_up_ms - self.queue.now),
                    lambda: self.pump() if number == self._wake_ups else None,
                )
            return
        self._is_running = True
        self.send(request, lambda response: self._receive(request, response))

    def _receive(self, request: FollowerRequest, response: FollowerResponse | None) -> None:
        if self.is_closed:
            return
        if response is None:
            self.machine.handle_failure(request, self.queue.now)
            self._continue()
            return
        effects = self.machine.handle_response(request, response, self.queue.now)
        self._perform(effects, 0)

    def _continue(self) -> None:
        self._is_running = False
        self.pump()

    def _perform(self, effects: list[Effect], index: int) -> None:
        """Performs the effects from `index` on, sometimes with a pause before one of them."""
        if self.is_closed:
            return
        for position, effect in enumerate(effects[index:], index):
            if self.queue.chance(0.15):
                pause_ms = self.queue.random.randint(1, 60)
                self.queue.later(pause_ms, partial(self._perform, effects, position))
                return
            if not effect.state.is_removed or self.faults.appends_after_removal:
                self._perform_one(effect)
        self._continue()

    def _perform_one(self, effect: Effect) -> None:
        if isinstance(effect, Truncate):
            self.busy.add(effect.state.key)
            self.queue.later(self.queue.random.randint(0, 20), lambda: self._truncate(effect))
            return
        if effect.restart is not None:
            self.busy.add(effect.state.key)
            self.queue.later(self.queue.random.randint(0, 20), lambda: self._restart(effect))
            return
        if self.faults.fetches_before_append:
            # The next fetch names the end of these records before they are in the log.
            self.queue.later(self.queue.random.randint(1, 60), lambda: self._store(effect))
            state = effect.state
            state.fetch_offset += len(effect.records) // 24
            self.machine._session.put(state)
            return
        self._store(effect)

    def _store(self, append: Append) -> None:
        if self.is_closed:
            return
        replica = self.replicas[append.state.key]
        log = replica.log
        if self.faults.fetches_before_append:
            if int.from_bytes(append.records[:8], "big") == log.log_end_offset:
                log.append_fetched(append.records, append.state.leader_epoch)
                append.state.last_fetched_epoch = log.latest_epoch or 0
            log.high_watermark = min(append.leader_high_watermark, log.log_end_offset)
            return
        if log.log_end_offset != append.state.fetch_offset:
            if not self.faults.appends_after_removal:
                self.machine.resume(append.state)
            return
        log.append_fetched(append.records, append.state.leader_epoch)
        if append.state.is_removed:
            return
        update = self.machine.appended(append)
        log.high_watermark = update.high_watermark
        if update.log_start_offset is not None:
            log.advance_log_start(update.log_start_offset)
        self.on_changed(replica)

    def _restart(self, append: Append) -> None:
        key, restart = append.state.key, append.restart
        if self.is_closed:
            return
        if not append.state.is_removed and restart is not None:
            assert restart.offset == restart.log_start_offset
            self.replicas[key].log.truncate_fully(restart.offset)
            self.machine.resume(append.state)
            self._store(append)
        self.busy.discard(key)
        self.on_idle(key)
        self.pump()

    def _truncate(self, truncate: Truncate) -> None:
        key = truncate.state.key
        if self.is_closed:
            return
        if not truncate.state.is_removed:
            log = self.replicas[key].log
            if truncate.fully:
                log.truncate_fully(truncate.offset)
            elif self.faults.truncates_too_little:
                log.truncate(min(truncate.offset + 1, log.log_end_offset))
            else:
                log.truncate(truncate.offset)
            self.machine.truncated(truncate)
        self.busy.discard(key)
        self.on_idle(key)
        self.pump()
