"""The interface of assignors: subscriptions of members, and their assignments (C4)."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from penstock.client.consumer.assignors.java_order import in_hash_order
from penstock.core.ids import TopicPartition

TopicRacks = Mapping[str, Sequence[frozenset[str]]]
"""The racks of the replicas of each topic's partitions 0, 1, 2 … (empty sets without racks)."""


class RebalanceProtocol(IntEnum):
    """When members revoke partitions in a rebalance."""

    EAGER = 0
    """Every member revokes all its partitions before it joins."""
    COOPERATIVE = 1
    """Members only revoke the partitions that are assigned to others."""


class Subscription(NamedTuple):
    """The data that a member sends to the leader of its group."""

    topics: Sequence[str]
    user_data: bytes | None = None
    owned_partitions: Sequence[TopicPartition] = ()
    generation_id: int = -1
    """The generation of `owned_partitions`; -1 if unknown."""
    rack_id: str | None = None
    group_instance_id: str | None = None


class Assignment(NamedTuple):
    """The data that the leader sends to a member."""

    partitions: Sequence[TopicPartition]
    user_data: bytes | None = None


class Assignor(ABC):
    """Distributes partitions to the members of a group.

    For an assignor of your own, extend this class, and pass the class or an instance in
    `partition_assignment_strategy`. Every member of the group must have an assignor of that `name`.
    """

    name: str
    protocols: Sequence[RebalanceProtocol] = (RebalanceProtocol.EAGER,)
    """The supported protocols; with COOPERATIVE it must not assign a partition to a member while
    another one owns it."""
    version: int = 0
    from_subscribed_topics = False
    """Whether it only assigns topics that members have subscribed to."""

    @abstractmethod
    def assign(
        self, topics: TopicRacks, subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        """Returns an assignment for every member. Called by the leader of the group.

        `topics` are all topics in the metadata; subscribed topics that do not exist are missing.
        """

    def subscription_user_data(self, topics: Iterable[str]) -> bytes | None:
        """Returns data that this member adds to its subscription."""
        return None

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
        """Is called when this member has received its assignment."""
        return


class PartitionAssignor(Assignor):
    """An assignor whose assignments have no user data."""

    from_subscribed_topics = True

    def assign(
        self, topics: TopicRacks, subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        subscribed: dict[str, None] = {}
        for member in in_hash_order(subscriptions):
            subscribed.update(dict.fromkeys(subscriptions[member].topics))
        existing = {name: topics[name] for name in in_hash_order(subscribed) if topics.get(name)}
        assigned = self.assign_partitions(existing, subscriptions)
        return {member: Assignment(tuple(partitions)) for member, partitions in assigned.items()}

    @abstractmethod
    def assign_partitions(
        self, topics: TopicRacks, subscriptions: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """Returns the partitions of each member; `topics` are subscribed and exist."""


def partitions_of(topic: str, count: int) -> list[TopicPartition]:
    return [TopicPartition(topic, partition) for partition in range(count)]


def racks_matter(
    consumer_racks: set[str], partition_racks: set[str], racks: Iterable[frozenset[str]]
) -> bool:
    """Returns whether racks can matter: not if every partition is in every rack."""
    if consumer_racks.isdisjoint(partition_racks):
        return False
    return any(replica_racks != partition_racks for replica_racks in racks)
