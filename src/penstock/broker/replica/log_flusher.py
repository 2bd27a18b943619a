"""Flushes of logs on a thread: one at a time for each log, shared by all callers that wait.

A disk may not respond for a long time, or never. A log whose flush has been running for `STALL_S`
seconds accepts no more records until the flush has ended: otherwise records and requests that wait
for them would pile up.
"""

import asyncio
import logging

from penstock.broker.workers import Workers
from penstock.core.errors import KafkaStorageError
from penstock.core.histogram import Histogram
from penstock.storage.log.flush_task import FlushTask
from penstock.storage.log.log import Log

logger = logging.getLogger(__name__)

STALL_S = 60.0
_RETRY_S = 0.005


class LogFlusher:
    """Runs `FlushTask`s and passes their outcome to the logs."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._running: dict[Log, asyncio.Future[None]] = {}
        self._next: dict[Log, asyncio.Future[None]] = {}
        self._started: dict[Log, float] = {}
        """When the running flush of each log began, on the loop's clock; the oldest first."""
        self.flush_times = Histogram()
        """Of all flushes that have ended."""

    def flush(self, log: Log) -> "asyncio.Future[None]":
        """Makes the current content of the log durable; the future completes, or fails, with it.

        While a flush is in progress, all callers share the one that follows it, and its future:
        shield it in a task that may be cancelled.
        """
        loop = asyncio.get_running_loop()
        if log in self._running:
            if log not in self._next:
                self._next[log] = loop.create_future()
            return self._next[log]
        done: asyncio.Future[None] = loop.create_future()
        self._begin(log, done)
        return done

    def run(self, log: Log, task: FlushTask) -> None:
        """Runs a flush that the caller has begun."""
        self._run(log, task, asyncio.get_running_loop().create_future())

    def _run(self, log: Log, task: FlushTask, done: "asyncio.Future[None]") -> None:
        loop = asyncio.get_running_loop()
        pool = self._workers.flush_pool(log.directory.rpartition("/")[0])
        ran = loop.run_in_executor(pool, task.run)
        # Not `done`, which a caller may have cancelled while the flush is still running.
        self._running[log] = ran
        self._started[log] = loop.time()
        ran.add_done_callback(lambda ran: self._ran(log, task, done, ran))

    def _ran(
        self,
        log: Log,
        task: FlushTask,
        done: "asyncio.Future[None]",
        ran: "asyncio.Future[None]",
    ) -> None:
        del self._running[log]
        started = self._started.pop(log)
        seconds = asyncio.get_running_loop().time() - started
        self.flush_times.record(seconds)
        if log.guard.is_stalled:
            log.guard.resume()
            logger.warning("the flush of %s has ended after %d s", log.partition, seconds)
        # If the log was deleted or failed during the flush, that has been reported already.
        level = logging.ERROR if log.failure is None else logging.DEBUG
        try:
            log.finish_flush(task, _error_of(ran))
        except Exception as error:  # noqa: BLE001 - the callers receive it
            logger.log(level, "flush of %s failed: %s", log.partition, error)
            _fail(done, error)
        else:
            if not done.cancelled():
                done.set_result(None)
        waiting = self._next.pop(log, None)
        if waiting is not None:
            self._begin(log, waiting)

    def _begin(self, log: Log, done: "asyncio.Future[None]") -> None:
        if done.cancelled():
            return
        while log.successor is not None:
            # It was moved to another directory, with everything that was to be flushed.
            log = log.successor
        if log.failure is None and not log.local.can_flush:
            # The cleaner flushes it, or its files are being renamed; neither notifies us.
            asyncio.get_running_loop().call_later(_RETRY_S, self._begin, log, done)
            return
        try:
            task = log.begin_flush()
        except KafkaStorageError as error:
            _fail(done, error)
            return
        if task is None:
            done.set_result(None)
        else:
            self._run(log, task, done)

    def refuse_stalled(self) -> None:
        """Makes logs whose flush has been running for too long refuse records; called regularly."""
        limit = asyncio.get_running_loop().time() - STALL_S
        for log, started in self._started.items():
            if started > limit:
                return
            if not log.guard.is_stalled and log.failure is None:
                log.guard.stall(
                    KafkaStorageError(
                        f"{log.partition} accepts no records: its flush has been running for more "
                        f"than {STALL_S:g} s, so the disk of {log.directory} may hang",
                        remedy="check the disk; it continues when the flush has ended",
                    )
                )

    def running_s(self, log: Log) -> float:
        """Returns for how long the flush of a log has been running; 0 if there is none."""
        started = self._started.get(log)
        return 0.0 if started is None else asyncio.get_running_loop().time() - started

    @property
    def running_logs(self) -> list[Log]:
        """The logs that are being flushed."""
        return list(self._running)

    async def wait_idle(self) -> None:
        """Waits until no flush is in progress."""
        while self._running:
            await asyncio.wait(self._running.values())


def _error_of(ran: "asyncio.Future[None]") -> Exception | None:
    """Returns why the syncs of a flush did not succeed; None if they did."""
    if ran.cancelled():
        return OSError("the flush was cancelled")
    error = ran.exception()
    if error is None or isinstance(error, Exception):
        return error
    return OSError(f"the flush ended with {error!r}")


def _fail(done: "asyncio.Future[None]", error: Exception) -> None:
    if not done.cancelled():
        done.set_exception(error)
        # Not every caller waits for the flush; the error is in the broker's log.
        done.exception()
