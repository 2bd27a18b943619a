"""The start of the log directories: each is opened and its logs are loaded on a thread of its own.

Recovery may take long. A directory without progress whose disk does not respond either is taken
offline, so that it does not keep the broker from starting.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from penstock.broker.replica.log_dir_probe import LogDirProbe, hanging_error
from penstock.broker.workers import Workers
from penstock.storage.log_config import LogConfig
from penstock.storage.manager.log_dir import LogDir
from penstock.storage.manager.log_discovery import IsHosted, StrayLog
from penstock.storage.manager.log_manager import LogManager

T = TypeVar("T")

STALL_S = 30.0
"""How long a directory may be without progress before its disk is probed."""
_CHECK_S = 0.5


class LogDirStartup:
    """Opens and loads the directories of a log manager. It belongs to the event loop."""

    def __init__(self, logs: LogManager, workers: Workers, probe: LogDirProbe) -> None:
        self._logs = logs
        self._workers = workers
        self._probe = probe
        self._abandoned: list[asyncio.Future[None]] = []

    @property
    def has_hanging_thread(self) -> bool:
        """Whether a thread still waits for a disk."""
        return not all(task.done() for task in self._abandoned)

    async def open(self, *, node_id: int, cluster_id: str | None) -> None:
        """Locks the directories; raises what `LogManager.open` raises."""
        dirs = list(self._logs.dirs)
        await self._run(partial(LogDir.open, cluster_id=cluster_id, node_id=node_id))
        self._logs.check_online_dirs(self._current(dirs))

    async def load(
        self, config_of: Callable[[str], LogConfig], is_hosted: IsHosted
    ) -> list[StrayLog]:
        """Loads the logs, as `LogManager.load` does."""
        online_dirs = self._logs.online_dirs
        results = await self._run(lambda log_dir: log_dir.load(config_of, is_hosted))
        previously_online = self._current(online_dirs)
        await self._workers.run(
            self._workers.flush, partial(self._logs.finish_load, previously_online)
        )
        return [stray for strays in results for stray in strays]

    def _current(self, dirs: list[LogDir]) -> list[LogDir]:
        """Returns the objects that stand for these directories now."""
        paths = {log_dir.path for log_dir in dirs}
        return [log_dir for log_dir in self._logs.dirs if log_dir.path in paths]

    async def _run(self, work: Callable[[LogDir], T]) -> list[T]:
        """Runs `work` for each online directory; returns the results of those that respond."""
        tasks = {
            log_dir: asyncio.ensure_future(
                self._workers.run(self._workers.flush_pool(log_dir.path), partial(work, log_dir))
            )
            for log_dir in self._logs.online_dirs
        }
        watches = [
            asyncio.ensure_future(self._watch(log_dir, task)) for log_dir, task in tasks.items()
        ]
        try:
            await asyncio.gather(*watches)
        except asyncio.CancelledError:
            # The directories are closed next, which no thread may still be loading.
            await asyncio.wait(tasks.values(), timeout=STALL_S)
            for log_dir, task in tasks.items():
                if not task.done():
                    self._abandon(log_dir, task)
            raise
        return [task.result() for task in tasks.values() if task.done()]

    async def _watch(self, log_dir: LogDir, task: "asyncio.Future[T]") -> None:
        """Returns when the task is done, or its directory is abandoned."""
        progress, unchanged_s = -1, 0.0
        while not task.done():
            await asyncio.wait([task], timeout=_CHECK_S)
            previous, progress = progress, len(log_dir.logs) + len(log_dir.load_errors)
            unchanged_s = 0.0 if progress != previous else unchanged_s + _CHECK_S
            if unchanged_s < STALL_S:
                continue
            # A large log is recovered for longer, from a disk that responds.
            unchanged_s = 0.0
            if await self._probe.find_hanging([log_dir.path]) and not task.done():
                self._abandon(log_dir, task)
                return

    def _abandon(self, log_dir: LogDir, task: "asyncio.Future[T]") -> None:
        self._logs.abandon(log_dir, hanging_error(log_dir.path))
        self._abandoned.append(task)  # type: ignore[arg-type]
