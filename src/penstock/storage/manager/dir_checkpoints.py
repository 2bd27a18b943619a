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

_log = logging.getLogger(__name__)


class DirCheckpoints:
    """Recovery points, high watermarks and log start offsets."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._files = LatestFiles(disk)
        self._of_broken: dict[str, dict[TopicPartition, int]] = {}
        """What they say of broken partitions, kept for when those are mended."""

    def load(self, name: str) -> dict[TopicPartition, int]:
        """What one of the files says."""
        try:
            return load_offsets(self._disk, self._path(name))
        except CorruptCheckpointError as error:
            # Offset 0 is always safe: more is recovered, and less shown, than would be needed.
            _log.error("%s; going on from offset 0", error.message)
            return {}

    def keep(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Has a file go on saying this of partitions that are broken."""
        self._of_broken[name] = dict(offsets)

    def forget(self, partition: TopicPartition) -> None:
        """A broken partition is deleted."""
        for offsets in self._of_broken.values():
            offsets.pop(partition, None)

    def take(self, logs: Mapping[TopicPartition, Log]) -> FileWrite:
        """The files as they should be for these logs, to be written on any thread."""
        offsets: dict[str, dict[TopicPartition, int]] = {
            RECOVERY_POINT_CHECKPOINT: {
                partition: log.recovery_point for partition, log in logs.items()
            },
            REPLICATION_OFFSET_CHECKPOINT: {
                partition: log.high_watermark for partition, log in logs.items()
            },
            # Also where the first segment starts there: segments that were deleted before it are
            # not gone for sure until their directory is synced.
            LOG_START_OFFSET_CHECKPOINT: {
                partition: log.log_start_offset
                for partition, log in logs.items()
                if log.log_start_offset > 0
            },
        }
        return self._files.take(
            {
                self._path(name): encode_offsets({**self._of_broken.get(name, {}), **of_logs})
                for name, of_logs in offsets.items()
            }
        )

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"
