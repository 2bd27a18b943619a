"""Creation of many logs at a time, with the blocking I/O on a worker thread.

The directory of a log, its topic id and its first leader epoch must be durable before the first
record. `LogManager.begin_create` chooses the log directories, `LogCreation.run` creates the logs on
any thread, `LogManager.finish_create` adds them.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.core.ids import TopicId, TopicPartition
from penstock.storage.disk import Disk
from penstock.storage.log.log import Log
from penstock.storage.log_config import LogConfig
from penstock.storage.manager.log_dir import LogDir


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
    ) -> None:
        self.new_logs = new_logs
        self.existing_logs = existing_logs
        self.created_logs: dict[TopicPartition, Log] = {}
        self.errors: dict[LogDir, Exception] = {}
        self._disk = disk

    def run(self) -> None:
        """Creates the logs, on any thread; errors are kept for `finish_create`."""
        for log_dir, new_log in self.new_logs:
            if log_dir not in self.errors:
                try:
                    self._create(log_dir, new_log)
                except Exception as error:  # noqa: BLE001 - it takes the log directory offline
                    self.errors[log_dir] = error
        for log_dir in {log_dir for log_dir, _ in self.new_logs} - self.errors.keys():
            try:
                self._disk.sync_directory(log_dir.path)
            except OSError as error:
                self.errors[log_dir] = error

    def _create(self, log_dir: LogDir, new_log: NewLog) -> None:
        log = log_dir.create_unsynced(new_log.partition, new_log.config, new_log.topic_id)
        self.created_logs[new_log.partition] = log
        if new_log.leader_epoch is not None:
            log.epochs.assign(new_log.leader_epoch, log.log_end_offset)
