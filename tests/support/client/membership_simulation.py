"""Membership machines of the client against Penstock's group coordinator, over a faulty network.

The seed determines everything: requests and responses are lost, responses are late or repeated,
listeners are slow, consumers pause, members join and leave, the coordinator restarts.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random

from penstock.client.consumer.group.actions import (
    Action,
    Assign,
    CallListener,
    FetchTopics,
    RebalanceEvent,
    RebalanceKind,
    ReportError,
    ResolveTopics,
    Send,
)
from penstock.client.consumer.group.member import Member
from penstock.client.errors import DisconnectError
from penstock.coordinator.group.config import ConsumerGroupConfig, GroupConfig
from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition
from penstock.protocol.fields import Message
from tests.support.coordinator.groups import GroupHost, id_of

GROUP = "g"
SESSION_MS = 6_000
REBALANCE_MS = 9_000
POLL_MS = 300
MAX_DELAY_MS = 400
TOPICS = {"t": 5, "u": 3}


@dataclass
class Faults:
    """The probabilities of faults; with all zero the group recovers."""

    loss: float = 0.0
    twice: float = 0.0
    late: float = 0.0


class MembershipSimulation:
    """The clock, the network, the coordinator and the members."""

    def __init__(self, seed: int, faults: Faults) -> None:
        self.random = Random(seed)
        self.faults = faults
        config = GroupConfig(
            group_initial_rebalance_delay_ms=500,
            group_min_session_timeout_ms=1,
            consumer=ConsumerGroupConfig(SESSION_MS, 1_000, 500),
        )
        self.host = GroupHost(config, topics=TOPICS, check_pure=False)
        self.now = self.host.now
        self.members: list[SimMember] = []
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._waiting: dict[int, Callable[[Message], None]] = {}
        self._arrivals: dict[str, int] = {}
        """When the last request of a member arrives."""

    def schedule(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._count += 1
        heappush(self._queue, (self.now + max(delay_ms, 0), self._count, action))

    def run(self, milliseconds: int) -> None:
        end = self.now + milliseconds
        while self._queue and self._queue[0][0] <= end:
            self._advance(self._queue[0][0])
            heappop(self._queue)[2]()
            self._deliver()
        self._advance(end)

    def _advance(self, time: int) -> None:
        """Advances the coordinator's timers in small steps, so that responses are sent in time."""
        while self.now < time:
            self.now = min(self.now + 50, time)
            self.host.advance(self.now - self.host.now)
            self._deliver()

    def _deliver(self) -> None:
        for waiter in [waiter for waiter in self._waiting if waiter in self.host.responses]:
            self._waiting.pop(waiter)(self.host.responses.pop(waiter))

    def happens(self, probability: float) -> bool:
        return self.random.random() < probability

    def call(self, request: Message, client: str, on_response: Callable[[Message], None]) -> None:
        """Sends a request, which may be lost; its response may be lost, late or repeated.

        Requests of a member keep their order, as on a connection. A reordered request
        could report partitions to the coordinator or a leader as free that are still owned.
        """

        def arrive() -> None:
            self._waiting[self.host.send(request, client_id=client)] = respond

        def respond(response: Message) -> None:
            for _ in range(2 if self.happens(self.faults.twice) else 1):
                if not self.happens(self.faults.loss):
                    delay = self.random.randrange(1, MAX_DELAY_MS)
                    if self.happens(self.faults.late):
                        delay += self.random.randrange(10_000)
                    self.schedule(delay, lambda: on_response(response))

        if self.happens(self.faults.loss):
            return
        at = max(self.now + self.random.randrange(1, MAX_DELAY_MS), self._arrivals.get(client, 0))
        self._arrivals[client] = at
        self.schedule(at - self.now, arrive)

    def change_topics(self) -> None:
        name = self.random.choice(list(TOPICS))
        self.host.make_topics({name: self.host.topics.partitions[name] + 1})

    def restart_coordinator(self) -> None:
        self._waiting.clear()
        self.host.restart()

    def partitions(self) -> set[TopicPartition]:
        counts = self.host.topics.partitions
        return {TopicPartition(name, p) for name, count in counts.items() for p in range(count)}


@dataclass
class SimMember:
    """A consumer with a membership machine: it polls, and performs the machine's actions."""

    simulation: MembershipSimulation
    name: str
    machine: Member
    request_timeout_ms: int = 3_000
    alive: bool = True
    polls: bool = True
    owned: frozenset[TopicPartition] = frozenset()
    events: list[RebalanceEvent] = field(default_factory=list)
    errors: list[KafkaError] = field(default_factory=list)
    _alarm: int = 0

    def start(self, topics: frozenset[str]) -> None:
        self.simulation.members.append(self)
        self.machine.subscribe(topics, self.simulation.now)
        self._poll()

    def stop(self, *, leave: bool) -> None:
        if leave:
            self.machine.leave("the consumer is being closed", self.simulation.now)
            self._perform_actions()
        self.alive = False
        self.owned = frozenset()

    def _poll(self) -> None:
        if not self.alive:
            return
        now = self.simulation.now
        if self.polls:
            self._update_metadata()
            self.machine.polled(now, now)
            self._perform_actions()
        self.simulation.schedule(POLL_MS, self._poll)

    def _update_metadata(self) -> None:
        partitions = self.simulation.host.topics.partitions
        names = {id_of(name): name for name in partitions}
        self.machine.metadata_changed(self._racks(), names, self.simulation.now)

    def _racks(self) -> dict[str, list[frozenset[str]]]:
        counts = self.simulation.host.topics.partitions
        return {name: [frozenset()] * count for name, count in counts.items()}

    def _perform_actions(self) -> None:
        while self.machine.actions:
            actions, self.machine.actions = self.machine.actions, []
            for action in actions:
                self._perform(action)
        wake_at = self.machine.wake_at()
        if wake_at is not None:
            self._alarm += 1
            alarm = self._alarm
            self.simulation.schedule(
                max(wake_at - self.simulation.now, 1), lambda: self._tick(alarm)
            )

    def _tick(self, alarm: int) -> None:
        if self.alive and alarm == self._alarm:
            self.machine.tick(self.simulation.now)
            self._perform_actions()

    def _later(self, action: Callable[[], None]) -> None:
        def act() -> None:
            if self.alive:
                action()
                self._perform_actions()

        self.simulation.schedule(self.simulation.random.randrange(1, 50), act)

    def _perform(self, action: Action) -> None:
        simulation, machine = self.simulation, self.machine
        match action:
            case Send():
                self._send(action)
            case CallListener(event):
                self._call_listener(event)
            case Assign(partitions):
                self.owned = partitions
            case FetchTopics(number):
                self._later(lambda: machine.topics_fetched(number, self._racks(), simulation.now))
            case ResolveTopics(topic_ids):
                names = {id_of(n): n for n in simulation.host.topics.partitions}
                results = {i: names[i] for i in topic_ids if i in names}
                self._later(lambda: machine.topics_resolved(results, simulation.now))
            case ReportError(error):
                self.errors.append(error)
            case _:
                pass

    def _call_listener(self, event: RebalanceEvent) -> None:
        """Calls the listener at a poll, after a delay."""

        def call() -> None:
            if not self.alive:
                return
            if not self.polls:
                self.simulation.schedule(POLL_MS, call)
                return
            self.events.append(event)
            if event.kind is not RebalanceKind.ASSIGNED:
                # A consumer stops reading revoked partitions immediately.
                self.owned -= frozenset(event.partitions)
            self.machine.callback_done(event, None, self.simulation.now)
            self._perform_actions()

        self.simulation.schedule(self.simulation.random.randrange(1, 300), call)

    def _send(self, action: Send) -> None:
        is_done = False

        def receive(response: Message | None) -> None:
            nonlocal is_done
            if is_done or not self.alive:
                return
            is_done = True
            if response is None:
                error = DisconnectError("no response")
                self.machine.handle_failure(action.number, error, self.simulation.now)
            else:
                self.machine.handle_response(action.number, response, self.simulation.now)
            self._perform_actions()

        self.simulation.call(action.request, self.name, receive)
        timeout_ms = max(action.timeout_ms, self.request_timeout_ms)
        self.simulation.schedule(min(timeout_ms, REBALANCE_MS + 5_000), lambda: receive(None))
