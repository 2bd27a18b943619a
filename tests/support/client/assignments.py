"""Random groups for assignors: topics with racks, members with subscriptions and a past."""

from random import Random
from typing import NamedTuple

from penstock.client.consumer.assignors import (
    Assignment,
    Assignor,
    StickyAssignor,
    Subscription,
)
from penstock.core.ids import TopicPartition

RACKS = ("a", "b", "c")
NO_RACKS: frozenset[str] = frozenset()


class GroupCase(NamedTuple):
    topics: dict[str, list[frozenset[str]]]
    members: dict[str, Subscription]


def random_case(random: Random, assignor: str) -> GroupCase:
    """A group whose members may have had partitions before, in this generation or earlier."""
    count = random.choice((1, 2, 3, 5, 14))
    names = [f"t{random.randrange(1_000)}" for _ in range(count)]
    racks = random.random() < 0.4
    topics = {name: _racks(random, random.randint(1, 9), racks=racks) for name in names}
    extra = ["missing"] if random.random() < 0.1 else []
    same = random.random() < 0.5
    all_names = [*topics, *extra]
    size = random.choice((1, 2, 3, 5, 8, 20))
    members = [f"{random.choice('cxz')}-{random.getrandbits(40):010x}" for _ in range(size)]
    requested = {
        member: all_names if same else random.sample(all_names, random.randint(1, len(all_names)))
        for member in members
    }
    generation = random.randint(1, 50)
    owned = _past(random, topics, requested)
    return GroupCase(
        topics,
        {
            member: _subscription(
                random, assignor, requested[member], owned[member], generation, racks
            )
            for member in members
        },
    )


def _racks(random: Random, count: int, *, racks: bool) -> list[frozenset[str]]:
    if not racks:
        return [NO_RACKS] * count
    return [frozenset(random.sample(RACKS, random.randint(1, 3))) for _ in range(count)]


def _past(
    random: Random, topics: dict[str, list[frozenset[str]]], requested: dict[str, list[str]]
) -> dict[str, list[TopicPartition]]:
    owned: dict[str, list[TopicPartition]] = {member: [] for member in requested}
    if random.random() < 0.25:
        return owned
    for topic, partitions in topics.items():
        subscribed = [member for member, names in requested.items() if topic in names]
        for index in range(len(partitions)):
            if subscribed and random.random() < 0.8:
                owned[random.choice(subscribed)].append(TopicPartition(topic, index))
            if subscribed and random.random() < 0.05:
                member = random.choice(subscribed)
                if TopicPartition(topic, index) not in owned[member]:
                    owned[member].append(TopicPartition(topic, index))
    return owned


def _subscription(
    random: Random,
    assignor: str,
    topics: list[str],
    owned: list[TopicPartition],
    generation: int,
    racks: bool,
) -> Subscription:
    if random.random() < 0.2:
        generation = random.choice((-1, generation - 1))
    rack = random.choice((*RACKS, "far", None)) if racks else None
    instance = f"i{random.randrange(10_000)}" if random.random() < 0.3 else None
    if assignor == "sticky":
        sticky = StickyAssignor()
        sticky.on_assignment(Assignment(owned), generation)
        data = sticky.subscription_user_data(topics) if owned else None
        claims = random.choice((-1, generation))
        return Subscription(topics, data, (), claims, rack, instance)
    return Subscription(topics, None, owned, generation, rack, instance)


def assigned(assignor: Assignor, case: GroupCase) -> dict[str, list[TopicPartition]]:
    results = assignor.assign(case.topics, case.members)
    return {member: list(assignment.partitions) for member, assignment in results.items()}
