"""The offset checkpoints of one log directory: start offsets, recovery points, high watermarks."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple

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


class StoredOffsets(NamedTuple):
    """The checkpointed offsets of the partitions in a log directory."""

    recovery_points: Mapping[TopicPartition, int]
    high_watermarks: Mapping[TopicPartition, int]
    log_start_offsets: Mapping[TopicPartition, int]

    def are_outdated(
        self,
        logs: Mapping[TopicPartition, Log],
        unloadable_partitions: Collection[TopicPartition],
    ) -> bool:
        """Returns whether the checkpoints must be rewritten before they are read again.

        A partition that no longer exists may be created again, with other records at the same
        offsets. The same is true for the offsets between the end of a log and its recovery point,
        if records were lost.
        """
        existing = {*logs, *unloadable_partitions}
        if any(offsets.keys() - existing for offsets in self):
            return True
        return any(
            log.recovery_point < self.recovery_points.get(partition, 0)
            for partition, log in logs.items()
        )


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

    def load_offsets(self) -> StoredOffsets:
        return StoredOffsets(
            self.load(RECOVERY_POINT_CHECKPOINT),
            self.load(REPLICATION_OFFSET_CHECKPOINT),
            self.load(LOG_START_OFFSET_CHECKPOINT),
        )

    def keep(self, stored: StoredOffsets, partitions: Collection[TopicPartition]) -> None:
        """Keeps the stored offsets of partitions that could not be loaded."""
        for name, offsets in zip(
            (RECOVERY_POINT_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT),
            stored,
            strict=True,
        ):
            self._unloadable_offsets[name] = {
                partition: offsets[partition] for partition in partitions if partition in offsets
            }

    def forget(self, partition: TopicPartition) -> None:
        """Drops the offsets of a partition that could not be loaded, when it is deleted."""
        for offsets in self._unloadable_offsets.values():
            offsets.pop(partition, None)

    def begin_write(self, *log_maps: Mapping[TopicPartition, Log]) -> FileWrite:
        """Returns the write of the checkpoints for these logs, for any thread.

        The thread reads the offsets and encodes them: that takes longer than the event loop has
        for 100,000 logs. Each offset that it reads is valid, however late.
        """
        logs = [entry for log_map in log_maps for entry in log_map.items()]
        unloadable = {name: dict(offsets) for name, offsets in self._unloadable_offsets.items()}
        return self._files.begin_write(
            {
                self._path(name): partial(_encode, unloadable.get(name, {}), logs, select)
                for name, select in _SELECTORS.items()
            }
        )

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"


def _log_start_offset(log: Log) -> int | None:
    # Stored even if the first segment starts there: earlier segments that were deleted may
    # reappear until the directory is synced.
    return log.log_start_offset if log.log_start_offset > 0 else None


_SELECTORS: Mapping[str, Callable[[Log], int | None]] = {
    RECOVERY_POINT_CHECKPOINT: lambda log: log.local.recovery_point,
    REPLICATION_OFFSET_CHECKPOINT: lambda log: log.high_watermark,
    LOG_START_OFFSET_CHECKPOINT: _log_start_offset,
}


def _encode(
    unloadable: Mapping[TopicPartition, int],
    logs: Sequence[tuple[TopicPartition, Log]],
    select: Callable[[Log], int | None],
) -> bytes:
    offsets = dict(unloadable)
    for partition, log in logs:
        offset = select(log)
        if offset is None:
            offsets.pop(partition, None)
        else:
            offsets[partition] = offset
    return encode_offsets(offsets)
