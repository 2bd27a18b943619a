"""Flushes of logs on a thread, one at a time for each log, shared by all who wait for it."""

import asyncio
import logging

from penstock.broker.workers import Workers
from penstock.core.errors import KafkaStorageError
from penstock.storage.log.flush_task import FlushTask
from penstock.storage.log.log import Log

logger = logging.getLogger(__name__)

_LOOK_AGAIN_S = 0.005


class LogFlusher:
    """Runs `FlushTask`s and tells their logs how they went."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._running: dict[Log, asyncio.Future[None]] = {}
        self._next: dict[Log, asyncio.Future[None]] = {}

    def flush(self, log: Log) -> "asyncio.Future[None]":
        """Makes what the log holds now durable; done when it is, with an error where it failed.

        While a flush is under way, all who come wait for the one after it together.
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
        """Runs a flush that somebody else began."""
        self._run(log, task, asyncio.get_running_loop().create_future())

    def _run(self, log: Log, task: FlushTask, done: "asyncio.Future[None]") -> None:
        self._running[log] = done
        loop = asyncio.get_running_loop()
        ran = loop.run_in_executor(self._workers.flush, task.run)
        ran.add_done_callback(lambda ran: self._ran(log, task, done, ran))

    def _ran(
        self,
        log: Log,
        task: FlushTask,
        done: "asyncio.Future[None]",
        ran: "asyncio.Future[None]",
    ) -> None:
        del self._running[log]
        failure = ran.exception()
        # Of a log that was deleted or broke meanwhile there is nothing new to tell.
        level = logging.ERROR if log.failure is None else logging.DEBUG
        try:
            log.finish_flush(task, failure if isinstance(failure, OSError) else None)
            if failure is not None:
                raise failure
        except Exception as error:  # noqa: BLE001 - whoever waits is told
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
            # It was moved to another folder, with all that was to be flushed.
            log = log.successor
        if log.local.is_busy:
            # The cleaner's own flush, or somebody renames its files: they do not know of us.
            asyncio.get_running_loop().call_later(_LOOK_AGAIN_S, self._begin, log, done)
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

    async def wait_idle(self) -> None:
        """Waits until no flush is under way."""
        while self._running:
            await asyncio.wait(self._running.values())


def _fail(done: "asyncio.Future[None]", error: Exception) -> None:
    if not done.cancelled():
        done.set_exception(error)
        # Not everybody who starts a flush waits for it; the log has the error.
        done.exception()
