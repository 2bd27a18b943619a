"""`python -m bench [NAME…]`: runs these measurements, or all. Exits with 1 for a missed target.

`--minutes N` is how long those run that have no end of their own (`faults`, `histories`).
"""

import argparse
import importlib
import os
import platform
import sys
from collections.abc import Sequence

from bench.report import Row

SUITES = (
    "protocol",
    "records",
    "log",
    "cleaner",
    "partitions",
    "broker",
    "logins",
    "tls",
    "metrics",
    "replication",
    "cluster_throughput",
    "groups",
    "client",
    "testing",
    "soak",
    "hostile",
    "fuzz",
    "neighbours",
    "cluster",
    "cluster_kafka",
    "failover",
    "sim",
    "faults",
    "histories",
    "spark",
    "sinks",
)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--minutes", type=float)
    options = parser.parse_args(arguments)
    names: list[str] = options.names
    if options.minutes is not None:
        os.environ["PENSTOCK_BENCH_MINUTES"] = str(options.minutes)
    unknown = [name for name in names if name not in SUITES]
    if unknown:
        print(f"no such measurement: {', '.join(unknown)}; there are {', '.join(SUITES)}")
        return 2
    print(f"Python {platform.python_version()} on {platform.machine()}")
    missed = 0
    for name in names or SUITES:
        print(f"\n{name}")
        rows: list[Row] = importlib.import_module(f"bench.bench_{name}").run()
        for row in rows:
            mark = {True: "met", False: "MISSED", None: ""}[row.met]
            missed += row.met is False
            print(f"  {row.name:<58} {row.figure:>12,.2f} {row.unit:<10} {row.target:<12} {mark}")
    print(f"\n{missed} targets missed" if missed else "\nall targets met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
