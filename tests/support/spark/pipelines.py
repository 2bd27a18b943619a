"""Small pipelines for tests of the runner: a topic, steps, and a sink in memory."""

import json
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

from penstock.client.producer.producer import Producer
from penstock.spark.pipeline.model import (
    DeadLetterSpec,
    PipelineSpec,
    SinkSpec,
    SourceSpec,
    StepSpec,
    TableSpec,
    Watermark,
)
from penstock.spark.run.query import StepHook
from penstock.spark.run.rebuild import rebuild
from penstock.spark.run.run import RunResult, run
from penstock.spark.sinks.parquet.kind import ParquetSinkSpec
from penstock.spark.sinks.port import Sink
from penstock.spark.watch.run_listener import RunListener
from penstock.testing import Broker
from tests.support.spark.memory_sink import Memory, MemorySink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_numbers = count(1)
CLICKS = "id bigint, at timestamp, page string"

PER_MINUTE = StepSpec(
    name="per_minute",
    sql=(
        "SELECT window.start AS start, page, count(*) AS clicks FROM clicks "
        "GROUP BY window(at, '1 minute'), page"
    ),
)


def click(number: int, *, second: int = 0, page: str = "home") -> bytes:
    """Returns a click, so many seconds after noon."""
    at = f"2026-01-01T{12 + second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}Z"
    return json.dumps({"id": number, "at": at, "page": page}).encode()


class PipelineScenario:
    """A topic of clicks and a pipeline from it to a sink in memory."""

    def __init__(
        self,
        spark: "SparkSession",
        broker: Broker,
        directory: Path,
        *,
        steps: tuple[StepSpec, ...] = (),
        tables: tuple[TableSpec, ...] = (),
        view: str = "clicks",
        key: tuple[str, ...] = (),
        partitions: int = 1,
        dead_letters: DeadLetterSpec | None = None,
        max_batch_records: int = 1000,
    ) -> None:
        number = next(_numbers)
        self.spark = spark
        self.broker = broker
        self.topic = f"clicks-{number}"
        self.memory = Memory()
        self.directory = directory
        self._key = key
        broker.create_topic(self.topic, partitions)
        self.spec = PipelineSpec(
            name=f"pipeline-{number}",
            bootstrap_servers=broker.bootstrap_servers,
            sources=(
                SourceSpec(
                    name="clicks",
                    topics=(self.topic,),
                    schema=CLICKS,
                    watermark=Watermark(column="at", delay="0 seconds"),
                ),
            ),
            tables=tables,
            steps=steps,
            sinks=(ParquetSinkSpec(name="memory", view=view, path="unused"),),
            checkpoint=str(directory / "checkpoints"),
            trigger="0 seconds",
            max_batch_records=max_batch_records,
            dead_letters=dead_letters,
        )

    @property
    def checkpoint(self) -> Path:
        return self.directory / "checkpoints" / self.spec.name / "memory"

    def produce(self, values: Iterable[bytes], partition: int = 0) -> None:
        with Producer(bootstrap_servers=self.broker.bootstrap_servers) as producer:
            producer.send_many(self.topic, list(values), partition=partition).result()

    def sinks(self, spec: PipelineSpec, sink: SinkSpec, spark: "SparkSession") -> Sink:
        return MemorySink(self.memory, key=self._key)

    def once(self, at: StepHook = lambda step: None) -> RunResult:
        return run(self.spec, once=True, spark=self.spark, sinks=self.sinks, at=at)

    def rebuild(self, at: StepHook = lambda step: None) -> None:
        rebuild(self.spec, self.spark, sinks=self.sinks, at=at)

    def continuously(
        self, *listeners: RunListener, at: StepHook = lambda step: None
    ) -> "RunningPipeline":
        return RunningPipeline(self, listeners, at)

    def column(self, name: str) -> list[object]:
        """Returns the values of a column, sorted."""
        return sorted((row[name] for row in self.memory.rows), key=repr)

    def lose_last_commit(self) -> None:
        """Removes Spark's last commit, as if it was killed right after the sink's commit."""
        commits = self.checkpoint / "commits"
        last = max(int(file.name) for file in commits.iterdir() if file.name.isdecimal())
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)


class RunningPipeline:
    """A pipeline that runs in a thread until the end of the block, or until it fails."""

    def __init__(
        self, scenario: PipelineScenario, listeners: tuple[RunListener, ...], at: StepHook
    ) -> None:
        self._stop = Event()
        self._progress = Event()
        self.error: BaseException | None = None
        self.result: RunResult | None = None
        progress = self._progress

        class ProgressListener(RunListener):
            def stored(self, query: str, batch: object, applied: object) -> None:
                progress.set()

        def work() -> None:
            try:
                self.result = run(
                    scenario.spec,
                    spark=scenario.spark,
                    sinks=scenario.sinks,
                    listeners=(*listeners, ProgressListener()),
                    stop=self._stop,
                    at=at,
                )
            except Exception as error:  # noqa: BLE001  (for the test to check)
                self.error = error
            finally:
                progress.set()

        self._thread = Thread(target=work)

    def __enter__(self) -> "RunningPipeline":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def until(self, condition: Callable[[], bool]) -> None:
        """Waits for a batch after which the condition is true, or until the pipeline fails."""
        for _ in range(200):
            if condition() or self.error is not None:
                return
            assert self._progress.wait(60)
            self._progress.clear()
        raise AssertionError("the condition never became true")
