"""Worker processes that use a database and are killed at any step.

`Workers` starts a module that imports everything and calls `serve`, which forks a worker for each
task, so that starting and killing workers is fast.
"""

import json
import logging
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, Self, TypeVar
from unittest.mock import patch

import msgspec
from sqlalchemy import Engine, PoolProxiedConnection

LIFETIME_SECONDS = 60
Task = TypeVar("Task")


# --- the test's side


class Workers(Generic[Task]):
    """Worker processes, forked from one that has everything imported."""

    def __init__(self, module: str, log: Path) -> None:
        with log.open("wb") as errors:
            self._parent = subprocess.Popen(
                [sys.executable, "-m", module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._log = log

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._parent.communicate()

    def rehearse(self, task: Task) -> None:
        """Runs a task in the parent, so that everything is loaded and compiled before forks."""
        assert self._request({"rehearse": msgspec.to_builtins(task)}) == 0, self.stderr_text()

    def start(self, task: Task) -> int:
        """Starts a worker and returns its process id."""
        return self._request({"start": msgspec.to_builtins(task)})

    def wait(self, pid: int) -> int:
        """Returns the exit code of a worker (`os.waitstatus_to_exitcode`): -9 if it was killed."""
        return self._request({"wait": pid})

    def run(self, task: Task) -> int:
        return self.wait(self.start(task))

    def stderr_text(self) -> str:
        """Returns the standard error of the workers."""
        return self._log.read_text(errors="replace")

    def _request(self, request: Mapping[str, object]) -> int:
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.write(json.dumps(request) + "\n")
        self._parent.stdin.flush()
        response = self._parent.stdout.readline()
        assert response, f"the workers' parent has ended:\n{self.stderr_text()}"
        return int(response)


# --- in the worker processes


def serve(kind: type[Task], work: Callable[[Task], int]) -> None:
    """Forks a worker for each start request; kills all workers at the end.

    `work` returns the exit code of its process.
    """
    # No tracebacks for connections that are broken on purpose.
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)
    running: set[int] = set()
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            pid = request["wait"]
            response = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            running.discard(pid)
        elif "rehearse" in request:
            response = work(msgspec.convert(request["rehearse"], kind))
        else:
            response = _fork(work, msgspec.convert(request["start"], kind))
            running.add(response)
        sys.stdout.write(f"{response}\n")
        sys.stdout.flush()
    for pid in running:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _fork(work: Callable[[Task], int], task: Task) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        signal.alarm(LIFETIME_SECONDS)
        status = work(task)
    except BaseException:  # noqa: BLE001  (nothing of the parent may run here)
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def kill_this_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hold(file: Path) -> None:
    """Creates the file, and waits until it is removed."""
    file.touch()
    while file.exists():
        time.sleep(0.005)


def step_at_commits(engine: Engine, reach: Callable[[str], None]) -> None:
    """Adds a step before and after every commit of this engine, until `patch.stopall`."""
    commit = engine.dialect.do_commit

    def do_commit(connection: PoolProxiedConnection) -> None:
        reach("before commit")
        commit(connection)
        reach("after commit")

    patch.object(engine.dialect, "do_commit", do_commit).start()
