"""A process for `Workers` that consumes into a database and can be killed at any step."""

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
    """The records that a consumer reads, and the step at which it is killed."""

    bootstrap: str
    url: str
    topic: str
    ends: Sequence[int]
    """The number of records of each partition; the process ends when it has stored them."""

    point: str = ""
    """The step at which the process is killed; empty for none."""

    occurrence: int = 1
    """The occurrence of the step at which the process is killed, from 1."""

    hold: str = ""
    """A file that the process creates at the step; it continues when the file is removed."""

    group: bool = False
    """Subscribes in place of assigning all partitions."""

    records_per_poll: int = 3


class Steps:
    """Counts the steps, and kills the process at one of them."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._remaining = task.occurrence

    def reach(self, point: str) -> None:
        if point != self._task.point:
            return
        self._remaining -= 1
        if self._remaining:
            return
        if not self._task.hold:
            kill_this_process()
        hold(Path(self._task.hold))


class SteppingStore(OffsetStore):
    """A store with a step before and after each call."""

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
    """A listener whose calls follow those that seek."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._steps.reach("assigned")

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._steps.reach("revoked")


def consume(task: Task) -> int:
    """Reads all records, unless it is killed; continues after failures of the database."""
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
                log(f"the database failed: {error.orig}")
            except OffsetsMovedError:
                log("offsets were moved")
    engine.dispose()
    return 0


def consume_some(
    consumer: Consumer, engine: Engine, store: OffsetStore, task: Task, steps: Steps
) -> None:
    """Runs one iteration of a typical consumer loop."""
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


def log(what: str) -> None:
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
