"""The offset checkpoints of one log directory: start offsets, recovery points, high watermarks."""

import logging
from collections.abc import Mapping

from penstock.core.ids import TopicPartition
from penstock.storage.checkpoint.checkpoint_files import (
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    CorruptCheckpointError,
    encode_offsets,
    load_offsets,
)
from penstock.storage.checkpoint.latest_files import FileWrite, LatestFiles
from penstock.storage.disk import Disk
from penstock.storage.log.log import Log

logger = logging.getLogger(__name__)


class DirCheckpoints:
    """Loads and writes the three checkpoints of a log directory."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._files = LatestFiles(disk)
        self._unloadable_offsets: dict[str, dict[TopicPartition, int]] = {}
        """The offsets of partitions that could not be loaded, by file, until they are repaired."""

    def load(self, name: str) -> dict[TopicPartition, int]:
        """Returns the content of one checkpoint; nothing if it is invalid."""
        try:
            return load_offsets(self._disk, self._path(name))
        except CorruptCheckpointError as error:
            # Offset 0 is always safe: recovery reads more, and consumers see less, than necessary.
            logger.error("%s; continuing with offset 0", error.message)
            return {}

    def keep(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Keeps the offsets of partitions that could not be loaded in a checkpoint."""
        self._unloadable_offsets[name] = dict(offsets)

    def forget(self, partition: TopicPartition) -> None:
        """Drops the offsets of a partition that could not be loaded, when it is deleted."""
        for offsets in self._unloadable_offsets.values():
            offsets.pop(partition, None)

    def begin_write(self, logs: Mapping[TopicPartition, Log]) -> FileWrite:
        """Returns the write of the checkpoints for these logs, for any thread."""
        offsets_by_file: dict[str, dict[TopicPartition, int]] = {
            RECOVERY_POINT_CHECKPOINT: {
                partition: log.recovery_point for partition, log in logs.items()
            },
            REPLICATION_OFFSET_CHECKPOINT: {
                partition: log.high_watermark for partition, log in logs.items()
            },
            # Stored even if the first segment starts there: earlier segments that were deleted may
            # reappear until the directory is synced.
            LOG_START_OFFSET_CHECKPOINT: {
                partition: log.log_start_offset
                for partition, log in logs.items()
                if log.log_start_offset > 0
            },
        }
        return self._files.begin_write(
            {
                self._path(name): encode_offsets(
                    {**self._unloadable_offsets.get(name, {}), **offsets}
                )
                for name, offsets in offsets_by_file.items()
            }
        )

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"
