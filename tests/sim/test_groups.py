"""Groups under seeded faults: clients and coordinators crash, messages are lost (C3).

A failing seed is in the name of the test: run that one test again and it fails at the same step.
"""

import pytest

from tests.sim.group_client import Client
from tests.sim.group_simulation import GROUP, PARTITIONS, RESET, Faults, Simulation
from tests.support.coordinator.groups import commit_request
from tests.support.seeds import seeds

STORM_MS = 90_000
CALM_MS = 120_000
"""Long enough for late requests, and for the expiry of members that only they created."""
CLIENTS = 5


def run_with_faults(seed: int) -> tuple[Simulation, list[Client]]:
    """Runs the simulation with faults and then without; it checks invariants at every step."""
    simulation = Simulation(
        seed, Faults(loss=0.03, late=0.03, append=0.02, slow_commit=0.05, crashes=True)
    )
    clients: list[Client] = []
    random = simulation.random

    def start() -> None:
        number = len(clients)
        instance = f"instance-{random.randrange(3)}" if random.random() < 0.4 else None
        clients.append(Client(simulation, f"client-{number}", instance, random.choice([3, 4, 9])))

    def disturb() -> None:
        living = [client for client in clients if client.alive]
        action = random.random()
        if len(living) < 2 or (action < 0.35 and len(living) < CLIENTS):
            start()
        elif action < 0.55:
            random.choice(living).stop(leave=random.random() < 0.5)
        elif action < 0.65:
            simulation.coordinator.crash()
        elif action < 0.85:
            random.choice(living).deaf_until = simulation.now + random.randrange(5_000, 30_000)
        elif action < 0.9:
            offsets = {("t", p): 0 for p in range(PARTITIONS)}
            request = commit_request(offsets, group=GROUP, metadata=RESET)
            simulation.call(request, 9, "admin", lambda response: None)
        elif simulation.coordinator.up:
            simulation.coordinator.check_replay()
        if simulation.faults.crashes:
            simulation.later(random.randrange(500, 6_000), disturb)

    for _ in range(3):
        start()
    simulation.later(2_000, disturb)
    simulation.run_until(simulation.now + STORM_MS)
    simulation.faults = Faults()
    # A fenced static member stops permanently, even if its own late request fenced it.
    start()
    simulation.run_until(simulation.now + CALM_MS)
    return simulation, clients


@pytest.mark.parametrize("seed", seeds(20, always=10))
def test_the_group_recovers_after_faults(seed: int) -> None:
    """After the faults every partition has one owner, and the log restores the same state."""
    simulation, clients = run_with_faults(seed)
    coordinator = simulation.coordinator
    coordinator.check_replay()
    assert coordinator.checks.syncs > 0
    living = [client for client in clients if client.alive]
    owned = sorted(partition for client in living for partition in client.partitions)
    assert owned == list(range(PARTITIONS))
    assert len({client.generation for client in living}) == 1
    assert not coordinator.waiting


def test_runs_of_the_same_seed_are_equal() -> None:
    assert run_with_faults(3)[0].coordinator.log == run_with_faults(3)[0].coordinator.log
