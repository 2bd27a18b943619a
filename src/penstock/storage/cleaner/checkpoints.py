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

logger = logging.getLogger(__name__)


class CleanerCheckpoints:
    """The checkpoints of all log directories, read once. `begin_write` writes the changes.

    An offset belongs to a log, not to a partition name: the offset of a deleted topic does not
    apply to another topic of the same name.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._offsets: dict[str, dict[TopicPartition, tuple[Log, int]]] = {}
        self._files: dict[str, LatestFiles] = {}
        self._stale_dirs: set[str] = set()

    def get(self, log_dir: LogDir, log: Log) -> int | None:
        """Returns the first offset of a log that was not cleaned; None if it never was cleaned."""
        cleaned_log, offset = self._offsets_of(log_dir).get(log.partition, (None, 0))
        return offset if cleaned_log is log else None

    def set(self, log_dir: LogDir, log: Log, offset: int) -> None:
        """Sets the first offset of a log that was not cleaned."""
        self._offsets_of(log_dir)[log.partition] = (log, offset)
        self._stale_dirs.add(log_dir.path)

    def lower(self, log_dir: LogDir, log: Log, offset: int) -> None:
        """Lowers the offset after a truncation: records appended from `offset` on are dirty."""
        current = self.get(log_dir, log)
        if current is not None and current > offset:
            self.set(log_dir, log, offset)

    def forget(self, log_dir: LogDir, log: Log) -> None:
        """Removes the offset of a log that is deleted."""
        if self._offsets_of(log_dir).pop(log.partition, None) is not None:
            self._stale_dirs.add(log_dir.path)

    def begin_write(self, log_dir: LogDir) -> FileWrite | None:
        """Returns the write of a directory's file, for any thread; None if it is up to date."""
        files = self._files.setdefault(log_dir.path, LatestFiles(self._disk))
        if log_dir.path not in self._stale_dirs and files.is_durable:
            return None
        self._stale_dirs.discard(log_dir.path)
        offsets = {
            partition: offset
            for partition, (log, offset) in self._offsets_of(log_dir).items()
            if log_dir.logs.get(partition) is log
        }
        return files.begin_write({_path(log_dir): encode_offsets(offsets)})

    def _offsets_of(self, log_dir: LogDir) -> dict[TopicPartition, tuple[Log, int]]:
        offsets = self._offsets.get(log_dir.path)
        if offsets is None:
            offsets = self._offsets[log_dir.path] = self._load(log_dir)
        return offsets

    def _load(self, log_dir: LogDir) -> dict[TopicPartition, tuple[Log, int]]:
        try:
            loaded = load_offsets(self._disk, _path(log_dir))
        except (CorruptCheckpointError, OSError) as error:
            # Callers such as the deletion of a log must not fail for that.
            logger.warning(
                "%s cannot be read (%s); all compacted logs of the log directory will be cleaned "
                "again",
                _path(log_dir),
                error.strerror if isinstance(error, OSError) else error.message,
            )
            loaded = {}
        logs = log_dir.logs
        return {tp: (logs[tp], offset) for tp, offset in loaded.items() if tp in logs}


def _path(log_dir: LogDir) -> str:
    return f"{log_dir.path}/{CLEANER_OFFSET_CHECKPOINT}"
