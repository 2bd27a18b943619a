"""A process that writes batches into a database and is killed at a chosen step.

Started by `Workers`. Each offset of the topic becomes a row of the results or, every fifth, a
dead letter.
"""

import os
import sqlite3
from pathlib import Path
from unittest.mock import patch

import msgspec
import pyarrow as pa
from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine.interfaces import DBAPICursor

from penstock.spark.errors import FencedError
from penstock.spark.exactly_once import Decision, decide
from penstock.spark.progress import Batch, StoredProgress
from penstock.spark.sinks.database.sink import DatabaseSink
from penstock.spark.sinks.database.statements import DriverCursor
from tests.support.spark.database_sinks import TOPIC, at, letters_at, sink_for, spec_for
from tests.support.spark.forked_workers import hold, kill_this_process, serve, step_at_commits

FENCED = 3
"""How a writer ends that another has replaced."""


class Task(msgspec.Struct):
    """The task of a writer, and the step at which it is killed."""

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
    """Counts steps, and kills the process at one of them."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._count = 0
        self.batch = -1

    def reach(self, point: str) -> None:
        self._count += 1
        if self._count == self._task.kill_at:
            kill_this_process()
        if point == self._task.hold_at and self.batch == 2:
            self._task.hold_at = ""
            hold(Path(self._task.hold))


def step_at_statements(engine: Engine, steps: Steps) -> None:
    """Adds a step before every statement, except catalogue queries, and around every commit."""

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
    step_at_commits(engine, steps.reach)
    patch.object(DriverCursor, "__enter__", rows).start()


def do_not_wait_for_the_disk(connection: sqlite3.Connection, record: object) -> None:
    """Disables fsync: data that a process has written survives the process anyway."""
    connection.execute("PRAGMA synchronous = OFF")


def work(task: Task) -> int:
    """Writes all batches, unless it is killed before."""
    steps = Steps(task)
    with sink_for(spec_for(task.url), dead_letter_table="letters") as sink:
        step_at_statements(sink._engine, steps)
        try:
            write_all(sink, task, steps)
        except FencedError:
            return FENCED
        finally:
            patch.stopall()
    return 0


def write_all(sink: DatabaseSink, task: Task, steps: Steps) -> None:
    stored = sink.open(f"process {os.getpid()}")
    if stored is None:
        sink.begin_at(at(0))
        stored = StoredProgress(at(0))
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
        stored = StoredProgress(batch.end, query, steps.batch)
        position = end


if __name__ == "__main__":
    serve(Task, work)
