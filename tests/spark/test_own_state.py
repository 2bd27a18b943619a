"""User-defined state with timers (transformWithStateInPandas) through crashes: once (D2, D3)."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from penstock.spark.errors import PipelineError
from penstock.spark.pipeline.model import StepSpec
from penstock.testing import Broker
from tests.support.spark.pipelines import PipelineScenario, click

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.stateful_processor import (
        ExpiredTimerInfo,
        StatefulProcessorHandle,
        TimerValues,
    )

pytestmark = pytest.mark.long

GAP_MS = 10_000


class Visits(StatefulProcessor):
    """Counts the clicks of each page; emits a row after ten seconds without any."""

    def init(self, handle: "StatefulProcessorHandle") -> None:
        self._handle = handle
        self._visit = handle.getValueState("visit", "clicks bigint, last bigint")

    def handleInputRows(  # noqa: N802  (Spark's name)
        self,
        key: Any,
        rows: "Iterator[pd.DataFrame]",
        timerValues: "TimerValues",  # noqa: N803
    ) -> "Iterator[pd.DataFrame]":
        clicks, last = self._visit.get() or (0, 0)
        for row in rows:
            clicks += len(row)
            last = max(last, int(row["ms"].max()))
        self._visit.update((clicks, last))
        for timer in list(self._handle.listTimers()):
            self._handle.deleteTimer(timer)
        self._handle.registerTimer(last + GAP_MS)
        return iter(())

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: "TimerValues",  # noqa: N803
        expiredTimerInfo: "ExpiredTimerInfo",  # noqa: N803
    ) -> "Iterator[pd.DataFrame]":
        import pandas as pd

        clicks, _ = self._visit.get() or (0, 0)
        self._visit.clear()
        yield pd.DataFrame({"page": [key[0]], "clicks": [clicks]})

    def close(self) -> None:
        pass


def visits(views: "Mapping[str, DataFrame]") -> "DataFrame":
    clicks = views["clicks"].selectExpr("page", "at", "unix_millis(at) AS ms")
    return clicks.groupBy("page").transformWithStateInPandas(
        statefulProcessor=Visits(),
        outputStructType="page string, clicks bigint",
        outputMode="append",
        timeMode="eventTime",
    )


class KilledError(Exception):
    """Simulates a kill: the query ends here, without its next actions."""


def crash_at(step: str, times: int) -> Any:
    steps: list[str] = []

    def at(now: str) -> None:
        steps.append(now)
        if now == step and steps.count(step) == times:
            raise KilledError(f"{step}:{times}")

    return at


def stored_rows(scenario: PipelineScenario) -> list[tuple[object, object]]:
    return sorted((str(row["page"]), row["clicks"]) for row in scenario.memory.rows)


def test_timers_and_state_are_exactly_once_however_often_the_driver_crashes(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    scenario = PipelineScenario(
        spark, broker, tmp_path, steps=(StepSpec(name="visits", function=visits),), view="visits"
    )
    scenario.produce(click(number, second=number) for number in range(5))
    scenario.produce([click(5, second=2, page="cart")])
    # Stored, but not committed by Spark: the skipped batch writes its state again.
    with pytest.raises(PipelineError, match="stored:1"):
        scenario.once(crash_at("stored", 1))
    assert stored_rows(scenario) == []
    # The second batch of this run has no records: the timers are due.
    scenario.produce([click(6, second=70, page="help")])
    with pytest.raises(PipelineError, match="stored:2"):
        scenario.once(crash_at("stored", 2))
    assert stored_rows(scenario) == [("cart", 1), ("home", 5)]
    scenario.produce([click(7, second=75, page="help"), click(8, second=200, page="last")])
    with pytest.raises(PipelineError, match="rows:1"):
        scenario.once(crash_at("rows", 1))
    assert stored_rows(scenario) == [("cart", 1), ("home", 5)]
    scenario.once()
    assert stored_rows(scenario) == [("cart", 1), ("help", 2), ("home", 5)]
    assert scenario.once().rows == 0
