"""A driver of pipelines in a process of its own, which is killed or held at named points.

`Driver` is the test's side. The process runs all its environments concurrently in one Spark
session. Each environment waits at its point. When all that are to be killed have reached theirs,
the process sends SIGKILL to its process group: Python, the JVM and their children. So one run of a
driver kills each environment once, each at another step.
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

from tests.support.spark.pipeline_environment import Environment, Point, commits_seen
from tests.support.spark.worker_faults import dying_after_staging

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_S = 240.0


@dataclass(frozen=True)
class Order:
    """What happens to an environment. Without a point it runs to its end.

    `kill`: waits for all others that are to be killed. `hold`: waits until the test continues.
    """

    environment: Environment
    point: str = ""
    then: Literal["kill", "hold"] = "kill"


# --- the test's side


class Driver:
    """Runs until all orders are done; at the end of the block all its processes have ended.

    `worker_dies` names a file: the first task that has staged its rows creates it and is killed.
    """

    def __init__(
        self,
        orders: Sequence[Order],
        directory: Path,
        *,
        worker_dies: Path | None = None,
    ) -> None:
        written = {
            "orders": [asdict(order) for order in orders],
            "worker_dies": None if worker_dies is None else str(worker_dies),
        }
        self._errors = directory / "driver.err"
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
        # Close both ends, so that no pipe stays open.
        self._process.communicate()

    def wait_for_all(self, lines: Iterable[str]) -> None:
        """Waits until the driver has printed these lines, in any order."""
        missing = set(lines)
        assert self._process.stdout is not None
        while missing:
            printed = self._process.stdout.readline()
            if not printed:
                raise AssertionError(f"the driver never printed {missing}:\n{self.errors}")
            missing.discard(printed.strip())

    def go(self, environments: int) -> None:
        """Lets `count` held environments continue."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n" * environments)
        self._process.stdin.flush()

    def end(self) -> int:
        """Returns the exit code after the driver and all its children have ended.

        They share its standard output.
        """
        self._process.communicate(timeout=PATIENCE_S)
        return self._process.returncode

    @property
    def errors(self) -> str:
        return self._errors.read_text()


def killed(orders: Sequence[Order], directory: Path) -> None:
    """Runs a driver once, and checks how it ends."""
    with Driver(orders, directory) as driver:
        code = driver.end()
        assert code == -signal.SIGKILL, f"the driver ended with {code}:\n{driver.errors}"


# --- in the driver process


def main(written: str) -> int:
    order_file = json.loads(written)
    orders = [
        Order(Environment(**fields.pop("environment")), **fields) for fields in order_file["orders"]
    ]
    with commits_seen(), dying_after_staging(order_file["worker_dies"]):
        spark = _session(orders[0].environment)
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


def _session(environment: Environment) -> "SparkSession":
    from penstock.spark.run.session import session

    settings = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}
    # Retry failed tasks, as on a cluster.
    return session(replace(environment.spec, spark=settings), "local[2,3]", short=True)


def _run_all(orders: Sequence[Order], spark: "SparkSession") -> list[str]:
    failures: list[str] = []
    dying = [order for order in orders if order.point and order.then == "kill"]
    barrier = Barrier(max(1, len(dying)), lambda: os.killpg(0, signal.SIGKILL))

    def hold(order: Order) -> None:
        sys.stdout.write(f"{order.environment.name} is at {order.point}\n")
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
            order.environment.once(spark, at)
        except Exception as error:  # noqa: BLE001  (the test looks at it)
            failures.append(f"{type(error).__name__}: {error}")
        if order.point and not point.reached:
            failures.append(f"{order.environment.name} never was at {order.point}: {point.steps}")
            # Other environments may wait at their points forever.
            _give_up(failures)
        is_started.set()

    threads: list[Thread] = []
    for item in orders:
        is_started = Event()
        threads.append(Thread(target=work, args=(item, is_started)))
        threads[-1].start()
        # Spark allows ten seconds for the start of a Python process, so not all start at once.
        is_started.wait()
    for each_thread in threads:
        each_thread.join()
    return failures


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
