"""A process that consumes into a database, to be killed at any step of it.

`Workers` starts one that has everything imported and forks the consumers, so that killing and
starting them costs next to nothing.
"""

import json
import logging
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self
from unittest.mock import patch

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    PoolProxiedConnection,
    String,
    Table,
    create_engine,
    event,
    insert,
)
from sqlalchemy.exc import DBAPIError

from penstock.client import Consumer
from penstock.client.consumer.record import OffsetAndMetadata, RebalanceListener
from penstock.client.offsets_outside.model import Move, OffsetsMovedError, StoredOffset
from penstock.client.offsets_outside.store import OffsetStore
from penstock.client.settings import ConsumerOptions
from penstock.core.ids import TopicPartition

LIFETIME_SECONDS = 60
SESSION_TIMEOUT_MS = 600

RESULTS = Table(
    "results",
    MetaData(),
    Column("id", Integer, primary_key=True),
    Column("part", Integer, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("value", String(20), nullable=False),
    mysql_engine="InnoDB",
)


class Task(msgspec.Struct):
    """What a consumer does, and where it dies."""

    bootstrap: str
    url: str
    topic: str
    ends: Sequence[int]
    """How many records each partition has: it ends when the offsets stored are at all of them."""

    point: str = ""
    """The step to be killed at; empty: none."""

    occurrence: int = 1
    """Which time that it comes there."""

    hold: str = ""
    """A file that says that the point is reached: the process goes on when it is gone."""

    group: bool = False
    """Subscribes in place of assigning all partitions."""

    records_per_poll: int = 3


class Steps:
    """Counts the steps, and kills the process at one of them."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._left = task.occurrence

    def reach(self, point: str) -> None:
        if point != self._task.point:
            return
        self._left -= 1
        if self._left:
            return
        if not self._task.hold:
            os.kill(os.getpid(), signal.SIGKILL)
        hold = Path(self._task.hold)
        hold.touch()
        while hold.exists():
            time.sleep(0.005)


class SteppingStore(OffsetStore):
    """A store whose every call is a step."""

    def __init__(self, steps: Steps) -> None:
        super().__init__()
        self._steps = steps

    def create_table(self, bind: Engine | Connection) -> None:
        self._steps.reach("before create_table")
        super().create_table(bind)
        self._steps.reach("after create_table")

    def read(
        self,
        connection: Connection,
        group_id: str,
        partitions: Collection[TopicPartition] | None = None,
    ) -> dict[TopicPartition, StoredOffset]:
        stored = super().read(connection, group_id, partitions)
        self._steps.reach("after read")
        return stored

    def add(
        self,
        connection: Connection,
        group_id: str,
        positions: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        self._steps.reach("before add")
        super().add(connection, group_id, positions)
        self._steps.reach("after add")

    def save(
        self, connection: Connection, group_id: str, moves: Mapping[TopicPartition, Move]
    ) -> None:
        self._steps.reach("before save")
        super().save(connection, group_id, moves)
        self._steps.reach("after save")


class SteppingListener(RebalanceListener):
    """Its calls come after those that seek."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._steps.reach("assigned")

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._steps.reach("revoked")


def step_at_commits(engine: Engine, steps: Steps) -> None:
    """Every commit of this engine has a step before and one after."""
    commit = engine.dialect.do_commit

    def do_commit(connection: PoolProxiedConnection) -> None:
        steps.reach("before commit")
        commit(connection)
        steps.reach("after commit")

    event.listen(engine, "commit", lambda connection: steps.reach("committing"))
    patch.object(engine.dialect, "do_commit", do_commit).start()


def consume(task: Task) -> None:
    """Reads until all is read, or until it is killed. A database that went away comes back."""
    steps = Steps(task)
    engine = create_engine(task.url)
    store = SteppingStore(steps)
    step_at_commits(engine, steps)
    partitions = [TopicPartition(task.topic, number) for number in range(len(task.ends))]
    options = ConsumerOptions(
        bootstrap_servers=task.bootstrap,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=10,  # a fetch that waits for more keeps a seek waiting
    )
    if task.group:
        options["group_id"] = "g"
        options["enable_auto_commit"] = False
        options["session_timeout_ms"] = SESSION_TIMEOUT_MS
        options["heartbeat_interval_ms"] = SESSION_TIMEOUT_MS // 6
    with Consumer(**options) as consumer:
        if task.group:
            consumer.subscribe([task.topic], SteppingListener(steps))
        else:
            consumer.assign(partitions)
        while not is_done(engine, partitions, task.ends):
            try:
                consume_some(consumer, engine, store, task, steps)
            except DBAPIError as error:
                say(f"the database failed: {error.orig}")
            except OffsetsMovedError:
                say("offsets were moved")
    engine.dispose()


def consume_some(
    consumer: Consumer, engine: Engine, store: OffsetStore, task: Task, steps: Steps
) -> None:
    """The loop that a user writes, once."""
    with consumer.transaction(engine, store=store, group_id="g") as tx:
        records = consumer.poll(0.1, task.records_per_poll)
        if records:
            steps.reach("after poll")
        for record in records:
            tx.connection.execute(
                insert(RESULTS).values(
                    part=record.partition, position=record.offset, value=record.value.decode()
                )
            )
            steps.reach("after insert")
    steps.reach("after block")


def say(what: str) -> None:
    """For the test to find in the log."""
    sys.stderr.write(f"{os.getpid()}: {what}\n")
    sys.stderr.flush()


def is_done(engine: Engine, partitions: Sequence[TopicPartition], ends: Sequence[int]) -> bool:
    store = OffsetStore()
    try:
        with engine.connect() as connection:
            stored = store.read(connection, "g") if store.exists(connection) else {}
    except DBAPIError:
        return False
    return [stored[each].position.offset if each in stored else 0 for each in partitions] == list(
        ends
    )


class Workers:
    """Consumers, each a process forked from one that is ready to consume."""

    def __init__(self, log: Path) -> None:
        with log.open("wb") as errors:
            self._parent = subprocess.Popen(
                [sys.executable, "-m", "tests.support.outside_worker"],
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
        """Consumes in the parent: what is loaded and compiled on first use is there from now on."""
        assert self._ask({"rehearse": msgspec.to_builtins(task)}) == 0

    def start(self, task: Task) -> int:
        """The process id of a new consumer."""
        return self._ask({"start": msgspec.to_builtins(task)})

    def wait(self, pid: int) -> int:
        """How it ended, as `os.waitstatus_to_exitcode` says: -9 for killed."""
        return self._ask({"wait": pid})

    def run(self, task: Task) -> int:
        return self.wait(self.start(task))

    def said(self) -> str:
        """What the consumers wrote to their standard error."""
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
    """Forks a consumer for each question that says so; at the end of them all are killed."""
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
            consume(msgspec.convert(question["rehearse"], Task))
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
        consume(task)
        status = 0
    finally:
        if status:
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main()
