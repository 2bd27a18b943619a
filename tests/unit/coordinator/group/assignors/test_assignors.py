"""The assignors that the broker runs for consumer groups: known groups, known results (C4)."""

from collections.abc import Iterable, Mapping
from uuid import UUID

import pytest

from penstock.coordinator.group.assignors import (
    ASSIGNORS,
    Assignment,
    MemberSpec,
    PartitionAssignorError,
)
from penstock.core.errors import ErrorCode

A, B, C = UUID(int=1), UUID(int=2), UUID(int=3)

range_assignor = ASSIGNORS["range"]
uniform = ASSIGNORS["uniform"]

Partitions = Mapping[UUID, Iterable[int]]


def member(
    topics: Iterable[UUID], assigned: Partitions | None = None, instance_id: str | None = None
) -> MemberSpec:
    return MemberSpec(instance_id, None, frozenset(topics), previous_assignment(assigned or {}))


def previous_assignment(assigned: Partitions) -> dict[UUID, frozenset[int]]:
    return {topic_id: frozenset(partitions) for topic_id, partitions in assigned.items()}


def assignment(members: Mapping[str, Partitions]) -> Assignment:
    return {member_id: previous_assignment(partitions) for member_id, partitions in members.items()}


def test_assignor_names_are_in_kafkas_default_order() -> None:
    """C4: Kafka's default of group.consumer.assignors."""
    assert list(ASSIGNORS) == ["uniform", "range"]


@pytest.mark.parametrize("name", ASSIGNORS)
class TestEveryAssignor:
    def test_no_members_get_no_assignment(self, name: str) -> None:
        assert ASSIGNORS[name]({}, {A: 3}) == {}

    def test_members_without_subscriptions_get_empty_assignments(self, name: str) -> None:
        members = {"m1": member([], {A: [0]}), "m2": member([])}
        assert ASSIGNORS[name](members, {A: 3}) == {"m1": {}, "m2": {}}

    def test_a_member_without_subscriptions_gets_nothing_from_others(self, name: str) -> None:
        members = {"m1": member([], {A: [0]}), "m2": member([A])}
        assert ASSIGNORS[name](members, {A: 2}) == assignment({"m1": {}, "m2": {A: [0, 1]}})

    def test_a_surplus_member_gets_nothing(self, name: str) -> None:
        members = {"m1": member([A]), "m2": member([A]), "m3": member([A])}
        result = ASSIGNORS[name](members, {A: 2})
        assert sorted(map(len, result.values())) == [0, 1, 1]

    @pytest.mark.parametrize("other_topics", [[A, B], [A]], ids=["same topics", "different topics"])
    def test_a_missing_topic_is_ignored(self, name: str, other_topics: list[UUID]) -> None:
        members = {"m1": member([A, B]), "m2": member(other_topics)}
        with pytest.raises(PartitionAssignorError, match=str(B)) as caught:
            ASSIGNORS[name](members, {A: 2})
        assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR

    def test_topics_without_subscribers_are_not_assigned(self, name: str) -> None:
        result = ASSIGNORS[name]({"m1": member([A], {C: [0]})}, {A: 1, B: 4, C: 4})
        assert result == assignment({"m1": {A: [0]}})


class TestRange:
    def test_topics_with_as_many_partitions_are_co_partitioned(self) -> None:
        members = {"m1": member([A, B]), "m2": member([A, B])}
        assert range_assignor(members, {A: 3, B: 3}) == assignment(
            {"m1": {A: [0, 1], B: [0, 1]}, "m2": {A: [2], B: [2]}}
        )

    def test_the_first_members_get_the_longer_runs(self) -> None:
        members = {f"m{number}": member([A]) for number in range(4)}
        assert range_assignor(members, {A: 10}) == assignment(
            {"m0": {A: [0, 1, 2]}, "m1": {A: [3, 4, 5]}, "m2": {A: [6, 7]}, "m3": {A: [8, 9]}}
        )

    def test_each_topic_is_split_among_its_own_subscribers(self) -> None:
        members = {"m1": member([A]), "m2": member([A, B]), "m3": member([B])}
        assert range_assignor(members, {A: 3, B: 3}) == assignment(
            {"m1": {A: [0, 1]}, "m2": {A: [2], B: [0, 1]}, "m3": {B: [2]}}
        )

    def test_static_members_come_first_by_instance_id(self) -> None:
        members = {
            "m1": member([A]),
            "m2": member([A], instance_id="i2"),
            "m3": member([A], instance_id="i1"),
            "m0": member([A]),
        }
        assert range_assignor(members, {A: 4}) == assignment(
            {"m3": {A: [0]}, "m2": {A: [1]}, "m0": {A: [2]}, "m1": {A: [3]}}
        )

    def test_restarted_static_members_get_their_old_partitions(self) -> None:
        members = {"m1": member([A], instance_id="i1"), "m2": member([A], instance_id="i2")}
        restarted_members = {"m9": members["m1"], "m3": members["m2"]}
        old, new = range_assignor(members, {A: 5}), range_assignor(restarted_members, {A: 5})
        assert (new["m9"], new["m3"]) == (old["m1"], old["m2"])

    def test_earlier_assignments_are_ignored(self) -> None:
        members = {"m1": member([A], {A: [2, 3]}), "m2": member([A], {A: [0, 1]})}
        assert range_assignor(members, {A: 4}) == assignment({"m1": {A: [0, 1]}, "m2": {A: [2, 3]}})


class TestUniformWithTheSameTopics:
    def test_a_new_group_is_balanced(self) -> None:
        members = {"m1": member([A, B]), "m2": member([A, B])}
        assert uniform(members, {A: 3, B: 2}) == assignment(
            {"m1": {A: [0, 1]}, "m2": {A: [2], B: [0, 1]}}
        )

    def test_a_joining_member_gets_the_surplus_of_the_others(self) -> None:
        members = {
            "m1": member([A], {A: [0, 1, 2]}),
            "m2": member([A], {A: [3, 4, 5]}),
            "m0": member([A]),
        }
        assert uniform(members, {A: 6}) == assignment(
            {"m0": {A: [2, 5]}, "m1": {A: [0, 1]}, "m2": {A: [3, 4]}}
        )

    def test_only_the_partitions_of_a_leaving_member_move(self) -> None:
        members = {"m1": member([A], {A: [0, 3]}), "m2": member([A], {A: [1, 4]})}
        assert uniform(members, {A: 6}) == assignment({"m1": {A: [0, 2, 3]}, "m2": {A: [1, 4, 5]}})

    def test_the_member_with_one_more_partition_keeps_it(self) -> None:
        members = {"m1": member([A], {A: [2]}), "m2": member([A], {A: [0, 1]})}
        assert uniform(members, {A: 3}) == assignment({"m1": {A: [2]}, "m2": {A: [0, 1]}})

    def test_new_partitions_go_to_the_members_with_fewest(self) -> None:
        members = {"m1": member([A], {A: [0, 1]}), "m2": member([A], {A: [2]})}
        assert uniform(members, {A: 5}) == assignment({"m1": {A: [0, 1]}, "m2": {A: [2, 3, 4]}})

    def test_an_unsubscribed_topic_is_replaced_by_others(self) -> None:
        members = {"m1": member([A], {B: [0, 1]}), "m2": member([A], {A: [0, 1], B: [2]})}
        assert uniform(members, {A: 2, B: 3}) == assignment({"m1": {A: [1]}, "m2": {A: [0]}})

    def test_a_partition_owned_twice_goes_to_the_first_member(self) -> None:
        members = {"m1": member([A], {A: [0]}), "m2": member([A], {A: [0]})}
        assert uniform(members, {A: 2}) == assignment({"m1": {A: [0]}, "m2": {A: [1]}})

    def test_a_partition_that_does_not_exist_is_dropped(self) -> None:
        members = {"m1": member([A], {A: [0, 7]}), "m2": member([A])}
        assert uniform(members, {A: 2}) == assignment({"m1": {A: [0]}, "m2": {A: [1]}})


class TestUniformWithDifferentTopics:
    def test_topics_with_most_partitions_per_subscriber_come_first(self) -> None:
        members = {"m1": member([A, B]), "m2": member([A]), "m3": member([A])}
        assert uniform(members, {A: 4, B: 2}) == assignment(
            {"m1": {B: [0, 1]}, "m2": {A: [0, 2]}, "m3": {A: [1, 3]}}
        )

    def test_among_such_topics_those_with_fewest_subscribers_come_first(self) -> None:
        members = {"m1": member([A, B]), "m2": member([A, B]), "m3": member([A])}
        assert uniform(members, {A: 3, B: 2}) == assignment(
            {"m1": {A: [2], B: [0]}, "m2": {B: [1]}, "m3": {A: [0, 1]}}
        )

    def test_partitions_move_from_the_largest_to_the_smallest_assignment(self) -> None:
        members = {
            "m1": member([A, B], {A: [0, 1, 2, 3], B: [0]}),
            "m2": member([A]),
            "m3": member([B], {B: [1]}),
        }
        assert uniform(members, {A: 4, B: 2}) == assignment(
            {"m1": {A: [0, 1]}, "m2": {A: [2, 3]}, "m3": {B: [0, 1]}}
        )

    def test_a_member_keeps_the_partitions_that_only_it_can_own(self) -> None:
        members = {
            "m1": member([A, B], {A: [0, 1, 2, 3, 4]}),
            "m2": member([B, C], {B: [0, 1, 2, 3]}),
            "m3": member([B], {}),
        }
        assert uniform(members, {A: 5, B: 4, C: 1}) == assignment(
            {"m1": {A: range(5)}, "m2": {B: [0, 1], C: [0]}, "m3": {B: [2, 3]}}
        )

    def test_a_member_loses_topics_that_it_no_longer_subscribes_to(self) -> None:
        members = {"m1": member([A], {A: [0], B: [0, 1]}), "m2": member([A, B], {A: [1]})}
        assert uniform(members, {A: 2, B: 2}) == assignment({"m1": {A: [0, 1]}, "m2": {B: [0, 1]}})

    def test_topics_are_taken_in_the_order_of_their_signed_ids(self) -> None:
        """An id whose first bit is set is negative and therefore sorts first (C4)."""
        negative = UUID(int=1 << 127)
        members = {"m1": member([A, negative]), "m2": member([A, negative]), "m3": member([])}
        assert uniform(members, {A: 1, negative: 1}) == assignment(
            {"m1": {negative: [0]}, "m2": {A: [0]}, "m3": {}}
        )

    def test_partitions_owned_twice_or_missing_are_reassigned(self) -> None:
        members = {"m1": member([A], {A: [0]}), "m2": member([A, B], {A: [0, 7]})}
        assert uniform(members, {A: 1, B: 1}) == assignment({"m1": {A: [0]}, "m2": {B: [0]}})
