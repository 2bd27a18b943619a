"""Replication under crashes, lost messages and leader changes: nothing committed is lost."""

import logging
from collections.abc import Iterator
from dataclasses import fields

import pytest

from tests.sim.replication_follower import PlantedFaults
from tests.sim.replication_simulation import ReplicationError, Simulation
from tests.support.seeds import seeds


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("block", seeds(3, always=1))
def test_no_committed_record_is_lost_and_logs_agree(block: int) -> None:
    committed = 0
    for seed in range(100 * block, 100 * (block + 1)):
        simulation = Simulation(seed)
        try:
            simulation.run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        committed += sum(map(len, simulation.committed.values()))
    assert committed > 3_000


@pytest.mark.parametrize("fault", [field.name for field in fields(PlantedFaults)])
def test_a_planted_fault_is_found(fault: str) -> None:
    for seed in range(150):
        simulation = Simulation(seed, PlantedFaults(**{fault: True}))
        try:
            simulation.run()
        except AssertionError:
            return
    pytest.fail(f"150 seeds do not find {fault}")


def test_a_seed_replays() -> None:
    def history(seed: int) -> list[str]:
        simulation = Simulation(seed, PlantedFaults(truncates_to_high_watermark=True))
        with pytest.raises(ReplicationError) as error:
            simulation.run()
        return [str(error.value), *simulation.log]

    seed = next(seed for seed in range(150) if _fails(seed))
    assert history(seed) == history(seed)


def _fails(seed: int) -> bool:
    try:
        Simulation(seed, PlantedFaults(truncates_to_high_watermark=True)).run()
    except ReplicationError:
        return True
    return False
