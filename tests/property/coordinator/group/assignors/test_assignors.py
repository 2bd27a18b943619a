"""Invariants of the broker's assignors for random groups (C4)."""

from collections import Counter
from collections.abc import Mapping
from itertools import chain
from typing import NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.coordinator.group.assignors import ASSIGNORS, Assignment, Assignor, MemberSpec

uniform = ASSIGNORS["uniform"]
range_assignor = ASSIGNORS["range"]

every_assignor = pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=list(ASSIGNORS))


class Group(NamedTuple):
    members: dict[str, MemberSpec]
    partition_counts: dict[UUID, int]

    def after(self, assignment: Assignment) -> "Group":
        """The same members, with this assignment."""
        return self._replace(
            members={
                member_id: member._replace(assigned=assignment[member_id])
                for member_id, member in self.members.items()
            }
        )

    def without(self, member_id: str) -> "Group":
        members = {key: member for key, member in self.members.items() if key != member_id}
        return self._replace(members=members)


@st.composite
def groups(draw: st.DrawFn, *, alike: bool | None = None) -> Group:
    """A group in which each partition has at most one owner, subscribed or not."""
    topic_ids = draw(st.lists(st.uuids(), min_size=1, max_size=5, unique=True))
    counts = {topic_id: draw(st.integers(1, 9)) for topic_id in topic_ids}
    subscriptions = st.frozensets(st.sampled_from(topic_ids), min_size=1)
    if alike or (alike is None and draw(st.booleans())):
        subscriptions = st.just(draw(subscriptions))
    names = draw(st.lists(st.text("abc", min_size=1), min_size=1, max_size=8, unique=True))
    owned: dict[str, dict[UUID, set[int]]] = {name: {} for name in names}
    owners = st.sampled_from([None, *names])
    for topic_id, count in counts.items():
        for partition in range(count):
            if (owner := draw(owners)) is not None:
                owned[owner].setdefault(topic_id, set()).add(partition)
    members = {
        name: MemberSpec(
            f"instance-{name}" if draw(st.booleans()) else None,
            None,
            draw(subscriptions),
            {topic_id: frozenset(partitions) for topic_id, partitions in owned[name].items()},
        )
        for name in names
    }
    return Group(members, counts)


def sizes(assignment: Assignment) -> dict[str, int]:
    return {member_id: size(share) for member_id, share in assignment.items()}


def size(share: Mapping[UUID, frozenset[int]]) -> int:
    return sum(map(len, share.values()))


def kept(member: MemberSpec, share: Mapping[UUID, frozenset[int]]) -> int:
    return sum(
        len(share.get(key, frozenset()) & previous_owners)
        for key, previous_owners in member.assigned.items()
    )


@every_assignor
@given(group=groups())
def test_every_partition_has_one_owner_and_the_owner_subscribes(
    assignor: Assignor, group: Group
) -> None:
    assignment = assignor(*group)
    assert assignment.keys() == group.members.keys()
    owned = Counter(
        (topic_id, partition)
        for share in assignment.values()
        for topic_id, partitions in share.items()
        for partition in partitions
    )
    subscribed = frozenset().union(*(member.topic_ids for member in group.members.values()))
    assert owned == {
        (topic_id, partition): 1
        for topic_id in subscribed
        for partition in range(group.partition_counts[topic_id])
    }
    for member_id, share in assignment.items():
        assert share.keys() <= group.members[member_id].topic_ids
        assert all(share.values()), "a topic without partitions has no entry"


@every_assignor
@given(group=groups())
def test_the_order_of_the_arguments_does_not_matter(assignor: Assignor, group: Group) -> None:
    turned = {
        member_id: member._replace(assigned=dict(reversed(list(member.assigned.items()))))
        for member_id, member in reversed(group.members.items())
    }
    counts = dict(reversed(group.partition_counts.items()))
    assert assignor(turned, counts) == assignor(*group)


@every_assignor
@given(group=groups())
def test_an_unchanged_group_keeps_its_assignment(assignor: Assignor, group: Group) -> None:
    assignment = assignor(*group)
    assert assignor(*group.after(assignment)) == assignment


@given(group=groups(alike=True))
def test_uniform_balances_within_one(group: Group) -> None:
    loads = sizes(uniform(*group)).values()
    assert max(loads) - min(loads) <= 1


@given(group=groups(alike=True))
def test_uniform_keeps_as_many_partitions_as_balance_allows(group: Group) -> None:
    topic_ids = next(iter(group.members.values())).topic_ids
    total = sum(group.partition_counts[topic_id] for topic_id in topic_ids)
    quota, extra = divmod(total, len(group.members))
    previous_owners = [
        sum(len(partitions) for key, partitions in member.assigned.items() if key in topic_ids)
        for member in group.members.values()
    ]
    possible = sum(min(count, quota) for count in previous_owners) + min(
        extra, sum(n > quota for n in previous_owners)
    )
    assignment = uniform(*group)
    assert possible == sum(
        kept(member, assignment[member_id]) for member_id, member in group.members.items()
    )


@given(group=groups(alike=True), data=st.data())
def test_uniform_moves_only_the_partitions_of_a_leaving_member(
    group: Group, data: st.DataObject
) -> None:
    before = uniform(*group)
    leaver = data.draw(st.sampled_from(sorted(group.members)))
    after = uniform(*group.after(before).without(leaver))
    for member_id, share in after.items():
        for topic_id, partitions in before[member_id].items():
            assert partitions <= share[topic_id]


@given(group=groups(alike=True))
def test_uniform_moves_only_the_partitions_of_a_joining_member(group: Group) -> None:
    before = uniform(*group)
    topic_ids = next(iter(group.members.values())).topic_ids
    members = {**group.after(before).members, "b-new": MemberSpec(None, None, topic_ids, {})}
    after = uniform(members, group.partition_counts)
    stayed = sum(kept(members[member_id], after[member_id]) for member_id in before)
    assert stayed + size(after["b-new"]) == sum(sizes(before).values())


@given(group=groups(alike=False))
def test_uniform_leaves_no_partition_that_could_improve_the_balance(group: Group) -> None:
    """An owner has at most one partition more than any other subscriber of its topic."""
    assignment = uniform(*group)
    loads = sizes(assignment)
    for owner, share in assignment.items():
        for member_id, member in group.members.items():
            if not share.keys().isdisjoint(member.topic_ids):
                assert loads[owner] - loads[member_id] <= 1


@given(group=groups())
def test_range_assigns_runs_that_differ_by_at_most_one_longest_first(
    group: Group,
) -> None:
    assignment = range_assignor(*group)
    members = sorted(
        group.members,
        key=lambda name: (
            group.members[name].instance_id is None,
            group.members[name].instance_id or name,
        ),
    )
    for topic_id, count in group.partition_counts.items():
        runs = [
            sorted(assignment[name].get(topic_id, ()))
            for name in members
            if topic_id in group.members[name].topic_ids
        ]
        if runs:
            assert list(chain.from_iterable(runs)) == list(range(count))
            lengths = list(map(len, runs))
            assert lengths == sorted(lengths, reverse=True)
            assert lengths[0] - lengths[-1] <= 1


@given(group=groups(alike=True), count=st.integers(1, 9))
def test_range_co_partitions_topics_with_as_many_partitions(group: Group, count: int) -> None:
    assignment = range_assignor(group.members, dict.fromkeys(group.partition_counts, count))
    for member_id, share in assignment.items():
        assert len(set(share.values())) <= 1
        assert not share or share.keys() == group.members[member_id].topic_ids


@given(group=groups(), data=st.data())
def test_range_restores_the_partitions_of_restarted_static_members(
    group: Group, data: st.DataObject
) -> None:
    """Each has another member id; the assignments of the others do not change."""
    assignment = range_assignor(*group)
    new_ids = data.draw(st.permutations([f"again-{number}" for number in range(8)]))
    again = {
        name: name if member.instance_id is None else new_id
        for (name, member), new_id in zip(group.members.items(), new_ids, strict=False)
    }
    members = {again[name]: member for name, member in group.members.items()}
    assert range_assignor(members, group.partition_counts) == {
        again[name]: share for name, share in assignment.items()
    }
