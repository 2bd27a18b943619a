"""A process that writes batches into a database, to be killed at any step of it.

`Workers` starts one that has everything imported and forks the writers, so that killing and
starting them costs next to nothing. Each record of the topic is an offset: it ends up as a row of
the results or, every fifth, as a dead letter.
"""

import json
import logging
import os
import signal
import sqlite3
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self
from unittest.mock import patch

import msgspec
import pyarrow as pa
from sqlalchemy import Connection, Engine, PoolProxiedConnection, event
from sqlalchemy.engine.interfaces import DBAPICursor

from penstock.spark.errors import FencedError
from penstock.spark.exactly_once import Decision, decide
from penstock.spark.progress import Batch, Stored
from penstock.spark.sinks.database import DatabaseSink
from penstock.spark.sinks.database.statements import DriverCursor
from tests.support.database_sinks import TOPIC, at, letters_at, sink_for, spec_for

LIFETIME_SECONDS = 60
FENCED = 3
"""How a writer ends that another has replaced."""


class Task(msgspec.Struct):
    """What a writer does, and where it dies."""

    url: str
    end: int
    """It ends when all offsets before this one are stored."""

    kill_at: int = 0
    """The number of the step to be killed at, from 1; 0: none."""

    hold_at: str = ""
    """The kind of step to stop at, in the middle of the third batch, while the file is there."""

    hold: str = ""
    size: int = 10
    """Records of a batch."""


class Steps:
    """Counts the steps, and kills the process at one of them."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._count = 0
        self.batch = -1

    def reach(self, point: str) -> None:
        self._count += 1
        if self._count == self._task.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if point == self._task.hold_at and self.batch == 2:
            self._task.hold_at = ""
            hold = Path(self._task.hold)
            hold.touch()
            while hold.exists():
                time.sleep(0.005)


def step_at_statements(engine: Engine, steps: Steps) -> None:
    """A step before every statement that is not about the catalogue, and around every commit."""
    commit = engine.dialect.do_commit

    def do_commit(connection: PoolProxiedConnection) -> None:
        steps.reach("before commit")
        commit(connection)
        steps.reach("after commit")

    def before(connection: Connection, cursor: DBAPICursor, statement: str, *more: object) -> None:
        if "penstock_" in statement or "results" in statement or "letters" in statement:
            steps.reach("statement")

    enter = DriverCursor.__enter__

    def rows(cursor: DriverCursor) -> DBAPICursor:
        steps.reach("rows")
        return enter(cursor)

    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", do_not_wait_for_the_disk)
    event.listen(engine, "before_cursor_execute", before)
    patch.object(engine.dialect, "do_commit", do_commit).start()
    patch.object(DriverCursor, "__enter__", rows).start()


def do_not_wait_for_the_disk(connection: sqlite3.Connection, record: object) -> None:
    """What a process has written outlives it without that."""
    connection.execute("PRAGMA synchronous = OFF")


def work(task: Task) -> None:
    """Writes until all is written, or until it is killed."""
    steps = Steps(task)
    with sink_for(spec_for(task.url), dead_letter_table="letters") as sink:
        step_at_statements(sink._engine, steps)
        try:
            write_all(sink, task, steps)
        finally:
            patch.stopall()


def write_all(sink: DatabaseSink, task: Task, steps: Steps) -> None:
    stored = sink.open(f"process {os.getpid()}")
    if stored is None:
        sink.begin_at(at(0))
        stored = Stored(at(0))
    query = f"of {os.getpid()}"
    position = stored.progress["orders"].offsets[TOPIC]
    while position < task.end:
        steps.batch += 1
        end = min(position + task.size, task.end)
        batch = Batch(query, steps.batch, at(position), at(end))
        assert decide(stored, batch) is Decision.APPLY
        offsets = range(position, end)
        rows = pa.table({"n": pa.array([n for n in offsets if n % 5], pa.int64())})
        sink.write_table(rows, batch, letters_at(*(n for n in offsets if n % 5 == 0)))
        stored = Stored(batch.end, query, steps.batch)
        position = end


class Workers:
    """Writers, each a process forked from one that is ready to write."""

    def __init__(self, log: Path) -> None:
        with log.open("wb") as errors:
            self._parent = subprocess.Popen(
                [sys.executable, "-m", "tests.support.database_worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._log = log

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._parent.communicate()

    def rehearse(self, task: Task) -> None:
        """Writes in the parent: what is loaded and compiled on first use is there from now on."""
        assert self._ask({"rehearse": msgspec.to_builtins(task)}) == 0, self.said()

    def start(self, task: Task) -> int:
        """The process id of a new writer."""
        return self._ask({"start": msgspec.to_builtins(task)})

    def wait(self, pid: int) -> int:
        """How it ended, as `os.waitstatus_to_exitcode` says: -9 for killed."""
        return self._ask({"wait": pid})

    def run(self, task: Task) -> int:
        return self.wait(self.start(task))

    def said(self) -> str:
        """What the writers wrote to their standard error."""
        return self._log.read_text(errors="replace")

    def _ask(self, question: Mapping[str, object]) -> int:
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.write(json.dumps(question) + "\n")
        self._parent.stdin.flush()
        answer = self._parent.stdout.readline()
        assert answer, f"the workers' parent has ended:\n{self.said()}"
        return int(answer)


def main() -> None:
    """Forks a writer for each question that says so; at the end of them all are killed."""
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
            work(msgspec.convert(question["rehearse"], Task))
            answer = 0
        else:
            answer = _fork(msgspec.convert(question["start"], Task))
            running.add(answer)
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()
    for pid in running:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _fork(task: Task) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        signal.alarm(LIFETIME_SECONDS)
        work(task)
        status = 0
    except FencedError:
        status = FENCED
    finally:
        if status == 1:
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main()
