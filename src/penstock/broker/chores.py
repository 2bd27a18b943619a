"""What the broker does by the clock: retention, flushes, checkpoints, compaction."""

import asyncio
import logging

from penstock.broker.flushes import Flushes
from penstock.broker.workers import Workers
from penstock.core.errors import KafkaError
from penstock.storage.cleaner import LogCleaner
from penstock.storage.manager import LogManager

logger = logging.getLogger("penstock.chores")

_TICK_S = 0.25
"""How late a chore may be; `flush.ms` is the one that notices."""


class Chores:
    """Two loops: one for what is quick, one that cleans on a thread."""

    def __init__(
        self, logs: LogManager, cleaner: LogCleaner, flushes: Flushes, workers: Workers
    ) -> None:
        self._logs = logs
        self._cleaner = cleaner
        self._flushes = flushes
        self._workers = workers
        self._tasks: list[asyncio.Task[None]] = []
        self._cleaning = asyncio.Lock()

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._keep()), asyncio.create_task(self._clean())]

    async def stop(self) -> None:
        """Ends the loops; a step of the cleaner that is running on its thread is let finish."""
        self._cleaner.close()
        async with self._cleaning:
            for task in self._tasks:
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._flushes.settle()

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            try:
                await self._tidy()
                for log, task in self._logs.tick():
                    self._flushes.run(log, task)
            except KafkaError as error:
                logger.error("%s", error.message)

    async def _tidy(self) -> None:
        """What `tick` would otherwise do here and now, waiting for the disk."""
        for log_dir, removal in self._logs.begin_removals():
            await self._workers.run(self._workers.flush, removal.run)
            log_dir.finish_removal(removal)
        for log_dir, checkpoint in self._logs.begin_checkpoints():
            await self._workers.run(self._workers.flush, checkpoint.run)
            log_dir.finish_checkpoint(checkpoint)

    async def _clean(self) -> None:
        cleaner = self._cleaner
        while True:
            worked = False
            async with self._cleaning:
                task = cleaner.begin()
            while task is not None:
                worked = True
                async with self._cleaning:
                    await self._workers.run(self._workers.clean, task.run)
                    task = cleaner.finish(task)
            if not worked:
                await asyncio.sleep(cleaner.settings.backoff_ms / 1000)
