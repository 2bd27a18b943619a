"""A process that consumes into a database, to be killed at any step of it: for `Workers`."""

import os
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    event,
    insert,
)
from sqlalchemy.exc import DBAPIError

from penstock.client import Consumer
from penstock.client.consumer.record import OffsetAndMetadata, RebalanceListener
from penstock.client.external_offsets.model import OffsetsMovedError, OffsetUpdate, StoredOffset
from penstock.client.external_offsets.store import OffsetStore
from penstock.client.settings import ConsumerOptions
from penstock.core.ids import TopicPartition
from tests.support.spark.forked_workers import hold, kill_this_process, serve, step_at_commits

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
            kill_this_process()
        hold(Path(self._task.hold))


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
        self, connection: Connection, group_id: str, moves: Mapping[TopicPartition, OffsetUpdate]
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


def consume(task: Task) -> int:
    """Reads until all is read, or until it is killed. A database that went away comes back."""
    steps = Steps(task)
    engine = create_engine(task.url)
    store = SteppingStore(steps)
    event.listen(engine, "commit", lambda connection: steps.reach("committing"))
    step_at_commits(engine, steps.reach)
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
    return 0


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
    return [
        stored[partition].position.offset if partition in stored else 0 for partition in partitions
    ] == list(ends)


if __name__ == "__main__":
    serve(Task, consume)
