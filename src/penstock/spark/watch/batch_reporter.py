"""The port for whoever watches a run: lag, progress on the terminal, metrics."""

import json
import logging
from collections.abc import Sequence
from threading import Event
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from penstock.spark.watch.latest_offsets import LatestOffsets
from penstock.spark.watch.report import BatchReport, report_of
from penstock.spark.watch.run_listener import RunListener

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

_log = logging.getLogger(__name__)


class BatchReporter(StreamingQueryListener):
    """Passes on what Spark says of the finished batches of one query."""

    def __init__(self, key: str, listeners: Sequence[RunListener], ends: LatestOffsets) -> None:
        self._key = key
        self._listeners = listeners
        self._latest_offsets = ends
        self.ended = Event()
        """Everything was passed on, and the query is over."""

    def onQueryStarted(self, event: "QueryStartedEvent") -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: "QueryProgressEvent") -> None:  # noqa: N802
        if not self._listeners:
            return
        try:
            self._pass_on(
                self._latest_offsets.now(report_of(self._key, json.loads(event.progress.json)))
            )
        except Exception:  # noqa: BLE001  (Spark would swallow it)
            _log.exception("a report of %s was lost", self._key)

    def onQueryIdle(self, event: "QueryIdleEvent") -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: "QueryTerminatedEvent") -> None:  # noqa: N802
        self.ended.set()

    def _pass_on(self, report: BatchReport) -> None:
        for listener in self._listeners:
            listener.finished(report)
