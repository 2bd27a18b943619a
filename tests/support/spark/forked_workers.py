"""Processes that work on a database and are killed at any step of it.

`Workers` starts a module that has everything imported and calls `serve`, which forks a worker for
each task, so that killing and starting them costs next to nothing.
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


# --- The test's side ------------------------------------------------------------------------------


class Workers(Generic[Task]):
    """Each is a process forked from one that is ready to work."""

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
        """Works in the parent: what is loaded and compiled on first use is there from now on."""
        assert self._ask({"rehearse": msgspec.to_builtins(task)}) == 0, self.said()

    def start(self, task: Task) -> int:
        """The process id of a new worker."""
        return self._ask({"start": msgspec.to_builtins(task)})

    def wait(self, pid: int) -> int:
        """How it ended, as `os.waitstatus_to_exitcode` says: -9 for killed."""
        return self._ask({"wait": pid})

    def run(self, task: Task) -> int:
        return self.wait(self.start(task))

    def said(self) -> str:
        """What the workers wrote to their standard error."""
        return self._log.read_text(errors="replace")

    def _ask(self, question: Mapping[str, object]) -> int:
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.write(json.dumps(question) + "\n")
        self._parent.stdin.flush()
        answer = self._parent.stdout.readline()
        assert answer, f"the workers' parent has ended:\n{self.said()}"
        return int(answer)


# --- The processes themselves ---------------------------------------------------------------------


def serve(kind: type[Task], work: Callable[[Task], int]) -> None:
    """Forks a worker for each question that says so; at the end of them all are killed. `work`
    gives the exit code of its process."""
    # Connections that break on purpose are not worth a traceback each.
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)
    running: set[int] = set()
    for line in sys.stdin:
        question = json.loads(line)
        if "wait" in question:
            pid = question["wait"]
            answer = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            running.discard(pid)
        elif "rehearse" in question:
            answer = work(msgspec.convert(question["rehearse"], kind))
        else:
            answer = _fork(work, msgspec.convert(question["start"], kind))
            running.add(answer)
        sys.stdout.write(f"{answer}\n")
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
    """Makes the file, and waits until somebody has removed it."""
    file.touch()
    while file.exists():
        time.sleep(0.005)


def step_at_commits(engine: Engine, reach: Callable[[str], None]) -> None:
    """Every commit of this engine has a step before and one after, until `patch.stopall`."""
    commit = engine.dialect.do_commit

    def do_commit(connection: PoolProxiedConnection) -> None:
        reach("before commit")
        commit(connection)
        reach("after commit")

    patch.object(engine.dialect, "do_commit", do_commit).start()
