"""The simulation of a cluster finds bugs that were planted on purpose.

A simulation that no bug can fail proves nothing. The search for each bug begins with a seed that
found it when it was planted; other seeds follow because a change of the product changes the runs.
`make test` searches for a quarter of the bugs, `make test-long` for the others.
"""

import logging
from collections.abc import Iterator
from functools import cache

import pytest

from tests.sim.cluster import planted_bugs, planted_coordinator_bugs
from tests.sim.cluster.cluster_simulation import ClusterSimulation, SimulationError

BUGS = {**planted_bugs.BUGS, **planted_coordinator_bugs.BUGS}
SEEDS = 40
"""How many seeds may be needed to find a bug."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if number % 4 == 0 else pytest.mark.long)
        for number, name in enumerate(BUGS)
    ],
)
def test_a_planted_bug_is_found(name: str) -> None:
    bug = BUGS[name]
    first = bug.first_seed
    for seed in range(first, first + SEEDS):
        try:
            with bug.patch():
                ClusterSimulation(seed).run()
        except SimulationError:
            check_without_bugs(seed)
            return
    pytest.fail(f"the seeds from {first} to {first + SEEDS - 1} do not find it")


@cache
def check_without_bugs(seed: int) -> None:
    """Shows that it is the planted bug that fails a seed."""
    ClusterSimulation(seed).run()
