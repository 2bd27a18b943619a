"""Creation and deletion of logs on the threads of their log directories, within a limited time.

The controller's updates wait for both. A disk that does not respond must not delay them for long:
a creation that makes no progress is given up, and the logs are created in another directory; a
deletion continues, and its partitions get an error. The directory gets no new logs until all of
its operations have ended.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable
from functools import partial
from typing import NamedTuple

from penstock.broker.workers import Workers
from penstock.core.errors import KafkaError, KafkaStorageError
from penstock.core.ids import TopicPartition
from penstock.storage.manager.log_creation import (
    DirCreation,
    LogCreation,
    LogCreationError,
    NewLog,
)
from penstock.storage.manager.log_dir import LogDir
from penstock.storage.manager.log_manager import LogManager

logger = logging.getLogger(__name__)

CREATION_STALL_S = 10.0
"""How long a directory may take for the next log of a creation."""
DELETION_S = 30.0
"""How long a deletion is waited for."""
_HANGING_DELETION_S = 1.0
"""The same, in a directory that hangs already."""
_CHECK_S = 0.5
_SYNC_THREADS = 3
"""Threads of a directory that sync the files of new logs; flushes of records have another one."""


class Deletion(NamedTuple):
    """The deletion of logs of one log directory."""

    log_dir: LogDir
    partitions: list[TopicPartition]
    task: "asyncio.Task[list[KafkaError]]"


class LogLifecycle:
    """Creates and deletes logs for the `ReplicaManager`. It belongs to the event loop."""

    def __init__(self, logs: LogManager, workers: Workers) -> None:
        self._logs = logs
        self._workers = workers
        self._deletions: list[Deletion] = []
        self._removals: set[asyncio.Task[None]] = set()

    # --- creation

    async def create(
        self, new_logs: list[NewLog], *, is_new: bool = True
    ) -> tuple[list[TopicPartition], LogCreationError | None]:
        """Returns the partitions whose logs were created, and the error of the others.

        Logs that are not those of new replicas are only created if no directory that could not be
        opened may contain them (see `LogManager.get_or_create`).
        """
        partitions = frozenset(new_log.partition for new_log in new_logs)
        # A partition of the same name may still be deleted.
        await self.failed_deletions(
            [item for item in self._deletions if not partitions.isdisjoint(item.partitions)]
        )
        created_logs: list[TopicPartition] = []
        full_dirs: set[LogDir] = set()
        failure: KafkaError | None = None
        failed_topics: frozenset[str] = frozenset()
        while new_logs:
            try:
                creation = self._logs.begin_create(new_logs, is_new=is_new, excluded_dirs=full_dirs)
            except KafkaError as error:
                failure = failure or error
                topics = frozenset(new_log.partition.topic for new_log in new_logs)
                return created_logs, LogCreationError(failed_topics & topics or topics, failure)
            await asyncio.gather(*(self._create(item) for item in creation.dirs))
            results = self._logs.finish_create(creation)
            created_logs += _created_logs(creation)
            # If a directory is full or went offline, they are created in another one.
            full_dirs |= {item.log_dir for item in creation.dirs if item.error or item.hang}
            failed_topics = frozenset(
                item.first_failure.topic for item in creation.dirs if item.first_failure is not None
            )
            for result in results.values():
                if isinstance(result, KafkaStorageError):
                    failure = result
            new_logs = [
                new_log
                for new_log in new_logs
                if isinstance(results.get(new_log.partition), KafkaStorageError)
            ]
        return created_logs, None

    async def _create(self, creation: DirCreation) -> None:
        """Runs a creation until it has ended, or has made no progress for too long."""
        running = asyncio.ensure_future(self._run_steps(creation))
        progress, unchanged_s = 0, 0.0
        while not running.done() and unchanged_s < CREATION_STALL_S:
            await asyncio.wait([running], timeout=_CHECK_S)
            previous, progress = progress, creation.progress
            unchanged_s = 0.0 if progress > previous else unchanged_s + _CHECK_S
        if running.done():
            running.result()
            return
        creation.abandon()
        logger.error(
            "no log was created in %s for %g s: the disk may hang. It gets no new logs until it "
            "responds",
            creation.log_dir.path,
            CREATION_STALL_S,
        )
        removal = asyncio.create_task(self._remove_abandoned(creation, running))
        self._removals.add(removal)
        removal.add_done_callback(self._removals.discard)

    async def _run_steps(self, creation: DirCreation) -> None:
        pool = self._workers.flush_pool(creation.log_dir.path)
        await self._workers.run(pool, creation.write)
        await asyncio.gather(
            *(self._workers.run(pool, sync) for sync in creation.syncs(_SYNC_THREADS))
        )
        await self._workers.run(pool, creation.complete)

    async def _remove_abandoned(
        self, creation: DirCreation, running: "asyncio.Future[None]"
    ) -> None:
        """Removes what was created after all, before the directory is used again."""
        await asyncio.wait([running])
        path = creation.log_dir.path
        await self._workers.run(self._workers.flush_pool(path), creation.remove_created)
        creation.finish_abandoned()
        logger.warning("%s responds again", path)

    # --- deletion

    def begin_deletion(self, partitions: Iterable[TopicPartition]) -> list[Deletion]:
        """Starts to delete logs, which are no longer available then."""
        deletions: list[Deletion] = []
        for log_dir, group, operation in self._logs.begin_deletions(partitions):
            task = self._workers.start(self._workers.flush_pool(log_dir.path), operation)
            deletion = Deletion(log_dir, group, task)
            deletions.append(deletion)
            task.add_done_callback(partial(self._on_deleted, deletion))
        self._deletions += deletions
        return deletions

    def _on_deleted(self, deletion: Deletion, task: "asyncio.Task[list[KafkaError]]") -> None:
        self._deletions.remove(deletion)
        for error in task.result():
            logger.error("a log could not be deleted: %s", error.message)

    async def failed_deletions(self, deletions: Collection[Deletion]) -> list[TopicPartition]:
        """Waits for deletions; returns the partitions of those that failed or do not end."""
        for is_hanging, limit_s in ((False, DELETION_S), (True, _HANGING_DELETION_S)):
            tasks = [item.task for item in deletions if item.log_dir.is_hanging == is_hanging]
            if tasks:
                await asyncio.wait(tasks, timeout=limit_s)
        failed: list[TopicPartition] = []
        for deletion in deletions:
            if not deletion.task.done():
                self._give_up(deletion)
                failed += deletion.partitions
            elif deletion.task.result():
                failed += deletion.partitions
        return failed

    def _give_up(self, deletion: Deletion) -> None:
        """Marks the directory of a deletion that does not end, until it has ended."""
        log_dir = deletion.log_dir
        if not log_dir.is_hanging:
            logger.error(
                "a deletion of logs in %s has not ended within %g s: the disk may hang. It gets no "
                "new logs until it responds",
                log_dir.path,
                DELETION_S,
            )
        log_dir.hanging_operations += 1

        def on_deleted(_: object) -> None:
            log_dir.hanging_operations -= 1

        deletion.task.add_done_callback(on_deleted)

    async def wait_for_deletions(self, topics: Collection[str]) -> None:
        """Waits until the deletions of topics that have begun are durable, or hang."""
        await self.failed_deletions(
            [
                item
                for item in self._deletions
                if any(partition.topic in topics for partition in item.partitions)
            ]
        )


def _created_logs(creation: LogCreation) -> list[TopicPartition]:
    return [
        partition
        for item in creation.dirs
        if item.hang is None
        for partition, log in item.created_logs.items()
        if item.log_dir.logs.get(partition) is log
    ]
