"""Creation of many logs at a time, with the blocking I/O on worker threads.

The directory of a log, its topic id and its first leader epoch must be durable before the first
record. `LogManager.begin_create` chooses the log directories, `DirCreation` creates the logs of one
of them on worker threads, `LogManager.finish_create` adds them. The files of all logs are written
before the first of them is synced: a file system with a journal commits everything that was written
with one sync, and the others are then cheap. If a log directory has no room for all of its new
logs, it gets none of them.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from penstock.core.errors import KafkaError, KafkaStorageError
from penstock.core.ids import TopicId, TopicPartition
from penstock.storage.checkpoint.latest_files import FileWrite
from penstock.storage.disk import Disk
from penstock.storage.log.log import Log
from penstock.storage.log_config import LogConfig
from penstock.storage.manager.log_dir import LogDir

logger = logging.getLogger(__name__)


class LogCreationError(KafkaStorageError):
    """The logs of some new partitions could not be created, so that none of them was.

    `topics` has those for which there was no room; there may be room for the others.
    """

    def __init__(self, topics: frozenset[str], failure: KafkaError) -> None:
        super().__init__(
            f"the logs of {', '.join(sorted(topics))} could not be created: {failure.cause}",
            remedy=failure.remedy,
        )
        self.topics = topics


class NewLog(NamedTuple):
    """A log to create."""

    partition: TopicPartition
    config: LogConfig
    topic_id: TopicId | None = None
    leader_epoch: int | None = None
    """The epoch of its first records, if this broker leads the partition."""


class DirCreation:
    """The creation of some logs in one log directory."""

    def __init__(
        self,
        disk: Disk,
        log_dir: LogDir,
        new_logs: Sequence[NewLog],
        checkpoint: FileWrite | None = None,
    ) -> None:
        """`checkpoint` must be written before a log is created."""
        self.log_dir = log_dir
        self.new_logs = new_logs
        self.created_logs: dict[TopicPartition, Log] = {}
        self.error: Exception | None = None
        self.first_failure: TopicPartition | None = None
        """The log that could not be created, if there is an error, and it is one of a log."""
        self.hang: KafkaStorageError | None = None
        """Why the creation was given up, although a thread may still run it."""
        self.checkpoint = checkpoint
        self.progress = 0
        """Rises with each step of a log."""
        self._disk = disk

    def run(self) -> None:
        """Creates the logs on this thread; an error is kept for `finish_create`."""
        self.write()
        for sync in self.syncs(1):
            sync()
        self.complete()

    def write(self) -> None:
        """Writes the files of all logs, on any thread; the first step."""
        if self.hang is not None:
            return  # no thread was free until now
        if self.checkpoint is not None:
            self.checkpoint.run()
            self.error = self.checkpoint.error
        self._for_each(self._write, self.new_logs)

    def syncs(self, count: int) -> list[Callable[[], None]]:
        """Returns `count` tasks that make the logs durable, the second step.

        They may run at the same time, so that the file system commits several syncs together.
        """
        return [partial(self._sync_all, self.new_logs[start::count]) for start in range(count)]

    def complete(self) -> None:
        """Makes the names of the logs durable, or removes them after an error: the last step."""
        if self.error is None and self.hang is None:
            try:
                self._disk.sync_directory(self.log_dir.path)
            except Exception as error:  # noqa: BLE001 - it takes the log directory offline
                self.error = error
        if self.error is not None:
            self.remove_created()

    def _sync_all(self, new_logs: Sequence[NewLog]) -> None:
        # In two passes: the second one needs no other commit of the file system than the first
        # of its syncs.
        self._for_each(self._replace_files, new_logs)
        self._for_each(self._sync_directory, new_logs)

    def _for_each(self, step: Callable[[NewLog], None], new_logs: Sequence[NewLog]) -> None:
        """Stops at the first error, also of another thread, or when the creation is given up."""
        for new_log in new_logs:
            if self.hang is not None or self.error is not None:
                return
            try:
                step(new_log)
            except Exception as error:  # noqa: BLE001 - it takes the log directory offline
                self.error = error
                self.first_failure = new_log.partition
            self.progress += 1

    def _write(self, new_log: NewLog) -> None:
        log = self.log_dir.create_unsynced(new_log.partition, new_log.config, new_log.topic_id)
        self.created_logs[new_log.partition] = log
        if new_log.leader_epoch is not None:
            log.epochs.create_unsynced(new_log.leader_epoch)

    def _replace_files(self, new_log: NewLog) -> None:
        self.log_dir.replace_created_files(self.created_logs[new_log.partition])

    def _sync_directory(self, new_log: NewLog) -> None:
        self._disk.sync_directory(self.created_logs[new_log.partition].directory)

    def remove_created(self) -> None:
        """Removes what was created, on any thread, so that the logs can be created later."""
        for new_log in self.new_logs:
            log = self.created_logs.pop(new_log.partition, None)
            if log is not None:
                log.local.close_handlers()
            try:
                self._disk.remove_directory(self.log_dir.directory_of(new_log.partition))
            except OSError as error:
                logger.warning("the log of %s is not removed: %s", new_log.partition, error)

    def finish(self) -> KafkaStorageError | None:
        """Returns why the logs cannot be used; closes them then. For `LogManager.finish_create`.

        An I/O error takes the log directory offline.
        """
        if self.hang is not None:
            return self.hang
        if self.checkpoint is not None:
            self.log_dir.finish_checkpoint(self.checkpoint)
        if self.error is not None:
            return self.log_dir.failure_of(self.error)
        if self.log_dir.error is not None:
            for log in self.created_logs.values():
                log.local.close_handlers()
        return self.log_dir.error

    def abandon(self) -> None:
        """Gives up a creation that a thread still runs: `finish` returns an error for it.

        Call `remove_created` and then `finish_abandoned` when the thread has ended; no log is
        created in the directory until then.
        """
        self.log_dir.hanging_operations += 1
        self.hang = self.log_dir.hang_error()

    def finish_abandoned(self) -> None:
        """Lets the directory be used again."""
        self.log_dir.hanging_operations -= 1
        if self.error is not None:
            self.log_dir.fail(self.error)
        if self.checkpoint is not None:
            self.log_dir.finish_checkpoint(self.checkpoint)


class LogCreation:
    """The creation of some logs, each in its log directory."""

    def __init__(
        self,
        new_logs: Sequence[NewLog],
        dirs: Sequence[DirCreation],
        existing_logs: Mapping[TopicPartition, Log],
    ) -> None:
        self.new_logs = new_logs
        """All of them, also those that exist."""
        self.dirs = dirs
        """The directories may be run at the same time."""
        self.existing_logs = existing_logs

    def run(self) -> None:
        """Creates the logs of all directories, on this thread."""
        for creation in self.dirs:
            creation.run()
