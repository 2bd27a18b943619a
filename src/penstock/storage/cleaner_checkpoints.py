"""How far each log has been cleaned: `cleaner-offset-checkpoint`, one per folder of `log.dirs`."""

import logging

from penstock.core.ids import TopicPartition
from penstock.storage.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    CorruptCheckpointError,
    load_offsets,
    store_offsets,
)
from penstock.storage.log import Log
from penstock.storage.log_dir import LogDir

_log = logging.getLogger(__name__)


class CleanerCheckpoints:
    """The checkpoints of all folders, read once and written through.

    An offset belongs to a log, not to a name: one of a topic that was deleted says nothing about
    another topic of that name.
    """

    def __init__(self) -> None:
        self._offsets: dict[str, dict[TopicPartition, tuple[Log, int]]] = {}

    def get(self, log_dir: LogDir, log: Log) -> int | None:
        """The first offset of a log that was not cleaned; None where it never was."""
        known, offset = self._of(log_dir, log).get(log.partition, (None, 0))
        return offset if known is log else None

    def set(self, log_dir: LogDir, log: Log, offset: int) -> None:
        """Notes how far a log is cleaned."""
        self._of(log_dir, log)[log.partition] = (log, offset)
        self._store(log_dir, log)

    def lower(self, log_dir: LogDir, log: Log, offset: int) -> None:
        """Notes that a log was truncated: what comes after `offset` from now on is dirty."""
        known = self.get(log_dir, log)
        if known is not None and known > offset:
            self.set(log_dir, log, offset)

    def forget(self, log_dir: LogDir, log: Log) -> None:
        """Drops what is known of a log that is deleted."""
        if self._of(log_dir, log).pop(log.partition, None) is not None:
            self._store(log_dir, log)

    def _of(self, log_dir: LogDir, log: Log) -> dict[TopicPartition, tuple[Log, int]]:
        offsets = self._offsets.get(log_dir.path)
        if offsets is None:
            offsets = self._offsets[log_dir.path] = self._load(log_dir, log)
        return offsets

    def _load(self, log_dir: LogDir, log: Log) -> dict[TopicPartition, tuple[Log, int]]:
        try:
            loaded = load_offsets(log.local.disk, _path(log_dir))
        except CorruptCheckpointError as error:
            _log.warning("%s; all compacted logs there are cleaned anew", error.message)
            loaded = {}
        logs = log_dir.logs
        return {tp: (logs[tp], offset) for tp, offset in loaded.items() if tp in logs}

    def _store(self, log_dir: LogDir, log: Log) -> None:
        offsets = {
            partition: offset
            for partition, (known, offset) in self._of(log_dir, log).items()
            if log_dir.logs.get(partition) is known
        }
        try:
            store_offsets(log.local.disk, _path(log_dir), offsets)
        except OSError as error:
            log_dir.fail(error)


def _path(log_dir: LogDir) -> str:
    return f"{log_dir.path}/{CLEANER_OFFSET_CHECKPOINT}"
