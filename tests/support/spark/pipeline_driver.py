"""A driver of pipelines in a process of its own, which is killed, or held, at named points.

`Driver` is the test's side. The process runs all its worlds side by side in one Spark session. At
its point a world waits; when every world that is to be killed has come to its own, the process
sends SIGKILL to its whole group: Python, the JVM, and what they have started. So one life of a
driver is one kill for each world, each at another step.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import Barrier, Event, Thread
from typing import TYPE_CHECKING, Literal, Self

from tests.support.spark.pipeline_world import Point, World, commits_seen
from tests.support.spark.worker_faults import dying_after_staging

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_S = 240.0


@dataclass(frozen=True)
class Order:
    """What is to happen to a world. Without a point it runs to its end.

    `kill`: wait there for all others that are to be killed. `hold`: wait until the test says go.
    """

    world: World
    point: str = ""
    then: Literal["kill", "hold"] = "kill"


# --- The test's side ------------------------------------------------------------------------------


class Driver:
    """Runs until its orders are carried out; at the end of the block nothing of it is left.

    `worker_dies` names a file: the first task that has staged its rows makes it, and is killed.
    """

    def __init__(
        self,
        orders: Sequence[Order],
        folder: Path,
        *,
        worker_dies: Path | None = None,
    ) -> None:
        written = {
            "orders": [asdict(order) for order in orders],
            "worker_dies": None if worker_dies is None else str(worker_dies),
        }
        self._errors = folder / "driver.err"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.spark.pipeline_driver", json.dumps(written)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=Path(__file__).resolve().parents[3],
                start_new_session=True,
                text=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        # Both ends, so that no pipe is left open.
        self._process.communicate()

    def wait_for_all(self, lines: Iterable[str]) -> None:
        """Until it has printed these, in whatever order."""
        missing = set(lines)
        assert self._process.stdout is not None
        while missing:
            printed = self._process.stdout.readline()
            if not printed:
                raise AssertionError(f"the driver never said {missing}:\n{self.errors}")
            missing.discard(printed.strip())

    def go(self, worlds: int) -> None:
        """So many that are held go on."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n" * worlds)
        self._process.stdin.flush()

    def end(self) -> int:
        """Its exit code, when it and every process that it had started are gone: they share its
        standard output."""
        self._process.communicate(timeout=PATIENCE_S)
        return self._process.returncode

    @property
    def errors(self) -> str:
        return self._errors.read_text()


def killed(orders: Sequence[Order], folder: Path) -> None:
    """One life of a driver, which ends as said."""
    with Driver(orders, folder) as driver:
        code = driver.end()
        assert code == -signal.SIGKILL, f"the driver ended with {code}:\n{driver.errors}"


# --- The process itself ---------------------------------------------------------------------------


def main(written: str) -> int:
    given = json.loads(written)
    orders = [Order(World(**each.pop("world")), **each) for each in given["orders"]]
    with commits_seen(), dying_after_staging(given["worker_dies"]):
        spark = _session(orders[0].world)
        try:
            failures = _run_all(orders, spark)
        finally:
            spark.stop()
    _say(failures)
    return 1 if failures else 0


def _say(failures: Sequence[str]) -> None:
    for failure in failures:
        sys.stderr.write(f"{failure}\n")
    sys.stderr.flush()


def _give_up(failures: Sequence[str]) -> None:
    _say(failures)
    os._exit(3)


def _session(world: World) -> "SparkSession":
    from penstock.spark.run.session import session

    settings = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}
    # A task that fails is tried again, as on a cluster.
    return session(replace(world.spec, spark=settings), "local[2,3]", short=True)


def _run_all(orders: Sequence[Order], spark: "SparkSession") -> list[str]:
    failures: list[str] = []
    dying = [order for order in orders if order.point and order.then == "kill"]
    barrier = Barrier(max(1, len(dying)), lambda: os.killpg(0, signal.SIGKILL))

    def hold(order: Order) -> None:
        sys.stdout.write(f"{order.world.name} is at {order.point}\n")
        sys.stdout.flush()
        sys.stdin.readline()

    def work(order: Order, is_started: Event) -> None:
        def act() -> None:
            is_started.set()
            if order.then == "kill":
                barrier.wait()
            else:
                hold(order)

        def at(step: str) -> None:
            if step == "batch":
                is_started.set()
            point(step)

        point = Point(order.point, act)
        try:
            order.world.once(spark, at)
        except Exception as error:  # noqa: BLE001  (the test looks at it)
            failures.append(f"{type(error).__name__}: {error}")
        if order.point and not point.reached:
            failures.append(f"{order.world.name} never was at {order.point}: {point.steps}")
            # Others may be waiting at theirs, for ever.
            _give_up(failures)
        is_started.set()

    threads: list[Thread] = []
    for each in orders:
        is_started = Event()
        threads.append(Thread(target=work, args=(each, is_started)))
        threads[-1].start()
        # Spark gives a Python process ten seconds to start: not all of them at once.
        is_started.wait()
    for each_thread in threads:
        each_thread.join()
    return failures


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
