"""Invariants of the client's assignors for random groups (C4)."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from penstock.client.consumer.assignors import assignors_of
from penstock.core.ids import TopicPartition
from tests.support.client.assignments import GroupCase, assigned, random_case

NAMES = ("range", "roundrobin", "sticky", "cooperative-sticky")
groups = st.integers(0, 2**32).map(Random)
names = st.sampled_from(NAMES)


def subscribed(case: GroupCase) -> list[TopicPartition]:
    requested = {topic for received in case.members.values() for topic in received.topics}
    return sorted(
        TopicPartition(topic, partition)
        for topic, racks in case.topics.items()
        if topic in requested
        for partition in range(len(racks))
    )


@given(groups, names)
def test_each_partition_is_assigned_once_to_a_subscriber(random: Random, name: str) -> None:
    """A cooperative assignor may defer a partition to the next rebalance."""
    case = random_case(random, name)
    results = assigned(assignors_of(name)[0], case)
    assert results.keys() == case.members.keys()
    for member, partitions in results.items():
        assert {p.topic for p in partitions} <= set(case.members[member].topics)
    given_out = sorted(p for partitions in results.values() for p in partitions)
    if name == "cooperative-sticky":
        assert len(set(given_out)) == len(given_out)
        assert set(given_out) <= set(subscribed(case))
    else:
        assert given_out == subscribed(case)


@given(groups, st.sampled_from(["sticky", "cooperative-sticky", "roundrobin"]))
def test_equal_subscriptions_get_equal_shares(random: Random, name: str) -> None:
    case = random_case(random, name)
    topics = list(case.topics)
    members = {
        member: received._replace(topics=topics, rack_id=None, owned_partitions=(), user_data=None)
        for member, received in case.members.items()
    }
    results = assigned(assignors_of(name)[0], GroupCase(case.topics, members))
    sizes = [len(partitions) for partitions in results.values()]
    assert max(sizes) - min(sizes) <= 1


@given(groups)
def test_a_cooperative_group_converges(random: Random) -> None:
    """No member gets a partition that another owns; deferred ones follow; then nothing moves."""
    case = random_case(random, "cooperative-sticky")
    owner: dict[TopicPartition, str] = {}
    members = {}
    for member, received in case.members.items():
        owned = [p for p in received.owned_partitions if owner.setdefault(p, member) == member]
        # Racks may make it give up what nobody else can have in its rack either, as in Kafka.
        members[member] = received._replace(owned_partitions=owned, generation_id=7, rack_id=None)
    assignor = assignors_of("cooperative-sticky")[0]
    rounds = 0
    while True:
        results = assigned(assignor, GroupCase(case.topics, members))
        for member, partitions in results.items():
            for partition in partitions:
                assert owner.get(partition, member) == member
        previous = {
            member: sorted(received.owned_partitions) for member, received in members.items()
        }
        if {member: sorted(partitions) for member, partitions in results.items()} == previous:
            break
        rounds += 1
        assert rounds <= 3
        members = {
            member: received._replace(owned_partitions=results[member], generation_id=7 + rounds)
            for member, received in members.items()
        }
        owner = {p: member for member, partitions in results.items() for p in partitions}
    assert sorted(owner) == subscribed(case)


@given(groups)
def test_a_new_member_moves_only_its_own_share(random: Random) -> None:
    """With equal subscriptions, `sticky` moves only the new member's partitions."""
    case = random_case(random, "cooperative-sticky")
    topics = list(case.topics)
    members = {
        member: received._replace(topics=topics, rack_id=None, owned_partitions=(), generation_id=1)
        for member, received in case.members.items()
    }
    assignor = assignors_of("cooperative-sticky")[0]
    first = assigned(assignor, GroupCase(case.topics, members))
    members = {m: received._replace(owned_partitions=first[m]) for m, received in members.items()}
    newcomer = next(iter(members.values()))._replace(owned_partitions=(), generation_id=-1)
    results = assigned(assignor, GroupCase(case.topics, {**members, "new": newcomer}))
    for member, partitions in first.items():
        assert set(results[member]) <= set(partitions)
