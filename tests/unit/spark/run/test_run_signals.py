"""Signals that stop a run, and the names of drivers."""

import os
import signal
from collections.abc import Sequence
from threading import Event
from typing import TYPE_CHECKING, cast

import pytest

from penstock.spark.errors import FencedError
from penstock.spark.pipeline.model import PipelineSpec
from penstock.spark.run import run as module
from penstock.spark.run.failures import SparkStoppedError
from penstock.spark.run.query import Query, QueryResult, new_owner
from penstock.spark.run.run import RunResult, _signals_set, run
from penstock.spark.sinks.parquet.kind import ParquetSinkSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.sinks.port import Sink


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_run_and_the_second_interrupts_it(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    stop_requested = Event()
    with _signals_set(stop_requested):
        os.kill(os.getpid(), number)
        assert stop_requested.wait(60)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


def test_no_two_drivers_have_the_same_name() -> None:
    assert new_owner() != new_owner()
    assert str(os.getpid()) in new_owner().split(":")


SPEC = PipelineSpec(
    name="p",
    bootstrap_servers="",
    sources=(),
    sinks=tuple(ParquetSinkSpec(name=letter, view="v", path="") for letter in "ab"),
)


class FakeQuery:
    """A fake query: runs until it is stopped, and records the calls of its methods."""

    def __init__(self, name: str, calls: list[str], ends: Sequence[BaseException]) -> None:
        self.name = name
        self.result = QueryResult(name, rows=5)
        self.error: BaseException | None = None
        self.is_active = False
        self._calls = calls
        self._ends = list(ends)

    def start(self, *, once: bool) -> None:
        self._calls.append(f"start {self.name}")
        self.is_active = True

    def begin_no_batch(self) -> None:
        self._calls.append(f"last batch of {self.name}")

    def stop(self, *, is_patient: bool = True) -> None:
        self._calls.append(f"stop {self.name}" + ("" if is_patient else " now"))
        self.is_active = False
        if self._ends:
            raise self._ends.pop()

    stop_after = Query.stop_after

    def close(self) -> None:
        self._calls.append(f"close {self.name}")


def run_scripted(
    monkeypatch: pytest.MonkeyPatch, stop: Event, *ends: BaseException
) -> tuple[list[str], RunResult | BaseException]:
    """Returns the calls of the queries `a` and `b`, and the outcome of the run.

    `ends` are the exceptions of the first calls of `a.stop`, the last one first.
    """
    calls: list[str] = []

    def query(
        spark: object, spec: object, sink: ParquetSinkSpec, *_: object, **__: object
    ) -> object:
        return FakeQuery(sink.name, calls, ends if sink.name == "a" else ())

    monkeypatch.setattr(module, "Query", query)
    try:
        return calls, run(
            SPEC,
            spark=cast("SparkSession", object()),
            sinks=lambda *args: cast("Sink", object()),
            stop=stop,
        )
    except BaseException as error:  # noqa: BLE001  (the test inspects it)
        return calls, error


def test_a_run_that_is_stopped_ends_all_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = Event()
    monkeypatch.setattr(module, "_wait", lambda queries, stop_requested: stop_requested.set())
    calls, result = run_scripted(monkeypatch, stop)
    assert isinstance(result, RunResult)
    assert result.rows == 10
    last = ["last batch of a", "last batch of b"]
    assert calls[:6] == ["start a", "start b", *last, "stop a", "stop b"]
    assert calls[-2:] == ["stop a", "close a"]


def test_a_run_that_is_stopped_before_it_begins_starts_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop = Event()
    stop.set()
    assert run_scripted(monkeypatch, stop) == ([], RunResult(()))


@pytest.mark.parametrize("error", [ConnectionRefusedError(), SparkStoppedError("p.a: stopped")])
def test_spark_that_ends_with_the_same_signal_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_wait", lambda queries, stop_requested: stop_requested.set())
    _, result = run_scripted(monkeypatch, Event(), error)
    assert isinstance(result, RunResult)
    assert "the current batch was not finished" in caplog.text


def test_spark_that_ends_without_a_signal_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_wait", lambda queries, stop_requested: None)
    _, result = run_scripted(monkeypatch, Event(), ConnectionRefusedError())
    assert isinstance(result, SparkStoppedError)
    assert str(result).startswith("p: the Java process of Spark has ended")


def test_other_errors_after_a_signal_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_wait", lambda queries, stop_requested: stop_requested.set())
    _, result = run_scripted(monkeypatch, Event(), FencedError("taken over"))
    assert isinstance(result, FencedError)


def test_a_second_signal_cancels_the_current_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_wait", lambda queries, stop_requested: stop_requested.set())
    calls, result = run_scripted(monkeypatch, Event(), KeyboardInterrupt())
    assert isinstance(result, KeyboardInterrupt)
    assert calls[4:] == ["stop a", "stop b now", "close b", "stop a now", "close a"]
