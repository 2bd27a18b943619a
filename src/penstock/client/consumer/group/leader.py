"""The leader of a group with the classic protocol, which assigns the partitions."""

from collections.abc import Iterable, Mapping, Sequence

from penstock.client.consumer.assignors import (
    Assignment,
    Assignor,
    RebalanceProtocol,
    Subscription,
    TopicRacks,
)
from penstock.client.consumer.assignors.encoding import decode_subscription, encode_assignment
from penstock.client.errors import IllegalStateError
from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.join_group import JoinGroupResponse


class Leadership:
    """The state of a leader: the topics of all members, and the metadata of its assignment."""

    def __init__(self, *, with_racks: bool) -> None:
        self._with_racks = with_racks
        self._topics: TopicRacks = {}
        self._assigned_shape: dict[str, object] | None = None
        self.watched: frozenset[str] = frozenset()
        """The topics of all members."""

    def update_metadata(self, topics: TopicRacks) -> None:
        self._topics = topics

    @property
    def is_outdated(self) -> bool:
        """Whether metadata has changed since the last assignment."""
        return self._assigned_shape is not None and self._assigned_shape != self._shape()

    def end(self) -> None:
        """Clears the state: this member is not the leader any more."""
        self._assigned_shape = None
        self.watched = frozenset()

    def begin(self, joined: JoinGroupResponse) -> frozenset[str]:
        """Returns the topics whose metadata is needed for the assignment."""
        self.watched = subscribed_topics(subscriptions_of(joined))
        return self.watched

    def assign(
        self,
        joined: JoinGroupResponse,
        assignors: Iterable[Assignor],
        protocol: RebalanceProtocol,
        topics: TopicRacks,
    ) -> dict[str, bytes]:
        """Returns the encoded assignments of all members.

        It is empty when a static leader has returned: the group keeps its assignment.
        """
        self._topics = topics
        assignments: dict[str, Assignment] = {}
        if not joined.skip_assignment:
            assignor = find_assignor(assignors, joined.protocol_name)
            assignments = assign(assignor, protocol, subscriptions_of(joined), topics)
            self.watched |= {
                partition.topic
                for assignment in assignments.values()
                for partition in assignment.partitions
            }
        self._assigned_shape = self._shape()
        return {member: encode_assignment(assignment) for member, assignment in assignments.items()}

    def _shape(self) -> dict[str, object]:
        return shape(self._topics, self.watched, with_racks=self._with_racks)


def find_assignor(assignors: Iterable[Assignor], name: str | None) -> Assignor:
    for assignor in assignors:
        if assignor.name == name:
            return assignor
    raise IllegalStateError(
        f"the coordinator chose the assignor {name!r}, which this member does not have"
    )


def subscriptions_of(joined: JoinGroupResponse) -> dict[str, Subscription]:
    return {
        member.member_id: decode_subscription(member.metadata, member.group_instance_id)
        for member in joined.members
    }


def subscribed_topics(subscriptions: Mapping[str, Subscription]) -> frozenset[str]:
    return frozenset(
        topic for subscription in subscriptions.values() for topic in subscription.topics
    )


def assign(
    assignor: Assignor,
    protocol: RebalanceProtocol,
    subscriptions: Mapping[str, Subscription],
    topics: TopicRacks,
) -> dict[str, Assignment]:
    """Returns an assignment for every member, empty for those that the assignor omits."""
    assignments = assignor.assign(topics, subscriptions)
    if protocol is RebalanceProtocol.COOPERATIVE and not assignor.from_subscribed_topics:
        # The built-in one compares generations, and may reassign what a member claims wrongly.
        _check_cooperative(assignor, assignments, subscriptions)
    return {member: assignments.get(member) or Assignment(()) for member in subscriptions}


def _check_cooperative(
    assignor: Assignor,
    assignments: Mapping[str, Assignment],
    subscriptions: Mapping[str, Subscription],
) -> None:
    added: set[TopicPartition] = set()
    revoked: set[TopicPartition] = set()
    for member, assignment in assignments.items():
        owned = set(subscriptions[member].owned_partitions)
        added |= set(assignment.partitions) - owned
        revoked |= owned - set(assignment.partitions)
    conflicts = sorted(added & revoked)
    if conflicts:
        raise IllegalStateError(
            f"assignor {assignor.name!r} assigns {', '.join(map(str, conflicts))} to a new member "
            "while another one still owns them; a cooperative assignor must omit such partitions: "
            "the group rebalances again once they are revoked"
        )


def shape(topics: TopicRacks, names: Iterable[str], *, with_racks: bool) -> dict[str, object]:
    """Returns the part of the metadata that an assignment depends on."""

    def of(racks: Sequence[frozenset[str]]) -> object:
        return tuple(racks) if with_racks else len(racks)

    return {name: of(topics[name]) for name in names if topics.get(name)}


def assignor_error(error: Exception) -> KafkaError:
    """Returns the error for the user, who may have written the assignor."""
    return IllegalStateError(
        f"the assignor failed: {type(error).__name__}: {error}; fix it: until then this member "
        "cannot rebalance the group"
    )
