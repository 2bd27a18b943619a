"""An environment for a pipeline under failures, and the results that it must have in the end.

An environment is a topic, a pipeline that reads it, and its sink. Records are numbered; some are
unreadable. `check` verifies that results and dead letters are exactly those of the produced
records, without duplicates.
"""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from threading import local
from typing import TYPE_CHECKING, Literal, TypeAlias

from sqlalchemy import Connection, Engine, event, inspect, make_url

from penstock.client.producer.producer import Producer
from penstock.spark.pipeline.model import (
    DeadLetterSpec,
    PipelineSpec,
    SinkSpec,
    SourceSpec,
    StepSpec,
    Watermark,
)
from penstock.spark.run.query import StepHook, location_of
from penstock.spark.run.run import RunResult, run
from penstock.spark.sinks.database.kind import DatabaseSinkSpec
from penstock.spark.sinks.registry import SinkFactory, create_sink
from penstock.spark.sinks.topic.kind import TopicSinkSpec
from penstock.testing import Broker
from tests.support.spark.database_sinks import rows_of
from tests.support.spark.databases import engine_for
from tests.support.spark.topic_sinks import committed
from tests.support.spark.worker_faults import dying_step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Kind: TypeAlias = Literal["append", "staged", "upsert", "update", "closed", "topic"]
"""Of the pipeline: rows as they come; the same by way of a staging table; the newest row of each
key; windows that change; windows that come out when they are over; rows to a topic."""

PEOPLE = 5
WINDOW_S = 10
DELAY_S = 90
"""Of the watermark of `closed`: records of two partitions may be this far apart."""
NEW_YEAR = 1767225600
"""2026, in seconds since 1970: where the clock of the records starts."""
LAST_S = 1_000_000
"""The time of a record that ends all windows."""

_PER_WINDOW = (
    "SELECT unix_timestamp(window.start) AS start, who, count(*) AS n, sum(id) AS total "
    f"FROM events GROUP BY window(at, '{WINDOW_S} seconds'), who"
)
_SQL: dict[Kind, str] = {
    "append": "SELECT id, who, at FROM events",
    "staged": "SELECT id, who, at FROM events",
    "upsert": "SELECT id, who, at FROM events",
    "update": _PER_WINDOW,
    "closed": _PER_WINDOW,
    "topic": "SELECT id, who FROM events",
}
Row: TypeAlias = tuple[int, ...]
_numbers = count(1)


def is_bad(number: int) -> bool:
    """Whether a record is unreadable. Few are, because such batches are read twice."""
    return number % 24 == 5


def record(number: int, second: int) -> bytes:
    if is_bad(number):
        return f'{{"id": {number}, "at": "not a time'.encode()
    at = f"2026-01-{1 + second // 86400:02}T{second // 3600 % 24:02}:{second // 60 % 60:02}"
    at += f":{second % 60:02}Z"
    return json.dumps({"id": number, "who": number % PEOPLE, "at": at}).encode()


@dataclass
class Environment:
    """A topic, a pipeline and its sink.

    `letters`: dead letters go to a table next to the results, or to a topic. `database` is
    SQLAlchemy's address; a pipeline to a topic needs none.
    """

    kind: Kind
    servers: str
    directory: str
    database: str = ""
    letters: Literal["table", "topic"] = "table"
    batch: int = 12
    name: str = field(default_factory=lambda: f"environment{next(_numbers)}")
    kafka: dict[str, str] = field(default_factory=dict)
    """Settings of all clients of the pipeline."""
    worker_dies: str = ""
    """A file: the first task makes it, and its Python worker is killed."""
    seconds: dict[int, int] = field(default_factory=dict)
    """Of each record that was produced, by its number: where it is on the clock of the records."""

    @property
    def stateful(self) -> bool:
        return self.kind in ("update", "closed")

    @property
    def topic(self) -> str:
        return f"{self.name}-events"

    @property
    def letter_topic(self) -> str:
        return f"{self.name}-letters"

    @property
    def result_topic(self) -> str:
        return f"{self.name}-results"

    @property
    def spec(self) -> PipelineSpec:
        delay = {"update": "1 hour", "closed": f"{DELAY_S} seconds"}.get(self.kind)
        return PipelineSpec(
            name=self.name,
            bootstrap_servers=self.servers,
            sources=(
                SourceSpec(
                    name="events",
                    topics=(self.topic,),
                    schema="id bigint, who bigint, at timestamp",
                    required=("id", "who", "at"),
                    watermark=None if delay is None else Watermark(column="at", delay=delay),
                ),
            ),
            steps=self._steps,
            sinks=(self._sink,),
            dead_letters=(
                DeadLetterSpec(table="letters")
                if self.letters == "table"
                else DeadLetterSpec(topic=self.letter_topic)
            ),
            checkpoint=f"{self.directory}/checkpoints",
            trigger="0 seconds",
            max_batch_records=self.batch,
            kafka=self.kafka,
        )

    @property
    def _steps(self) -> tuple[StepSpec, ...]:
        sql = _SQL[self.kind]
        if not self.worker_dies:
            return (StepSpec(name="results", sql=sql),)
        return (
            StepSpec(name="handed_on", function=dying_step("events", self.worker_dies)),
            StepSpec(name="results", sql=sql.replace("FROM events", "FROM handed_on")),
        )

    @property
    def _sink(self) -> SinkSpec:
        if self.kind == "topic":
            return TopicSinkSpec(name="out", view="results", topic=self.result_topic)
        sink = DatabaseSinkSpec(name="out", view="results", database=self.database, table="results")
        if self.kind == "upsert":
            return replace(
                sink, mode="upsert", key=("who",), order_by=("id",), delete_when="id % 11 = 0"
            )
        if self.kind == "update":
            return replace(sink, mode="upsert", key=("start", "who"))
        return replace(sink, writing="staged" if self.kind == "staged" else "driver")

    @property
    def checkpoint(self) -> Path:
        spec = self.spec
        return Path(location_of(spec, spec.sinks[0]))

    # --- What happens to it -----------------------------------------------------------------------

    def create(self, broker: Broker) -> "Environment":
        Path(self.directory).mkdir(parents=True, exist_ok=True)
        for topic, partitions in ((self.topic, 2), (self.letter_topic, 1), (self.result_topic, 2)):
            broker.create_topic(topic, partitions)
        return self

    def produce(self, records: int) -> None:
        """Produces `records` more, one per second; those of one key in one partition, in order."""
        first = len(self.seconds)
        begin = max(self.seconds.values(), default=-1) + 1
        self._send({first + number: begin + number for number in range(records)})

    def end_windows(self) -> None:
        """Produces a record so late that it closes all windows before it."""
        number = len(self.seconds)
        self._send({number + is_bad(number): LAST_S})
        if is_bad(number):
            self._send({number: LAST_S})

    def _send(self, seconds: dict[int, int]) -> None:
        with Producer(bootstrap_servers=self.servers) as producer:
            for partition in range(2):
                values = [
                    record(second, at)
                    for second, at in seconds.items()
                    if second % PEOPLE % 2 == partition
                ]
                if values:
                    producer.send_many(self.topic, values, partition=partition).result(60)
        self.seconds |= seconds

    def once(
        self,
        spark: "SparkSession",
        at: StepHook = lambda step: None,
        *,
        checkpoint: str | None = None,
        sinks: SinkFactory = create_sink,
    ) -> RunResult:
        spec = self.spec if checkpoint is None else replace(self.spec, checkpoint=checkpoint)
        return run(spec, once=True, spark=spark, at=at, sinks=sinks)

    def lose_checkpoint(self) -> None:
        shutil.rmtree(self.checkpoint, ignore_errors=True)

    def lose_last_commit(self) -> None:
        """Removes Spark's last commit, as if it was killed after that of the sink."""
        planned, done = (self._last(directory) for directory in ("offsets", "commits"))
        if planned is not None and planned == done:
            (self.checkpoint / "commits" / str(done)).unlink()
            (self.checkpoint / "commits" / f".{done}.crc").unlink(missing_ok=True)

    def _last(self, directory: str) -> int | None:
        """Returns the number of the last batch that has a file in the directory."""
        return max(
            (int(path.name) for path in (self.checkpoint / directory).glob("[0-9]*")), default=None
        )

    # --- What there must be, and what there is ----------------------------------------------------

    @property
    def good(self) -> list[int]:
        return [second for second in self.seconds if not is_bad(second)]

    @property
    def bad(self) -> list[bytes]:
        return sorted(record(second, 0) for second in self.seconds if is_bad(second))

    def expected(self) -> list[Row]:
        if self.kind in ("append", "staged", "topic"):
            return sorted((number, number % PEOPLE) for number in self.good)
        if self.kind == "upsert":
            newest = {number % PEOPLE: number for number in sorted(self.good)}
            return sorted((last, person) for person, last in newest.items() if last % 11)
        n: Counter[Row] = Counter()
        total: Counter[Row] = Counter()
        for entry in self.good:
            second = self.seconds[entry]
            if self.kind == "closed" and second == LAST_S:
                continue
            window = NEW_YEAR + second // WINDOW_S * WINDOW_S, entry % PEOPLE
            n[window] += 1
            total[window] += entry
        return sorted((*window, n[window], total[window]) for window in n)

    def stored_rows(self) -> list[Row]:
        if self.kind == "topic":
            values = [
                json.loads(record.value or b"")
                for record in committed(self.servers, self.result_topic)
            ]
            return sorted((row["id"], row["who"]) for row in values)
        columns = ("start", "who", "n", "total") if self.stateful else ("id", "who")
        rows = self._rows("results")
        return sorted(tuple(int(str(row[column])) for column in columns) for row in rows)

    def stored_letters(self) -> list[bytes]:
        if self.letters == "topic":
            return sorted(
                record.value or b"" for record in committed(self.servers, self.letter_topic)
            )
        result: list[bytes] = []
        for row in self._rows("letters"):
            value = row["value"]
            assert isinstance(value, bytes)
            result.append(value)
        return sorted(result)

    def _rows(self, table: str) -> list[dict[str, object]]:
        with engine_for(make_url(self.database)) as engine:
            return rows_of(engine, table) if inspect(engine).has_table(table) else []

    def check(self) -> None:
        """Asserts that every produced record is stored exactly once."""
        result = self.stored_rows()
        assert result == self.expected(), self._difference(result, self.expected())
        letters = self.stored_letters()
        assert letters == self.bad, (
            f"{self.name}: {len(letters)} dead letters, of which {len(set(letters))} are different "
            f"ones, for {len(self.bad)} records that cannot be read"
        )
        if self.kind in ("append", "staged", "topic"):
            assert len(result) == len(set(result)) == len(self.good)
        if self.kind == "update":
            assert sum(row[2] for row in result) == len(self.good)

    def _difference(self, result: list[Row], expected: list[Row]) -> str:
        lost = list((Counter(expected) - Counter(result)).elements())
        more = list((Counter(result) - Counter(expected)).elements())
        return f"{self.name} ({self.kind}): lost {lost[:10]}, too many {more[:10]}"


# --- Points at which something happens -----------------------------------------------------------

_writing = local()


class Point:
    """Calls an action when a query reaches a step for the n-th time: `stored:2`.

    Besides the steps of `StepHook` there is `committing`: all rows of a batch are written to the
    database, and the COMMIT follows.
    """

    def __init__(self, point: str, act: Callable[[], object]) -> None:
        step, _, times = point.partition(":")
        self._step = step
        self._remaining = int(times or 1)
        self._act = act
        self.reached = False
        self.steps: list[str] = []

    def __call__(self, step: str) -> None:
        _writing.point = self if step == "dead-letters" else None
        self.at(step)

    def at(self, step: str) -> None:
        self.steps.append(step)
        if step == self._step:
            self._remaining -= 1
            if self._remaining == 0:
                self.reached = True
                self._act()


def _on_statement(connection: Connection, cursor: object, statement: str, *more: object) -> None:
    if statement.startswith("INSERT INTO penstock_batch"):
        # The last statement of the transaction.
        _writing.is_written = True


def _on_commit(connection: Connection) -> None:
    point: Point | None = getattr(_writing, "point", None)
    if point is not None and getattr(_writing, "is_written", False):
        _writing.is_written = False
        point.at("committing")


@contextmanager
def commits_seen() -> Iterator[None]:
    """Notifies points of commits during the block."""
    listeners = (("before_cursor_execute", _on_statement), ("commit", _on_commit))
    for name, listener in listeners:
        event.listen(Engine, name, listener)
    try:
        yield
    finally:
        for name, listener in listeners:
            event.remove(Engine, name, listener)
