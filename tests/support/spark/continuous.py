"""Pipelines that run in the background of a test, and points at which they wait for it."""

from threading import Event, Thread
from typing import TYPE_CHECKING

from penstock.spark.run.query import StepHook
from penstock.spark.run.run import run
from penstock.spark.watch.run_listener import RunListener
from tests.support.spark.pipeline_environment import Environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.progress import Batch
    from penstock.spark.sinks.port import WriteResult


class Continuous(RunListener):
    """Runs a pipeline in a thread until the end of the block."""

    def __init__(
        self, environment: Environment, spark: "SparkSession", at: StepHook = lambda step: None
    ) -> None:
        self._stop = Event()
        self._news = Event()
        self.error: Exception | None = None
        self.end: int = 0

        def work() -> None:
            try:
                run(environment.spec, spark=spark, listeners=[self], stop=self._stop, at=at)
            except Exception as error:  # noqa: BLE001  (the test looks at it)
                self.error = error
            finally:
                self._news.set()

        self._thread = Thread(target=work)

    def stored(self, query: str, batch: "Batch", applied: "WriteResult") -> None:
        self.end = sum(batch.end["events"].offsets.values())
        self._news.set()

    def __enter__(self) -> "Continuous":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def until_read(self, records: int) -> None:
        while self.end < records:
            assert self._news.wait(120)
            self._news.clear()
            if self.error is not None:
                raise self.error


class Meeting:
    """One thread waits at a point for another."""

    def __init__(self) -> None:
        self._there = Event()
        self._go = Event()

    def hold(self) -> None:
        self._there.set()
        assert self._go.wait(120)

    def wait(self) -> None:
        assert self._there.wait(120)

    def go(self) -> None:
        self._go.set()
