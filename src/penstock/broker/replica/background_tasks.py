"""Periodic work on the logs: retention, flushes, checkpoints and compaction."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from penstock.broker.replica.log_flusher import LogFlusher
from penstock.broker.workers import Workers
from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition
from penstock.storage.checkpoint.latest_files import FileWrite
from penstock.storage.cleaner.log_cleaner import LogCleaner
from penstock.storage.cleaner.steps import CleanerTask
from penstock.storage.disk_errors import is_lack_of_room
from penstock.storage.log.log import Log
from penstock.storage.manager.file_removal import RemovalTask
from penstock.storage.manager.log_dir import LogDir
from penstock.storage.manager.log_manager import LogManager

logger = logging.getLogger(__name__)

_TICK_S = 0.25
"""How late a task may run; only `flush.ms` is that precise."""
CLEANER_STALL_S = 60.0
"""A cleaning that makes no progress for so long does not keep other directories from it."""
_CREATION_INTERVAL_S = 5.0
"""How often logs for which there was no room are created, until there is."""


async def _create_no_logs() -> list[TopicPartition]:
    return []


class BackgroundTasks:
    """Loops for short tasks, for the cleaner on a thread, and for logs that lacked room."""

    def __init__(
        self,
        logs: LogManager,
        cleaner: LogCleaner,
        log_flusher: LogFlusher,
        workers: Workers,
        on_reloaded: Callable[[TopicPartition], None] = lambda partition: None,
        create_missing_logs: Callable[[], Awaitable[list[TopicPartition]]] = _create_no_logs,
    ) -> None:
        """`on_reloaded` is called when a partition has another log, which accepts records.

        `create_missing_logs` creates logs for which there was no room, and returns them.
        """
        self._on_reloaded = on_reloaded
        self._create_missing_logs = create_missing_logs
        self._logs = logs
        self._cleaner = cleaner
        self._log_flusher = log_flusher
        self._workers = workers
        self._tasks: list[asyncio.Task[None]] = []
        self._cleanings: set[asyncio.Task[bool]] = set()
        """One, and those that hang."""
        self._cleaner_steps: dict[Log, CleanerTask] = {}
        """What each of them does at present."""
        self._maintenance: dict[LogDir, asyncio.Task[None]] = {}
        """Removals and checkpoints of each log directory: a disk that hangs delays no other."""
        self._stopping = asyncio.Event()

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._run_short_tasks()),
            asyncio.create_task(self._run_cleaner()),
            asyncio.create_task(self._run_creations()),
        ]

    async def stop(self) -> None:
        """Ends the loops after the current work on threads has finished and been applied."""
        self._stopping.set()
        self._cleaner.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*self._cleanings, return_exceptions=True)
        await asyncio.gather(*self._maintenance.values(), return_exceptions=True)
        await self._log_flusher.wait_idle()
        await self._workers.wait_for_operations()

    async def _stopped_within(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)
        return self._stopping.is_set()

    async def _run_short_tasks(self) -> None:
        while not await self._stopped_within(_TICK_S):
            for task in (
                self._maintain_dirs,
                self._apply_retention,
                self._begin_flushes,
                self._begin_reloads,
            ):
                try:
                    await task()
                except KafkaError as error:
                    logger.error("%s", error.message)
                except Exception:
                    # The others must run, and this one again.
                    logger.exception("a background task failed")

    async def _apply_retention(self) -> None:
        self._logs.maintenance.apply_retention()

    async def _begin_flushes(self) -> None:
        self._log_flusher.refuse_stalled()
        for log, task in self._logs.maintenance.due_flushes():
            self._log_flusher.run(log, task)

    async def _begin_reloads(self) -> None:
        for partition, log_dir, reload in self._logs.reloads.begin():
            reloading = self._workers.start(self._workers.flush_pool(log_dir.path), reload)
            reloading.add_done_callback(partial(self._finish_reload, partition))

    def _finish_reload(self, partition: TopicPartition, reload: "asyncio.Task[Log | None]") -> None:
        error = None if reload.cancelled() else reload.exception()
        self._logs.reloads.finish(partition, succeeded=error is None)
        if error is None:
            self._on_reloaded(partition)
        elif not is_lack_of_room(error):
            logger.error("%s cannot be loaded again: %s", partition, error)

    async def _run_creations(self) -> None:
        while not await self._stopped_within(_CREATION_INTERVAL_S):
            try:
                for partition in await self._create_missing_logs():
                    self._on_reloaded(partition)
            except Exception:
                logger.exception("missing logs could not be created")

    async def _maintain_dirs(self) -> None:
        """Starts the removals and checkpoints that are due, except where earlier ones still run."""
        removals = dict(self._logs.maintenance.begin_removals(self._maintenance))
        checkpoints = dict(self._logs.maintenance.begin_checkpoints(self._maintenance))
        for log_dir in {**removals, **checkpoints}:
            task = asyncio.create_task(
                self._maintain(log_dir, removals.get(log_dir), checkpoints.get(log_dir))
            )
            self._maintenance[log_dir] = task
            task.add_done_callback(partial(self._maintained, log_dir))

    async def _maintain(
        self, log_dir: LogDir, removal: RemovalTask | None, checkpoint: FileWrite | None
    ) -> None:
        pool = self._workers.flush_pool(log_dir.path)
        if removal is not None:
            await self._workers.run(pool, removal.run)
            log_dir.finish_removal(removal)
        if checkpoint is not None:
            await self._workers.run(pool, checkpoint.run)
            log_dir.finish_checkpoint(checkpoint)

    def _maintained(self, log_dir: LogDir, task: "asyncio.Task[None]") -> None:
        del self._maintenance[log_dir]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("the maintenance of %s failed", log_dir.path, exc_info=error)

    # --- compaction

    async def _run_cleaner(self) -> None:
        cleaner = self._cleaner
        is_stopped = False
        while not is_stopped:
            task = None
            try:
                task = cleaner.begin()
            except Exception:
                logger.exception("the log cleaner failed")
            if task is None:
                is_stopped = await self._stopped_within(cleaner.settings.backoff_ms / 1000)
            else:
                cleaning = asyncio.create_task(self._clean(task))
                self._cleanings.add(cleaning)
                cleaning.add_done_callback(self._cleanings.discard)
                is_stopped = await self._wait_for_cleaning(cleaning, task.log)

    async def _clean(self, first_task: CleanerTask) -> bool:
        """Cleans a log; returns whether that is possible."""
        cleaner, workers = self._cleaner, self._workers
        task: CleanerTask | None = first_task
        try:
            while task is not None:
                self._cleaner_steps[first_task.log] = task
                directory = task.log.directory
                is_urgent = task.is_urgent  # a flush, or another operation, may wait for it
                pool_of = workers.flush_pool_of if is_urgent else workers.clean_pool_of
                await workers.run(pool_of(directory), task.run)
                task = cleaner.finish(task)
        except Exception as error:
            logger.exception("the log cleaner failed")
            if task is not None:
                cleaner.abandon(task, error)
            return False
        finally:
            del self._cleaner_steps[first_task.log]
        return True

    async def _wait_for_cleaning(self, cleaning: "asyncio.Task[bool]", log: Log) -> bool:
        """Waits until a cleaning has ended or hangs; returns whether the cleaner is stopped."""
        previous = None
        while not cleaning.done():
            step = self._cleaner_steps.get(log)
            progress = (step, None if step is None else step.progress)
            if progress == previous and (log_dir := self._cleaner.log_dir_of(log)) is not None:
                self._set_hanging(log_dir, cleaning)
                return False
            previous = progress
            await asyncio.wait([cleaning], timeout=CLEANER_STALL_S)
        if cleaning.result():
            return False
        return await self._stopped_within(self._cleaner.settings.backoff_ms / 1000)

    def _set_hanging(self, log_dir: LogDir, cleaning: "asyncio.Task[bool]") -> None:
        """Lets the cleaner continue in other directories, until the cleaning has ended."""
        logger.error(
            "the compaction in %s has made no progress for %g s: the disk may hang. Other log "
            "directories are compacted",
            log_dir.path,
            CLEANER_STALL_S,
        )
        self._cleaner.hanging_dirs.add(log_dir)
        cleaning.add_done_callback(lambda _: self._cleaner.hanging_dirs.discard(log_dir))
