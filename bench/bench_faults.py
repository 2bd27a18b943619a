"""Fault injection: as many seeds as fit into some minutes, on all cores.

`python -m bench faults --minutes 60` runs for an hour. The seeds start at a number that depends on
the date, so that each day tries others; `PENSTOCK_FAULT_SEED=7000` chooses the first one. A seed
that fails is printed with the command that runs it again.
"""

import logging
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import count, islice

from bench.report import Row, at_most

DEFAULT_MINUTES = 1.0
_CHUNK = 10
_SHOWN = 3
"""How many failures are printed in full."""


def run_chunk(seeds: list[int]) -> list[str]:
    """Returns the descriptions of the seeds that fail; runs in a process of its own."""
    from tests.support.faults.injection import InjectionError, run_seed

    logging.getLogger("penstock").propagate = False
    failures: list[str] = []
    for seed in seeds:
        try:
            run_seed(seed)
        except InjectionError as error:
            failures.append(str(error))
    return failures


def run() -> list[Row]:
    minutes = float(os.environ.get("PENSTOCK_BENCH_MINUTES", DEFAULT_MINUTES))
    first = int(os.environ.get("PENSTOCK_FAULT_SEED", time.time() // 86400 * 1_000_000))
    seeds = count(first)
    cores = os.cpu_count() or 1
    started = time.perf_counter()
    seed_count = 0
    failures: list[str] = []
    # The order of sets depends on it, and with it the order of calls.
    os.environ["PYTHONHASHSEED"] = "0"
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(cores, mp_context=context) as pool:
        while time.perf_counter() - started < minutes * 60:
            chunks = [list(islice(seeds, _CHUNK)) for _ in range(cores * 2)]
            for chunk_failures in pool.map(run_chunk, chunks):
                failures += chunk_failures
            seed_count += sum(map(len, chunks))
    elapsed = time.perf_counter() - started
    for failure in failures[:_SHOWN]:
        print(failure)
    return [
        Row(f"seeds from {first} on", seed_count, "seeds"),
        Row("seeds per second", seed_count / elapsed, "seeds/s"),
        at_most("seeds that fail", len(failures), "seeds", 0),
    ]
