"""What an assignor gets and gives: subscriptions of members, and the partitions for each (C4)."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from penstock.client.consumer.assignors.java_order import in_hash_order
from penstock.core.ids import TopicPartition

TopicRacks = Mapping[str, Sequence[frozenset[str]]]
"""For each topic: the racks of the replicas of partition 0, 1, 2 … (empty sets where brokers have
none). Its length is the number of partitions."""


class RebalanceProtocol(IntEnum):
    EAGER = 0
    """Every member gives up all it has before it joins anew."""
    COOPERATIVE = 1
    """Members keep what they have, and give up only what another one is to get."""


class Subscription(NamedTuple):
    """What a member tells the leader of its group."""

    topics: Sequence[str]
    user_data: bytes | None = None
    owned_partitions: Sequence[TopicPartition] = ()
    generation_id: int = -1
    """The generation in which it got `owned_partitions`; -1 where it does not say."""
    rack_id: str | None = None
    group_instance_id: str | None = None


class Assignment(NamedTuple):
    """What the leader tells a member."""

    partitions: Sequence[TopicPartition]
    user_data: bytes | None = None


class Assignor(ABC):
    """Shares out partitions among the members of a group.

    Subclass it for an assignor of your own, and name the class, or an object of it, in
    `partition_assignment_strategy`. Every member of the group must know an assignor of that `name`.
    """

    name: str
    protocols: Sequence[RebalanceProtocol] = (RebalanceProtocol.EAGER,)
    """What it can do; an assignor that says COOPERATIVE never gives a partition to a member while
    another one still owns it."""
    version: int = 0
    from_subscribed_topics = False
    """True: it only ever assigns topics that some member has subscribed to."""

    @abstractmethod
    def assign(
        self, topics: TopicRacks, subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        """Called at the group's leader: an assignment for every member.

        `topics` are all that the client knows of; subscribed topics that do not exist are missing.
        """

    def subscription_user_data(self, topics: Iterable[str]) -> bytes | None:
        """What this member sends along with its subscription."""
        return None

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
        """This member has got its assignment."""
        return


class PartitionAssignor(Assignor):
    """An assignor that needs no data of its own beyond the subscriptions."""

    from_subscribed_topics = True

    def assign(
        self, topics: TopicRacks, subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        wanted: dict[str, None] = {}
        for member in in_hash_order(subscriptions):
            wanted.update(dict.fromkeys(subscriptions[member].topics))
        known = {name: topics[name] for name in in_hash_order(wanted) if topics.get(name)}
        assigned = self.assign_partitions(known, subscriptions)
        return {member: Assignment(tuple(partitions)) for member, partitions in assigned.items()}

    @abstractmethod
    def assign_partitions(
        self, topics: TopicRacks, subscriptions: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """The partitions of each member; `topics` are those that are subscribed to and exist."""


def partitions_of(topic: str, count: int) -> list[TopicPartition]:
    return [TopicPartition(topic, partition) for partition in range(count)]


def racks_matter(
    consumer_racks: set[str], partition_racks: set[str], racks: Iterable[frozenset[str]]
) -> bool:
    """Racks are looked at where it can help: not if every partition is in every rack."""
    if consumer_racks.isdisjoint(partition_racks):
        return False
    return any(of_partition != partition_racks for of_partition in racks)
