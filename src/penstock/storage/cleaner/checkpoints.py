"""How far each log has been cleaned: the `cleaner-offset-checkpoint` of each log directory."""

import logging

from penstock.core.ids import TopicPartition
from penstock.storage.checkpoint.checkpoint_files import (
    CLEANER_OFFSET_CHECKPOINT,
    CorruptCheckpointError,
    encode_offsets,
    load_offsets,
)
from penstock.storage.checkpoint.latest_files import FileWrite, LatestFiles
from penstock.storage.disk import Disk
from penstock.storage.log.log import Log
from penstock.storage.manager.log_dir import LogDir

_log = logging.getLogger(__name__)


class CleanerCheckpoints:
    """The checkpoints of all directories, read once. `begin_store` writes what has changed.

    An offset belongs to a log, not to a name: one of a topic that was deleted says nothing about
    another topic of that name.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._offsets: dict[str, dict[TopicPartition, tuple[Log, int]]] = {}
        self._files: dict[str, LatestFiles] = {}
        self._stale: set[str] = set()

    def get(self, log_dir: LogDir, log: Log) -> int | None:
        """The first offset of a log that was not cleaned; None where it never was."""
        known, offset = self._of(log_dir).get(log.partition, (None, 0))
        return offset if known is log else None

    def set(self, log_dir: LogDir, log: Log, offset: int) -> None:
        """Notes how far a log is cleaned."""
        self._of(log_dir)[log.partition] = (log, offset)
        self._stale.add(log_dir.path)

    def lower(self, log_dir: LogDir, log: Log, offset: int) -> None:
        """Notes that a log was truncated: what comes after `offset` from now on is dirty."""
        known = self.get(log_dir, log)
        if known is not None and known > offset:
            self.set(log_dir, log, offset)

    def forget(self, log_dir: LogDir, log: Log) -> None:
        """Drops what is known of a log that is deleted."""
        if self._of(log_dir).pop(log.partition, None) is not None:
            self._stale.add(log_dir.path)

    def begin_store(self, log_dir: LogDir) -> FileWrite | None:
        """Returns the write of a directory's file, for any thread; None if it is up to date."""
        files = self._files.setdefault(log_dir.path, LatestFiles(self._disk))
        if log_dir.path not in self._stale and files.is_durable:
            return None
        self._stale.discard(log_dir.path)
        offsets = {
            partition: offset
            for partition, (log, offset) in self._of(log_dir).items()
            if log_dir.logs.get(partition) is log
        }
        return files.take({_path(log_dir): encode_offsets(offsets)})

    def _of(self, log_dir: LogDir) -> dict[TopicPartition, tuple[Log, int]]:
        offsets = self._offsets.get(log_dir.path)
        if offsets is None:
            offsets = self._offsets[log_dir.path] = self._load(log_dir)
        return offsets

    def _load(self, log_dir: LogDir) -> dict[TopicPartition, tuple[Log, int]]:
        try:
            loaded = load_offsets(self._disk, _path(log_dir))
        except CorruptCheckpointError as error:
            _log.warning("%s; all compacted logs there are cleaned anew", error.message)
            loaded = {}
        logs = log_dir.logs
        return {tp: (logs[tp], offset) for tp, offset in loaded.items() if tp in logs}


def _path(log_dir: LogDir) -> str:
    return f"{log_dir.path}/{CLEANER_OFFSET_CHECKPOINT}"
