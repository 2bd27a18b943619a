"""What the leader of a classic group does: it assigns, with the assignor that all members know."""

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
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.join_group import JoinGroupResponse


class Leadership:
    """What a leader keeps in mind: the group's topics, and the metadata it has assigned by."""

    def __init__(self, *, with_racks: bool) -> None:
        self._with_racks = with_racks
        self._known: TopicRacks = {}
        self._assigned: dict[str, object] | None = None
        self.watched: frozenset[str] = frozenset()
        """The topics of all members."""

    def note(self, topics: TopicRacks) -> None:
        """The latest metadata."""
        self._known = topics

    @property
    def is_outdated(self) -> bool:
        """Whether the last assignment rests on other metadata than there is now."""
        return self._assigned is not None and self._assigned != self._shape()

    def end(self) -> None:
        """Another member leads, or none."""
        self._assigned = None
        self.watched = frozenset()

    def begin(self, joined: JoinGroupResponse) -> frozenset[str]:
        """The topics that must be known before it can assign."""
        self.watched = subscribed_topics(subscriptions_of(joined))
        return self.watched

    def assign(
        self,
        joined: JoinGroupResponse,
        assignors: Iterable[Assignor],
        protocol: RebalanceProtocol,
        topics: TopicRacks,
    ) -> dict[str, bytes]:
        """The assignments of all members, as they are sent.

        None where a static leader has come back: the group keeps the assignment it has.
        """
        self._known = topics
        assignments: dict[str, Assignment] = {}
        if not joined.skip_assignment:
            assignor = find_assignor(assignors, joined.protocol_name)
            assignments = assign(assignor, protocol, subscriptions_of(joined), topics)
            self.watched |= {p.topic for given in assignments.values() for p in given.partitions}
        self._assigned = self._shape()
        return {member: encode_assignment(given) for member, given in assignments.items()}

    def _shape(self) -> dict[str, object]:
        return shape(self._known, self.watched, with_racks=self._with_racks)


def find_assignor(assignors: Iterable[Assignor], name: str | None) -> Assignor:
    for assignor in assignors:
        if assignor.name == name:
            return assignor
    raise IllegalStateError(
        f"the group's coordinator chose the assignor {name!r}, which this member did not offer"
    )


def subscriptions_of(joined: JoinGroupResponse) -> dict[str, Subscription]:
    return {
        member.member_id: decode_subscription(member.metadata, member.group_instance_id)
        for member in joined.members
    }


def subscribed_topics(subscriptions: Mapping[str, Subscription]) -> frozenset[str]:
    return frozenset(topic for told in subscriptions.values() for topic in told.topics)


def assign(
    assignor: Assignor,
    protocol: RebalanceProtocol,
    subscriptions: Mapping[str, Subscription],
    topics: TopicRacks,
) -> dict[str, Assignment]:
    """An assignment for every member; one that the assignor left out gets nothing."""
    found = assignor.assign(topics, subscriptions)
    if protocol is RebalanceProtocol.COOPERATIVE and not assignor.from_subscribed_topics:
        # The built-in one compares generations, and may give away what a member only claims.
        _check_cooperative(assignor, found, subscriptions)
    return {member: found.get(member) or Assignment(()) for member in subscriptions}


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
    both = sorted(added & revoked)
    if both:
        raise IllegalStateError(
            f"assignor {assignor.name!r} gives {', '.join(map(str, both))} to a new member while "
            "another one still owns them. A cooperative assignor leaves such partitions out: the "
            "group rebalances again once they are given up"
        )


def shape(topics: TopicRacks, names: Iterable[str], *, with_racks: bool) -> dict[str, object]:
    """What of the metadata an assignment depends on: another shape, another assignment."""

    def of(racks: Sequence[frozenset[str]]) -> object:
        return tuple(racks) if with_racks else len(racks)

    return {name: of(topics[name]) for name in names if topics.get(name)}
