"""A real standalone Spark cluster on this machine, from the pyspark package, for tests.

Master and workers are separate processes, small and quick to start. Each worker starts an
executor for an application, as a machine of a cluster does. None of them outlives the tests:
the kernel ends master and workers with the test process, and executors end with their worker.
"""

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

from penstock.spark.run.java import find_java

START_SECONDS = 120.0
"""On a machine that has much else to do."""
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
_EXECUTOR_MEMORY = "512m"
_MASTER_AT = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = re.compile(r"Registering worker \S+ with \d+ core")


class ClusterError(Exception):
    """A part of the cluster did not start; the message contains its output."""


class SparkCluster:
    """`cores` is the number of tasks that each worker runs at once."""

    def __init__(self, workers: int = 2, *, cores: int = 1) -> None:
        self.url = ""
        self.directory = Path(tempfile.mkdtemp(prefix="penstock-spark-"))
        self._cores = cores
        self._count = workers
        self._home = _spark_home()
        self._java = find_java(os.environ).home
        self._environment = {
            **os.environ,
            "JAVA_HOME": str(self._java),
            "SPARK_HOME": str(self._home),
            # Set by Spark's own scripts for workers.
            "SPARK_SCALA_VERSION": _scala_version(self._home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self.directory),
        }
        self._master: subprocess.Popen[bytes] | None = None
        self._workers: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        self.remove()

    def worker_of(self, pid: int) -> int:
        """Returns the number of the worker that is an ancestor of this process."""
        for number, process in self._workers.items():
            if pid in family(process.pid):
                return number
        raise ClusterError(f"no worker has started the process {pid}")

    def kill_worker(self, number: int) -> None:
        """Kills a worker, its executors and their Python processes: a machine that fails."""
        _kill(self._workers.pop(number))

    def kill_executor(self, pid: int) -> None:
        """Kills only the executor that runs this process; its worker starts another one."""
        executors = {
            child
            for worker in self._workers.values()
            for child in _children(worker.pid)
            if pid in family(child)
        }
        [executor] = executors
        os.kill(executor, signal.SIGKILL)

    def remove(self) -> None:
        """Ends the remaining processes, and removes the directory."""
        for number in list(self._workers):
            self.kill_worker(number)
        if self._master is not None:
            _kill(self._master)
            self._master = None
        shutil.rmtree(self.directory)

    def _start(self) -> None:
        self._master = self._launch("master.Master", "master")
        self.url = self._awaited(_MASTER_AT, 1)
        for number in range(self._count):
            work_dir = self.directory / f"worker-{number}"
            options = ["--cores", str(self._cores), "--memory", _EXECUTOR_MEMORY]
            options += ["--work-dir", str(work_dir)]
            self._workers[number] = self._launch(
                "worker.Worker", f"worker-{number}", *options, self.url
            )
        self._awaited(_REGISTERED, self._count)

    def _launch(self, name: str, log: str, *options: str) -> subprocess.Popen[bytes]:
        command = [
            str(self._java / "bin" / "java"),
            *QUICK,
            "-Xmx256m",
            "-Dspark.master.rest.enabled=false",
        ]
        command += ["-cp", f"{self._home}/jars/*"]
        command += [f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1"]
        command += ["--port", "0", "--webui-port", "0", *options]
        # setpriv lets the kernel end the process if the test process is itself killed.
        if shutil.which("setpriv"):
            command = ["setpriv", "--pdeathsig", "KILL", *command]
        with (self.directory / f"{log}.log").open("wb") as out:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=self.directory,
                env=self._environment,
            )

    def _awaited(self, pattern: re.Pattern[str], times: int) -> str:
        """Waits until the master has logged this text `count` times; returns the last match."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            result: list[str] = pattern.findall((self.directory / "master.log").read_text())
            if len(result) >= times:
                return result[-1]
            processes = [self._master, *self._workers.values()]
            if any(process is not None and process.poll() is not None for process in processes):
                break
            # Spark reports in no other way that it is ready.
            time.sleep(0.05)
        logs = [
            f"{path.name}:\n{path.read_text()[-2000:]}" for path in self.directory.glob("*.log")
        ]
        raise ClusterError("the Spark cluster did not start:\n" + "\n".join(logs))


def _spark_home() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ClusterError('Spark is missing: pip install "penstock[spark]"')
    return Path(spec.origin).parent


def _scala_version(home: Path) -> str:
    [core] = (home / "jars").glob("spark-core_*.jar")
    return core.name.split("_")[1].split("-")[0]


def _kill(process: subprocess.Popen[bytes]) -> None:
    for pid in family(process.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def family(root: int) -> list[int]:
    """Returns a process and its descendants, the oldest first."""
    result = [root]
    for pid in result:
        result += _children(pid)
    return result


def _children(pid: int) -> list[int]:
    result: list[int] = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            result += [int(part) for part in children.read_text().split()]
    return result
