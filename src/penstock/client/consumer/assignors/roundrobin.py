"""The `roundrobin` assignor: all partitions of all topics in turn."""

from collections.abc import Mapping

from penstock.client.consumer.assignors.java_order import (
    in_hash_order,
    sorted_strings,
    string_order,
)
from penstock.client.consumer.assignors.model import (
    PartitionAssignor,
    Subscription,
    TopicRacks,
    partitions_of,
)
from penstock.core.ids import TopicPartition


def in_member_order(subscriptions: Mapping[str, Subscription]) -> list[str]:
    """Returns static members by their instance ids, then the others by their member ids."""

    def key(member: str) -> tuple[bool, bytes]:
        instance = subscriptions[member].group_instance_id
        return instance is None, string_order(member if instance is None else instance)

    return sorted(in_hash_order(subscriptions), key=key)


class RoundRobinAssignor(PartitionAssignor):
    name = "roundrobin"

    def assign_partitions(
        self, topics: TopicRacks, subscriptions: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        members = in_member_order(subscriptions)
        subscribed = {member: frozenset(subscriptions[member].topics) for member in members}
        assignment: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
        index = 0
        for topic in sorted_strings(topics):
            for partition in partitions_of(topic, len(topics[topic])):
                while topic not in subscribed[members[index]]:
                    index = (index + 1) % len(members)
                assignment[members[index]].append(partition)
                index = (index + 1) % len(members)
        return assignment
