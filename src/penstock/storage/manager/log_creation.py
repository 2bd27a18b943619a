"""Creation of many logs at a time, with the blocking I/O on a worker thread.

The directory of a log, its topic id and its first leader epoch must be durable before the first
record. `LogManager.begin_create` chooses the log directories, `LogCreation.run` creates the logs on
any thread, `LogManager.finish_create` adds them. If a log directory has no room for all of its new
logs, it gets none of them.
"""

import logging
from collections.abc import Mapping, Sequence
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


class LogCreation:
    """The creation of some logs, each in its log directory."""

    def __init__(
        self,
        disk: Disk,
        new_logs: Sequence[tuple[LogDir, NewLog]],
        existing_logs: Mapping[TopicPartition, Log],
        checkpoints: Mapping[LogDir, FileWrite],
    ) -> None:
        """`checkpoints` must be written before a log is created."""
        self.new_logs = new_logs
        self.existing_logs = existing_logs
        self.created_logs: dict[TopicPartition, Log] = {}
        self.errors: dict[LogDir, Exception] = {}
        self.first_failures: list[TopicPartition] = []
        """For each directory with an error the log that could not be created, if it was one."""
        self.checkpoints = checkpoints
        self._disk = disk

    def run(self) -> None:
        """Creates the logs, on any thread; errors are kept for `finish_create`."""
        for log_dir, checkpoint in self.checkpoints.items():
            checkpoint.run()
            if checkpoint.error is not None:
                self.errors[log_dir] = checkpoint.error
        for log_dir, new_log in self.new_logs:
            if log_dir not in self.errors:
                try:
                    self._create(log_dir, new_log)
                except Exception as error:  # noqa: BLE001 - it takes the log directory offline
                    self.errors[log_dir] = error
                    self.first_failures.append(new_log.partition)
        for log_dir in dict.fromkeys(log_dir for log_dir, _ in self.new_logs):
            if log_dir in self.errors:
                continue
            try:
                self._disk.sync_directory(log_dir.path)
            except OSError as error:
                self.errors[log_dir] = error
        for log_dir in self.errors:
            self._remove_created(log_dir)

    def _remove_created(self, log_dir: LogDir) -> None:
        """Removes what was created in a directory, so that the logs can be created later."""
        for other_dir, new_log in self.new_logs:
            if other_dir is log_dir:
                log = self.created_logs.pop(new_log.partition, None)
                if log is not None:
                    log.local.close_handlers()
                try:
                    self._disk.remove_directory(log_dir.directory_of(new_log.partition))
                except OSError as error:
                    logger.warning("the log of %s is not removed: %s", new_log.partition, error)

    def _create(self, log_dir: LogDir, new_log: NewLog) -> None:
        log = log_dir.create_unsynced(new_log.partition, new_log.config, new_log.topic_id)
        self.created_logs[new_log.partition] = log
        if new_log.leader_epoch is not None:
            log.epochs.assign(new_log.leader_epoch, log.log_end_offset)
