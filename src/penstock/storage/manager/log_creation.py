"""New logs, many at a time, without the log's thread waiting for the disk.

Each log needs a directory, its topic id and its first leader epoch, all durable before the first
record. `LogManager.begin_create` decides where the logs go, `LogCreation.run` makes them on any
thread, `LogManager.finish_create` takes them over.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.core.ids import TopicId, TopicPartition
from penstock.storage.disk import Disk
from penstock.storage.log.log import Log
from penstock.storage.log_config import LogConfig
from penstock.storage.manager.log_dir import LogDir


class NewLog(NamedTuple):
    """A log to be made."""

    partition: TopicPartition
    config: LogConfig
    topic_id: TopicId | None = None
    leader_epoch: int | None = None
    """The epoch of its first records, where this broker leads the partition."""


class LogCreation:
    """Logs that are being made, each in its directory of `log.dirs`."""

    def __init__(
        self,
        disk: Disk,
        planned: Sequence[tuple[LogDir, NewLog]],
        existing: Mapping[TopicPartition, Log],
    ) -> None:
        self.planned = planned
        self.existing = existing
        self.made: dict[TopicPartition, Log] = {}
        self.errors: dict[LogDir, OSError] = {}
        self._disk = disk

    def run(self) -> None:
        """Makes the logs; what goes wrong is found by `finish_create`."""
        for log_dir, new in self.planned:
            if log_dir not in self.errors:
                try:
                    self._make(log_dir, new)
                except OSError as error:
                    self.errors[log_dir] = error
        for log_dir in {log_dir for log_dir, _ in self.planned} - self.errors.keys():
            try:
                self._disk.sync_directory(log_dir.path)
            except OSError as error:
                self.errors[log_dir] = error

    def _make(self, log_dir: LogDir, new: NewLog) -> None:
        log = log_dir.make_log(new.partition, new.config, new.topic_id)
        self.made[new.partition] = log
        if new.leader_epoch is not None:
            log.epochs.assign(new.leader_epoch, log.log_end_offset)
