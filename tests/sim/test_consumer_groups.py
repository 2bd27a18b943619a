"""Consumer groups (KIP-848) under a seeded storm: members and coordinators come and go (C3).

A failing seed is in the name of the test: run that one test again and it fails at the same step.
"""

import pytest

from penstock.coordinator.group.consumer.model import ConsumerGroupState
from tests.sim.consumer_member import Consumer, Subscription
from tests.sim.consumer_world import Faults, World, every_partition

STORM_MS = 90_000
CALM_MS = 60_000
MEMBERS = 6
SUBSCRIPTIONS: list[Subscription] = [
    (["a"], None),
    (["a", "b"], None),
    (["b"], "x.*"),
    (None, "[ab]|x1"),
    (["a", "b"], None),
]


def storm(seed: int) -> tuple[World, list[Consumer]]:
    """Run the world through a storm and a calm; its checks are made at every step."""
    world = World(seed, Faults(loss=0.03, append=0.02, slow_commit=0.05, storm=True))
    members: list[Consumer] = []
    random = world.random

    def start() -> None:
        number = len(members)
        instance = f"instance-{random.randrange(3)}" if random.random() < 0.4 else None
        subscription = random.choice(SUBSCRIPTIONS)
        members.append(Consumer(world, f"member-{number}", instance, subscription))

    def disturb() -> None:
        living = [member for member in members if member.alive]
        action = random.random()
        if len(living) < 2 or (action < 0.3 and len(living) < MEMBERS):
            start()
        elif action < 0.45:
            random.choice(living).stop(leave=random.random() < 0.6)
        elif action < 0.55:
            world.coordinator.crash()
        elif action < 0.65:
            random.choice(living).mute_until = world.now + random.randrange(3_000, 15_000)
        elif action < 0.75:
            random.choice(living).slow = random.random() < 0.5
        elif action < 0.85:
            random.choice(living).subscribe(random.choice(SUBSCRIPTIONS))
        elif action < 0.9:
            world.change_topics()
        elif world.coordinator.up:
            world.coordinator.check_replay()
        if world.faults.storm:
            world.later(random.randrange(300, 4_000), disturb)

    for _ in range(3):
        start()
    world.later(2_000, disturb)
    world.run_until(world.now + STORM_MS)
    world.faults = Faults()
    for member in members:
        member.slow = False
    world.run_until(world.now + CALM_MS)
    return world, members


def subscribed(world: World, members: list[Consumer]) -> set[str]:
    group = world.coordinator.group
    assert group is not None
    return {name for member in members for name in group.topics_of(group.members[member.member_id])}


@pytest.mark.parametrize("seed", range(20))
def test_a_storm_and_a_calm(seed: int) -> None:
    """After the storm every partition has one owner, and the log tells the same story."""
    world, members = storm(seed)
    coordinator = world.coordinator
    coordinator.check_replay()
    group = coordinator.group
    assert group is not None
    # An instance that others came back as waits for them to leave.
    living = [member for member in members if member.alive and member.member_id in group.members]
    assert len(living) == len(group.members)
    assert group.state is ConsumerGroupState.STABLE
    assert {member.epoch for member in living} == {group.group_epoch}
    owned = [partition for member in living for partition in member.owned]
    assert len(owned) == len(set(owned))
    assert set(owned) == every_partition(world.topics, subscribed(world, living))
    assert owned


def test_the_same_seed_gives_the_same_world() -> None:
    assert storm(3)[0].coordinator.log == storm(3)[0].coordinator.log
