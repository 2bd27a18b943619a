"""Broker, topics, a live generator and a Spark pipeline, from one command: the demo.

    make demo

Page views come in while a pipeline on Spark joins them with customers from SQLite, counts them in
windows of a minute, and keeps the counts in SQLite, exactly once. What is shown while it runs: how
much was sent, how far the pipeline is, and the table as it grows. It ends automatically, and its
exit code is 0 only if every view that was sent was counted exactly once; Ctrl-C ends it sooner.

The pipeline is the file examples/clickstream/pipeline.yml.
"""

import os
import sqlite3
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread

from examples.clickstream.generate import TOPIC, Counts, make_customers, make_topic, send_views
from penstock.client import Admin
from penstock.client.admin import OffsetSpec
from penstock.core.ids import TopicPartition
from penstock.spark.errors import SparkPartError
from penstock.spark.pipeline.model import PipelineSpec
from penstock.spark.pipeline.yaml_file import load
from penstock.spark.run.run import RunResult, run
from penstock.spark.watch.lag import GroupLag
from penstock.spark.watch.report import BatchReport
from penstock.spark.watch.run_listener import RunListener
from penstock.testing import Broker

PIPELINE = Path(__file__).parent / "clickstream" / "pipeline.yml"
CUSTOMERS = 50
VIEWS = 30_000
SECONDS = 15.0
"""How long the generator takes."""
PATIENCE_S = 120.0
"""The time after which the demo has failed."""


class EnoughError(Exception):
    """Raised in the generator when no more views are needed."""


@dataclass
class Generator:
    """Sends page views at a constant rate, in its own thread."""

    servers: str
    sent: int = 0
    counts: Counts = field(default_factory=dict)
    broken: int = 0
    done: Event = field(default_factory=Event)
    _enough: Event = field(default_factory=Event)
    _thread: Thread | None = None

    def start(self) -> None:
        self._thread = Thread(target=self._send, name="generator")
        self._thread.start()

    def stop(self) -> None:
        """Stops the generator, whether it is done or not."""
        self._enough.set()
        if self._thread is not None:
            self._thread.join()

    def _send(self) -> None:
        begin = time.monotonic()

        def pace(number: int) -> None:
            self.sent = number
            ahead = number * SECONDS / VIEWS - (time.monotonic() - begin)
            if ahead > 0.01 and self._enough.wait(ahead):
                raise EnoughError

        try:
            now = datetime.now(UTC).replace(microsecond=0)
            self.counts, self.broken = send_views(self.servers, VIEWS, 1, CUSTOMERS, now, pace)
            self.sent = VIEWS
            self.done.set()
        except EnoughError:
            pass


class Screen(RunListener):
    """Prints a line for each batch that is not empty."""

    def __init__(self, generator: Generator, database: Path) -> None:
        self._generator = generator
        self._database = database
        self._read = 0

    def finished(self, report: BatchReport) -> None:
        if not report.records:
            return
        if not self._read:
            say("\n    SENT      READ       LAG  RECORDS/S  BATCH MS  TABLE ROWS     VIEWS")
        self._read += report.records
        table = counted(self._database)
        say(
            f"{self._generator.sent:8,} {self._read:9,} {report.lag:9,} "
            f"{report.records_per_second:10,.0f} {report.duration_ms:9,} "
            f"{len(table):11,} {sum(views for views, _ in table.values()):9,}"
        )


def say(text: str) -> None:
    print(text, flush=True)


def counted(database: Path) -> Counts:
    """Returns the result, read with plain SQL."""
    with closing(sqlite3.connect(database, timeout=60)) as connection:
        if not connection.execute(
            "SELECT 1 FROM sqlite_master WHERE name = 'views_per_minute'"
        ).fetchone():
            return {}
        rows = connection.execute(
            "SELECT minute, segment, views, checkouts FROM views_per_minute"
        ).fetchall()
    return {(str(minute)[:16], segment): (views, done) for minute, segment, views, done in rows}


def lag_of(servers: str, group: str) -> int:
    """Returns the lag like any Kafka tool: end offsets minus the group's offsets."""
    with Admin(bootstrap_servers=servers) as admin:
        partitions = len(admin.describe_topics([TOPIC])[TOPIC].partitions)
        topic_partitions = [TopicPartition(TOPIC, number) for number in range(partitions)]
        ends = admin.list_offsets(dict.fromkeys(topic_partitions, OffsetSpec.LATEST))
        read = admin.list_group_offsets([group]).get(group, {})
    lag = 0
    for partition in topic_partitions:
        committed = read.get(partition)
        lag += ends[partition].offset - (committed.offset if committed is not None else 0)
    return lag


def run_live(
    spec: PipelineSpec, servers: str, database: Path
) -> tuple[Generator, RunResult] | None:
    """Runs until all sent records are read; returns None after Ctrl-C."""
    generator = Generator(servers)
    stop, is_over = Event(), Event()
    began = time.monotonic()

    def stop_when_all_is_read() -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not stop.wait(0.3):
            is_read = generator.done.is_set() and lag_of(servers, spec.name) == 0
            if is_read or time.monotonic() > deadline:
                is_over.set()
                stop.set()

    def begin_sending(step: str) -> None:
        if step == "begun":
            say(f"spark    ready after {time.monotonic() - began:.1f} s; views begin to come")
            generator.start()
            watcher.start()

    watcher = Thread(target=stop_when_all_is_read, name="watcher", daemon=True)
    say("spark    starts ...")
    try:
        with GroupLag(spec.name, {"bootstrap.servers": servers}) as lag:
            screen = Screen(generator, database)
            result = run(spec, listeners=[lag, screen], stop=stop, at=begin_sending)
    finally:
        generator.stop()
    return (generator, result) if is_over.is_set() else None


def summary(generator: Generator, result: RunResult, counts: Counts, lag: int) -> bool:
    say("\nMINUTE            SEGMENT       VIEWS  CHECKOUTS")
    for (minute, segment), (views, checkouts) in sorted(counts.items())[-8:]:
        say(f"{minute}  {segment:10} {views:8,} {checkouts:10,}")
    total = sum(views for views, _ in counts.values())
    say(f"\n{generator.sent:,} views sent, {total:,} counted, in {len(counts):,} rows of the table")
    say(f"{generator.broken} broken records sent, {result.dead_letters} in the dead letters")
    say(f"lag of the pipeline's consumer group: {lag}")
    good = counts == generator.counts and result.dead_letters == generator.broken and lag == 0
    say("every view was counted exactly once" if good else "THIS IS WRONG")
    return good


def main() -> int:
    with tempfile.TemporaryDirectory() as directory, Broker() as broker:
        servers = broker.bootstrap_servers
        os.environ["PENSTOCK_BOOTSTRAP_SERVERS"] = servers
        os.environ["CLICKSTREAM_FOLDER"] = directory
        database = Path(directory) / "shop.db"
        say(f"broker   {servers}")
        make_customers(database, CUSTOMERS)
        make_topic(servers)
        say(f"topic    {TOPIC}; {CUSTOMERS} customers in SQLite")
        try:
            spec = load(PIPELINE)
            say(f"pipeline {spec.name}, from {os.path.relpath(PIPELINE)}")
            done = run_live(spec, servers, database)
        except SparkPartError as error:
            print(error, file=sys.stderr)
            return 1
        if done is None:
            say("stopped before the end")
            return 130
        good = summary(*done, counted(database), lag_of(servers, spec.name))
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
