"""The `sticky` and `cooperative-sticky` assignors: balanced, with as few movements as possible.

`sticky` is eager: its members revoke all partitions in a rebalance and get most of them back; their
previous assignment is in the user data. With `cooperative-sticky` they keep reading; a partition
that moves to another member is not in the first assignment, until its owner has revoked it and
joined again.
"""

import struct
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from penstock.client.consumer.assignors.java_order import in_hash_order
from penstock.client.consumer.assignors.model import (
    Assignment,
    PartitionAssignor,
    RebalanceProtocol,
    Subscription,
    TopicRacks,
)
from penstock.client.consumer.assignors.sticky_constrained import ConstrainedAssignment
from penstock.client.consumer.assignors.sticky_general import GeneralAssignment
from penstock.client.consumer.assignors.sticky_racks import RackInfo
from penstock.core.errors import ProtocolError
from penstock.core.ids import TopicPartition
from penstock.protocol.codec import decode, encode
from penstock.protocol.fields import Int32, Message, Struct, data

NO_GENERATION = -1
_GENERATION = struct.Struct(">i")


class PreviousTopic(Struct):
    topic: str = ""
    partitions: list[Int32] = []


class StickyUserDataV0(Message):
    """The user data of old clients, without a generation."""

    INFO = data(versions="0")

    previous_assignment: list[PreviousTopic] = []


class StickyUserDataV1(Message):
    INFO = data(versions="0")

    previous_assignment: list[PreviousTopic] = []
    generation: Int32 = NO_GENERATION


class MemberData(NamedTuple):
    """The previous assignment of a member, and its generation; None if unknown."""

    partitions: Sequence[TopicPartition]
    generation: int | None


class _AbstractSticky(PartitionAssignor):
    def __init__(self) -> None:
        self._generation = NO_GENERATION
        self._max_generation = NO_GENERATION

    @abstractmethod
    def member_data(self, subscription: Subscription) -> MemberData:
        """Returns the assignment of the member before this rebalance."""

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
        self._generation = generation_id

    def assign_partitions(
        self, topics: TopicRacks, subscriptions: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        return self._assign(topics, subscriptions)[0]

    def _assign(
        self, topics: TopicRacks, subscriptions: Mapping[str, Subscription]
    ) -> tuple[dict[str, list[TopicPartition]], dict[TopicPartition, str] | None]:
        """Returns the assignment, and the new owners of transferred partitions (None: unknown)."""
        owned, claimed_twice = self._owned(topics, subscriptions)
        racks = RackInfo(topics, subscriptions)
        if _all_equal([subscriptions[member].topics for member in owned]):
            constrained = ConstrainedAssignment(topics, racks, owned, claimed_twice)
            return constrained.build(), constrained.transferring
        earlier = self._earlier_owners({member: subscriptions[member] for member in owned})
        return GeneralAssignment(topics, racks, owned, subscriptions, earlier).build(), None

    def _owned(
        self, topics: TopicRacks, subscriptions: Mapping[str, Subscription]
    ) -> tuple[dict[str, list[TopicPartition]], set[TopicPartition]]:
        """Returns the owned partitions by member; the owner of the later generation counts.

        Partitions that two members of one generation claim have no owner; they are returned, too.
        """
        owned: dict[str, list[TopicPartition]] = {}
        claimed_twice: set[TopicPartition] = set()
        owners: dict[TopicPartition, str] = {}
        for member in in_hash_order(subscriptions):
            previous = self.member_data(subscriptions[member])
            generation = NO_GENERATION if previous.generation is None else previous.generation
            self._max_generation = max(self._max_generation, generation)
            partitions = owned[member] = []
            for partition in previous.partitions:
                if not 0 <= partition.partition < len(topics.get(partition.topic, ())):
                    continue
                other_member = owners.get(partition)
                if other_member is not None:
                    other_generation = subscriptions[other_member].generation_id
                    if generation < other_generation:
                        continue
                    if partition in owned[other_member]:
                        owned[other_member].remove(partition)
                    if generation == other_generation:
                        claimed_twice.add(partition)
                        owners[partition] = member
                        continue
                owners[partition] = member
                partitions.append(partition)
        return owned, claimed_twice

    def _earlier_owners(
        self, subscriptions: Mapping[str, Subscription]
    ) -> dict[TopicPartition, str]:
        """Returns the owners of partitions in the latest generation before the current one."""
        latest: dict[TopicPartition, tuple[int, str]] = {}
        for member, subscription in subscriptions.items():
            previous = self.member_data(subscription)
            generation = NO_GENERATION if previous.generation is None else previous.generation
            if generation < self._max_generation:
                for partition in previous.partitions:
                    if partition not in latest or generation > latest[partition][0]:
                        latest[partition] = (generation, member)
        return {partition: member for partition, (_, member) in latest.items()}


def _all_equal(subscribed: Iterable[Sequence[str]]) -> bool:
    first: set[str] = set()
    for topics in subscribed:
        if not first:
            first = set(topics)
        elif len(topics) != len(first) or not first.issuperset(topics):
            return False
    return True


class StickyAssignor(_AbstractSticky):
    name = "sticky"

    def __init__(self) -> None:
        super().__init__()
        self._assignment: Sequence[TopicPartition] | None = None

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
        super().on_assignment(assignment, generation_id)
        self._assignment = assignment.partitions

    def subscription_user_data(self, topics: Iterable[str]) -> bytes | None:
        if self._assignment is None:
            return None
        by_topic: dict[str, list[int]] = {}
        for topic, partition in self._assignment:
            by_topic.setdefault(topic, []).append(partition)
        # Reversed: Kafka fills this map with computeIfAbsent, which inserts keys at the front.
        order = in_hash_order(tuple(reversed(by_topic)))
        previous = [PreviousTopic(topic, by_topic[topic]) for topic in order]
        return encode(StickyUserDataV1(previous, self._generation), 0)

    def member_data(self, subscription: Subscription) -> MemberData:
        """Reads the user data: eager members own nothing when they join."""
        if not subscription.user_data:
            return MemberData((), None)
        try:
            previous, _ = decode(StickyUserDataV1, 0, subscription.user_data, 0)
        except ProtocolError:
            return _old_member_data(subscription.user_data)
        return MemberData(_partitions(previous.previous_assignment), previous.generation)


def _old_member_data(user_data: bytes) -> MemberData:
    try:
        old, _ = decode(StickyUserDataV0, 0, user_data, 0)
    except ProtocolError:
        return MemberData((), NO_GENERATION)
    return MemberData(_partitions(old.previous_assignment), None)


def _partitions(previous: Iterable[PreviousTopic]) -> list[TopicPartition]:
    return [
        TopicPartition(topic.topic, partition)
        for topic in previous
        for partition in topic.partitions
    ]


class CooperativeStickyAssignor(_AbstractSticky):
    name = "cooperative-sticky"
    protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def subscription_user_data(self, topics: Iterable[str]) -> bytes:
        return _GENERATION.pack(self._generation)

    def member_data(self, subscription: Subscription) -> MemberData:
        if subscription.generation_id >= 0:
            return MemberData(subscription.owned_partitions, subscription.generation_id)
        generation: int | None = None
        if subscription.user_data is not None:
            is_complete = len(subscription.user_data) >= _GENERATION.size
            generation = (
                _GENERATION.unpack_from(subscription.user_data)[0] if is_complete else NO_GENERATION
            )
        return MemberData(subscription.owned_partitions, generation)

    def assign_partitions(
        self, topics: TopicRacks, subscriptions: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        assignment, transferring = self._assign(topics, subscriptions)
        if transferring is None:
            transferring = _transferring(assignment, subscriptions)
        for partition, member in transferring.items():
            assignment[member].remove(partition)
        return assignment


def _transferring(
    assignment: Mapping[str, list[TopicPartition]], subscriptions: Mapping[str, Subscription]
) -> dict[TopicPartition, str]:
    """Returns the new owners of partitions that another member must revoke first."""
    added: dict[TopicPartition, str] = {}
    revoked: set[TopicPartition] = set()
    for member, partitions in assignment.items():
        owned = subscriptions[member].owned_partitions
        added.update((p, member) for p in set(partitions).difference(owned))
        revoked.update(set(owned).difference(partitions))
    return {partition: member for partition, member in added.items() if partition in revoked}
