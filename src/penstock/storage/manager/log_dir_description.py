"""The content and the space of log directories, for DescribeLogDirs."""

from typing import NamedTuple

from penstock.core.errors import KafkaStorageError
from penstock.core.ids import TopicPartition
from penstock.storage.disk import Disk, DiskSpace
from penstock.storage.manager.log_dir import LogDir
from penstock.storage.manager.log_moves import LogMoves


class PartitionSize(NamedTuple):
    """The size of a log."""

    partition: TopicPartition
    size: int
    offset_lag: int
    """How far a log is behind its high watermark, or a future log behind the current one."""
    is_future: bool


class LogDirDescription(NamedTuple):
    """A log directory."""

    path: str
    error: KafkaStorageError | None
    space: DiskSpace | None
    """None if the directory is offline."""
    partitions: list[PartitionSize]


def describe_log_dir(disk: Disk, log_dir: LogDir, moves: LogMoves) -> LogDirDescription:
    """Returns the content of a log directory; an I/O error takes it offline."""
    space = None
    if log_dir.is_online:
        try:
            space = disk.space(log_dir.path)
        except OSError as error:
            log_dir.fail(error)
    if log_dir.error is not None:
        return LogDirDescription(log_dir.path, log_dir.error, None, [])
    partitions = [
        PartitionSize(
            log.partition, log.size, max(log.high_watermark - log.log_end_offset, 0), False
        )
        for log in log_dir.logs.values()
    ]
    partitions += (
        PartitionSize(move.partition, move.size, move.lag, True)
        for move in moves.moves_into(log_dir)
    )
    return LogDirDescription(log_dir.path, None, space, partitions)
