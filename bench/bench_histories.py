"""Three brokers and ZooKeeper under faults, with recording clients: as many runs as fit.

`python -m bench histories --minutes 60` runs for an hour. Each run has a new cluster, a seed and
two minutes of faults. The seeds start at a number that depends on the date;
`PENSTOCK_HISTORY_SEED=7000` chooses the first one. The files of a run that fails are kept.
"""

import os
import shutil
import tempfile
import time
from collections import Counter
from itertools import count
from pathlib import Path

from bench.report import Row, at_most

DEFAULT_MINUTES = 3.0
_FAULT_SECONDS = 120.0


def run() -> list[Row]:
    from tests.support.history.history_checker import Kind
    from tests.support.history.history_run import run_history

    minutes = float(os.environ.get("PENSTOCK_BENCH_MINUTES", DEFAULT_MINUTES))
    first = int(os.environ.get("PENSTOCK_HISTORY_SEED", time.time() // 86400 * 1000))
    end = time.monotonic() + minutes * 60
    events: Counter[str] = Counter()
    violations: Counter[Kind] = Counter()
    runs = differences = unfinished = 0
    for seed in count(first):
        remaining_s = end - time.monotonic()
        if remaining_s <= 0:
            break
        directory = Path(tempfile.mkdtemp(prefix=f"penstock-history-{seed}-"))
        result = run_history(directory, seed, min(_FAULT_SECONDS, remaining_s))
        runs += 1
        events += result.counts
        violations.update(violation.kind for violation in result.violations)
        differences += len(result.differences)
        unfinished += bool(result.unfinished)
        if result.is_good:
            shutil.rmtree(directory)
        else:
            print(result.report)
    return [
        Row(f"runs, seeds from {first} on", runs, "runs"),
        *(Row(f"events: {kind}", number, "") for kind, number in sorted(events.items())),
        *(at_most(kind, violations[kind], "", 0) for kind in Kind),
        at_most("partitions whose replicas differ", differences, "", 0),
        at_most("runs that were not in sync in time", unfinished, "runs", 0),
    ]
