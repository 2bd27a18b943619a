"""Consumer groups (KIP-848) under seeded faults: members and coordinators crash and restart (C3).

A failing seed is in the name of the test: run that one test again and it fails at the same step.
"""

import pytest

from penstock.coordinator.group.consumer.model import ConsumerGroupState
from tests.sim.consumer_member import Consumer, Subscription
from tests.sim.consumer_simulation import Faults, Simulation, every_partition
from tests.support.seeds import seeds

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


def run_with_faults(seed: int) -> tuple[Simulation, list[Consumer]]:
    """Runs the simulation with faults and then without; it checks invariants at every step."""
    simulation = Simulation(
        seed, Faults(loss=0.03, append=0.02, slow_commit=0.05, disruptions=True)
    )
    members: list[Consumer] = []
    random = simulation.random

    def start() -> None:
        number = len(members)
        instance = f"instance-{random.randrange(3)}" if random.random() < 0.4 else None
        subscription = random.choice(SUBSCRIPTIONS)
        members.append(Consumer(simulation, f"member-{number}", instance, subscription))

    def disturb() -> None:
        living = [member for member in members if member.alive]
        action = random.random()
        if len(living) < 2 or (action < 0.3 and len(living) < MEMBERS):
            start()
        elif action < 0.45:
            random.choice(living).stop(leave=random.random() < 0.6)
        elif action < 0.55:
            simulation.coordinator.crash()
        elif action < 0.65:
            random.choice(living).mute_until = simulation.now + random.randrange(3_000, 15_000)
        elif action < 0.75:
            random.choice(living).slow = random.random() < 0.5
        elif action < 0.85:
            random.choice(living).subscribe(random.choice(SUBSCRIPTIONS))
        elif action < 0.9:
            simulation.change_topics()
        elif simulation.coordinator.up:
            simulation.coordinator.check_replay()
        if simulation.faults.disruptions:
            simulation.later(random.randrange(300, 4_000), disturb)

    for _ in range(3):
        start()
    simulation.later(2_000, disturb)
    simulation.run_until(simulation.now + STORM_MS)
    simulation.faults = Faults()
    for member in members:
        member.slow = False
    simulation.run_until(simulation.now + CALM_MS)
    return simulation, members


def subscribed(simulation: Simulation, members: list[Consumer]) -> set[str]:
    group = simulation.coordinator.group
    assert group is not None
    return {name for member in members for name in group.topics_of(group.members[member.member_id])}


@pytest.mark.parametrize("seed", seeds(20, always=10))
def test_the_group_recovers_after_faults(seed: int) -> None:
    """After the faults every partition has one owner, and the log restores the same state."""
    simulation, members = run_with_faults(seed)
    coordinator = simulation.coordinator
    coordinator.check_replay()
    group = coordinator.group
    assert group is not None
    # An instance whose id other members use waits until they leave.
    living = [member for member in members if member.alive and member.member_id in group.members]
    assert len(living) == len(group.members)
    assert group.state is ConsumerGroupState.STABLE
    assert {member.epoch for member in living} == {group.group_epoch}
    owned = [partition for member in living for partition in member.owned]
    assert len(owned) == len(set(owned))
    assert set(owned) == every_partition(simulation.topics, subscribed(simulation, living))
    assert owned


def test_runs_of_the_same_seed_are_equal() -> None:
    assert run_with_faults(3)[0].coordinator.log == run_with_faults(3)[0].coordinator.log
