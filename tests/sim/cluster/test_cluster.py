"""Random faults against a whole cluster on virtual time (R1–R8)."""

import os

import pytest

from tests.sim.cluster.cluster_simulation import ClusterSimulation


def _seeds() -> range:
    first, _, last = os.environ.get("PENSTOCK_SIM_SEEDS", "0:12").partition(":")
    return range(int(first), int(last))


@pytest.mark.parametrize("seed", _seeds())
def test_no_acknowledged_record_is_lost(seed: int) -> None:
    ClusterSimulation(seed).run()
