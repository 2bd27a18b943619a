"""Members under a seeded storm, against our own coordinator (C4, C5).

A failing seed is in the name of the test: run that one test again and it fails at the same step.
"""

from collections.abc import Callable

import pytest

from penstock.client.consumer.assignors import assignors_of
from penstock.client.consumer.group.actions import MemberSettings
from penstock.client.consumer.group.classic import ClassicMember
from penstock.client.consumer.group.consumer_protocol import ConsumerMember
from penstock.client.consumer.group.member import Member
from penstock.coordinator.group.consumer.model import ConsumerGroupMember
from penstock.core.ids import TopicPartition
from tests.support.client.membership_simulation import (
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    TOPICS,
    Faults,
    MembershipSimulation,
    SimMember,
)
from tests.support.seeds import seeds

STORM_MS = 60_000
CALM_MS = 60_000
MEMBERS = 4
SEEDS = seeds(9, always=3)


def settings(instance: str | None) -> MemberSettings:
    return MemberSettings(
        GROUP,
        instance,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=1_000,
        max_poll_interval_ms=REBALANCE_MS,
        request_timeout_ms=3_000,
    )


def check_single_owners(simulation: MembershipSimulation) -> None:
    """Of the members that the coordinator knows, in their epochs, no two own a partition.

    What a member does while nobody can tell it that it is out, or after a request of its own came
    so late that it was out, cannot be helped: its commits are refused.
    """
    group = simulation.host.shard.groups.get(GROUP)
    owners: dict[TopicPartition, str] = {}
    for member in simulation.members:
        identity = member.machine.metadata_identity()
        info = group.members.get(identity.member_id) if group is not None else None
        if not member.alive or not member.machine.is_member or info is None:
            continue
        if isinstance(info, ConsumerGroupMember) and identity.generation_or_epoch not in (
            info.member_epoch,
            info.previous_member_epoch,
        ):
            continue
        for partition in member.owned:
            second = owners.setdefault(partition, member.name)
            assert second == member.name, f"{partition}: {second} and {member.name}"


def storm(
    seed: int, make: Callable[[str, str | None], Member], *, check: bool
) -> MembershipSimulation:
    simulation = MembershipSimulation(seed, Faults(loss=0.03, twice=0.03, late=0.02))
    random = simulation.random

    def start(topics: frozenset[str] | None = None) -> None:
        name = f"member-{len(simulation.members)}"
        assigned = {
            m.machine.metadata_identity().group_instance_id for m in simulation.members if m.alive
        }
        free = [None, None] + [i for i in ("a", "b") if i not in assigned]
        machine = make(name, random.choice(free) if topics is None else None)
        keys = random.choice([frozenset(TOPICS), frozenset(TOPICS), frozenset(["t"])])
        SimMember(simulation, name, machine).start(topics or keys)

    def disturb() -> None:
        if not simulation.faults.loss:
            return
        living = [member for member in simulation.members if member.alive]
        action = random.random()
        if len(living) < 2 or (action < 0.3 and len(living) < MEMBERS):
            start()
        elif action < 0.5:
            random.choice(living).stop(leave=random.random() < 0.6)
        elif action < 0.65:
            simulation.restart_coordinator()
        elif action < 0.8:
            lazy = random.choice(living)
            lazy.polls = False
            simulation.schedule(
                random.randrange(2_000, 20_000), lambda: setattr(lazy, "polls", True)
            )
        else:
            simulation.change_topics()
        simulation.schedule(random.randrange(500, 5_000), disturb)

    start()
    start()
    simulation.schedule(2_000, disturb)
    for _ in range(STORM_MS // 20):
        simulation.run(20)
        if check:
            check_single_owners(simulation)
    simulation.faults = Faults()
    start(frozenset(TOPICS))
    for _ in range(CALM_MS // 100):
        simulation.run(100)
        if check:
            check_single_owners(simulation)
    return simulation


def check_calm(simulation: MembershipSimulation) -> None:
    """Each partition has exactly one owner, and no member has pending actions."""
    living = [member for member in simulation.members if member.alive]
    # A static member that was fenced, even by its own late request, ends permanently.
    going = [member for member in living if not member.errors]
    assert going
    assert all(member.machine.is_stable for member in going)
    owned = [partition for member in living for partition in member.owned]
    assert sorted(owned) == sorted(simulation.partitions())


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("assignor", ["range", "sticky", "cooperative-sticky"])
def test_classic_members(seed: int, assignor: str) -> None:
    def make(name: str, instance: str | None) -> ClassicMember:
        return ClassicMember(settings(instance), assignors_of(assignor))

    simulation = storm(seed, make, check=assignor == "cooperative-sticky")
    check_calm(simulation)


@pytest.mark.parametrize("seed", SEEDS)
def test_consumer_members(seed: int) -> None:
    simulation = storm(seed, lambda name, i: ConsumerMember(settings(i), f"id-{name}"), check=True)
    check_calm(simulation)


def test_the_same_seed_results_in_the_same_history() -> None:
    def run() -> list[tuple[bytes, bytes | None]]:
        make = lambda name, i: ConsumerMember(settings(i), f"id-{name}")  # noqa: E731
        return storm(3, make, check=False).host.log

    assert run() == run()
