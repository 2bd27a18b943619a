"""Random faults against a whole cluster on virtual time (R1–R8)."""

import os

import pytest

from tests.sim.cluster.cluster_simulation import run_seed


def _seeds() -> range:
    first, _, last = os.environ.get("PENSTOCK_SIM_SEEDS", "0:60").partition(":")
    return range(int(first), int(last))


@pytest.mark.parametrize("seed", _seeds())
def test_the_cluster_keeps_its_guarantees(seed: int) -> None:
    run_seed(seed)
