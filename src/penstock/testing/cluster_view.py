"""The state of a cluster for tests, as the brokers that can be reached agree on it."""

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from penstock.core.ids import TopicPartition
from penstock.testing.errors import BrokerError
from penstock.testing.topics import (
    ClusterState,
    RetriableError,
    TopicExistsError,
    create_topic,
    delete_topic,
    describe_cluster,
    elect_preferred_leaders,
    know_end_offsets,
)

WAIT_SECONDS = 60.0
_POLL_SECONDS = 0.02

T = TypeVar("T")
Address = tuple[str, int]
States = Mapping[int, ClusterState]
"""What each broker that can be reached knows."""


class ClusterView:
    """Requests to brokers. All methods wait for the state that they need.

    reachable: returns the addresses of the brokers that run and are neither paused nor isolated.
    """

    def __init__(self, reachable: Callable[[], Mapping[int, Address]]) -> None:
        self._reachable = reachable

    def leader(self, partition: TopicPartition) -> int:
        """Returns the leader that all brokers name, once it is one of those that are reachable."""

        def agreed_leader(states: States) -> int | None:
            leaders = {
                state.partitions[partition].leader if partition in state.partitions else None
                for state in states.values()
            }
            leader = leaders.pop() if len(leaders) == 1 else None
            return leader if leader in states else None

        return self._poll(
            agreed_leader,
            lambda states: (
                f"{partition} has no leader that can be reached: "
                + _describe_partition(partition, states)
            ),
            "create the topic, or start() or heal() the brokers that have its replicas",
        )

    def controller(self) -> int:
        """Returns the controller that all brokers name, once it is reachable."""

        def agreed_controller(states: States) -> int | None:
            controllers = {state.controller for state in states.values()}
            controller = controllers.pop() if len(controllers) == 1 else None
            return controller if controller in states else None

        return self._poll(
            agreed_controller,
            lambda states: "there is no controller that can be reached",
            "start() or heal() brokers",
        )

    def wait_until_in_sync(self, topic: str | None) -> None:
        """Waits until all replicas, or those of one topic, are in sync for all brokers."""

        def is_in_sync(states: States) -> bool:
            known = {frozenset(state.partitions) for state in states.values()}
            return len(known) == 1 and not _lagging(topic, states)

        self._poll(
            is_in_sync,
            lambda states: f"replicas are not in sync: {', '.join(_lagging(topic, states))}",
            "see the logs of the brokers: broker-1/broker.log in the folder of the cluster",
        )

    def create_topic(
        self, name: str, partitions: int, config: Mapping[str, str], replicas: int
    ) -> None:
        """Creates a topic; returns when its replicas are in sync, and all brokers know it."""

        def create(address: Address) -> None:
            try:
                create_topic(address, name, partitions, config, replicas)
            except TopicExistsError as error:
                if self._is_known(name):
                    raise
                raise RetriableError(str(error)) from None  # until its deletion is complete

        self._at_controller(create)
        names = {TopicPartition(name, number) for number in range(partitions)}

        def is_known(states: States) -> bool:
            return all(
                partition in state.partitions and state.partitions[partition].is_in_sync
                for state in states.values()
                for partition in names
            )

        self._poll(
            is_known,
            lambda states: (
                f"topic {name} is not in sync on all brokers: " + ", ".join(_lagging(name, states))
            ),
            "see the logs of the brokers: broker-1/broker.log in the folder of the cluster",
        )

    def delete_topic(self, name: str, *, missing_ok: bool) -> None:
        self._at_controller(lambda address: delete_topic(address, name, missing_ok=missing_ok))

    def elect_preferred_leaders(self) -> None:
        """Makes the first replica of each partition its leader; returns when it is."""

        def preferred_leaders_lead(states: States) -> bool:
            return all(
                partition.leader == partition.replicas[0]
                for state in states.values()
                for partition in state.partitions.values()
            )

        if preferred_leaders_lead(self._states()):
            return
        self._at_controller(elect_preferred_leaders)
        self._poll(
            preferred_leaders_lead,
            lambda states: "preferred leaders were not elected",
            "see the logs of the brokers: broker-1/broker.log in the folder of the cluster",
        )

    def wait_for_end_offsets(self) -> None:
        """Waits until every leader tells clients where its partitions end."""

        def are_known(states: States) -> bool:
            led: dict[int | None, list[TopicPartition]] = {}
            for name, partition in next(iter(states.values())).partitions.items():
                led.setdefault(partition.leader, []).append(name)
            addresses = self._reachable()
            return all(
                leader in addresses and know_end_offsets(addresses[leader], partitions)
                for leader, partitions in led.items()
                if leader is not None
            )

        self._poll(
            are_known,
            lambda states: "leaders do not know where their partitions end",
            "see the logs of the brokers: broker-1/broker.log in the folder of the cluster",
        )

    # --- implementation

    def _states(self) -> dict[int, ClusterState]:
        return {broker: describe_cluster(address) for broker, address in self._reachable().items()}

    def _poll(
        self,
        read: Callable[[States], T | None],
        describe_problem: Callable[[States], str],
        remedy: str,
    ) -> T:
        """Returns the first result of `read` that is neither None nor False."""
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            states = self._states()
            if not states:
                raise BrokerError("no broker can be reached", remedy="call start() or heal()")
            result = read(states)
            if result is not None and result is not False:
                return result
            if time.monotonic() > deadline:
                problem = describe_problem(states)
                raise BrokerError(f"after {WAIT_SECONDS:g} s, {problem}", remedy=remedy)
            time.sleep(_POLL_SECONDS)

    def _at_controller(self, request: Callable[[Address], None]) -> None:
        """Sends a request to the controller, and to the next one if it has moved."""
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            address = self._reachable()[self.controller()]
            try:
                request(address)
            except RetriableError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_SECONDS)
            else:
                return

    def _is_known(self, topic: str) -> bool:
        return any(
            partition.topic == topic
            for state in self._states().values()
            for partition in state.partitions
        )


def _lagging(topic: str | None, states: States) -> list[str]:
    """Returns the partitions that a broker does not know to be in sync, each once."""
    return sorted(
        {
            f"{name} (leader {partition.leader}, replicas {list(partition.replicas)}, "
            f"in sync {list(partition.isr)})"
            for state in states.values()
            for name, partition in state.partitions.items()
            if topic in (None, name.topic) and not partition.is_in_sync
        }
    )


def _describe_partition(name: TopicPartition, states: States) -> str:
    """Returns what each broker knows of a partition."""
    texts = []
    for broker, state in states.items():
        partition = state.partitions.get(name)
        known = (
            "does not know it"
            if partition is None
            else f"knows leader {partition.leader}, replicas {list(partition.replicas)}, "
            f"in sync {list(partition.isr)}"
        )
        texts.append(f"broker {broker} {known}")
    return "; ".join(texts)
