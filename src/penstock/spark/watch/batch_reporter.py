"""Passes Spark's reports of finished batches to the listeners of a run."""

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
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

logger = logging.getLogger(__name__)


class BatchReporter(StreamingQueryListener):
    """Passes Spark's progress events of one query on, as `BatchReport`s."""

    def __init__(
        self, key: str, listeners: Sequence[RunListener], latest_offsets: LatestOffsets
    ) -> None:
        self._key = key
        self._listeners = listeners
        self._latest_offsets = latest_offsets
        self.ended = Event()
        """Set after the query has ended and all its reports were passed on."""

    def onQueryStarted(self, event: "QueryStartedEvent") -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: "QueryProgressEvent") -> None:  # noqa: N802
        if not self._listeners:
            return
        try:
            self._pass_on(
                self._latest_offsets.update(report_of(self._key, json.loads(event.progress.json)))
            )
        except Exception:
            logger.exception("a progress report of %s was lost", self._key)

    def onQueryTerminated(self, event: "QueryTerminatedEvent") -> None:  # noqa: N802
        self.ended.set()

    def _pass_on(self, report: BatchReport) -> None:
        for listener in self._listeners:
            listener.finished(report)
