"""The simulations of `tests/sim`, with thousands of seeds instead of a few dozen.

`PENSTOCK_SIM_SEEDS=20000` runs so many of each; `PENSTOCK_SIM_SEEDS=7000:9000` runs these;
`PENSTOCK_SIM_ONLY=cluster` runs one simulation. The processes share the work. A seed that fails is
printed with the command that replays it.
"""

import multiprocessing
import os
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from itertools import repeat
from typing import NamedTuple

from bench.report import Row, at_most

_CHUNK = 10
_CHUNKS = 20
"""After so many chunks a process is replaced: brokers that were killed leave some memory behind."""
_SHOWN = 3
"""How many failures are printed in full."""


class Simulation(NamedTuple):
    """A function that takes a seed, and raises an exception if the simulation fails."""

    module: str
    function: str
    seeds: int = 2000
    """How many are run unless the environment names others."""


SIMULATIONS = {
    "classic groups": Simulation("tests.sim.test_groups", "test_a_storm_and_a_calm"),
    "consumer groups": Simulation("tests.sim.test_consumer_groups", "test_a_storm_and_a_calm"),
    "transactions": Simulation("tests.sim.txn_simulation", "run_seed"),
    "replication": Simulation("tests.sim.replication_simulation", "run_seed"),
    "cluster": Simulation("tests.sim.cluster.cluster_simulation", "run_seed"),
}


def run_simulation(simulation: Simulation, seed: int) -> str | None:
    """Returns the failure of a seed and the command that replays it; None if it succeeds."""
    run: Callable[[int], object] = getattr(import_module(simulation.module), simulation.function)
    try:
        run(seed)
    except Exception:  # noqa: BLE001 - whatever it is, the seed has failed
        again = (
            f'python -c "from {simulation.module} import {simulation.function} as run; run({seed})"'
        )
        return f"seed {seed} failed; again: {again}\n{traceback.format_exc()}"
    return None


def seeds(default: int) -> range:
    first, _, end = os.environ.get("PENSTOCK_SIM_SEEDS", str(default)).rpartition(":")
    return range(int(first or 0), int(end))


def measure(name: str, simulation: Simulation, pool: ProcessPoolExecutor) -> list[Row]:
    chosen = seeds(simulation.seeds)
    begun = time.perf_counter()
    results = pool.map(run_simulation, repeat(simulation, len(chosen)), chosen, chunksize=_CHUNK)
    failures = [failure for failure in results if failure is not None]
    elapsed = time.perf_counter() - begun
    for failure in failures[:_SHOWN]:
        print(f"{name}: {failure}")
    return [
        Row(f"{name}, {len(chosen)} seeds", len(chosen) / elapsed, "seeds/s"),
        at_most(f"{name}, seeds that fail", len(failures), "seeds", 0),
    ]


def run() -> list[Row]:
    only = os.environ.get("PENSTOCK_SIM_ONLY")
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(mp_context=context, max_tasks_per_child=_CHUNKS) as pool:
        return [
            row
            for name, simulation in SIMULATIONS.items()
            if only in (None, name)
            for row in measure(name, simulation, pool)
        ]
