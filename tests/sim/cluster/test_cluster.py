"""Random faults against a whole cluster on virtual time (R1–R8)."""

import os

import pytest

from tests.sim.cluster.cluster_simulation import run_seed


def _seeds() -> range:
    first, _, last = os.environ.get("PENSTOCK_SIM_SEEDS", "0:50").partition(":")
    return range(int(first), int(last))


@pytest.mark.parametrize("seed", _seeds())
def test_the_cluster_keeps_its_guarantees(seed: int) -> None:
    run_seed(seed)


@pytest.mark.long
@pytest.mark.parametrize("first_seed", range(50, 550, 50))
def test_the_cluster_keeps_its_guarantees_with_more_seeds(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 50):
        run_seed(seed)
