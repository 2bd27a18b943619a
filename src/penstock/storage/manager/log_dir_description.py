"""The content and the space of log directories, for DescribeLogDirs."""

from collections.abc import Iterator
from typing import NamedTuple

from penstock.core.errors import KafkaStorageError
from penstock.core.ids import TopicPartition
from penstock.storage.disk import Disk, DiskSpace
from penstock.storage.log.log import Log
from penstock.storage.manager.log_dir import LogDir
from penstock.storage.manager.log_move import LogMove
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
    partitions: Iterator[PartitionSize]
    """Measured one after the other as the caller iterates: there may be very many."""


def describe_log_dir(disk: Disk, log_dir: LogDir, moves: LogMoves) -> LogDirDescription:
    """Returns the content of a log directory; an I/O error takes it offline."""
    space = None
    if log_dir.is_online:
        try:
            space = disk.space(log_dir.path)
        except OSError as error:
            log_dir.fail(error)
    if log_dir.error is not None:
        return LogDirDescription(log_dir.path, log_dir.error, None, iter(()))
    sizes = _partition_sizes(list(log_dir.logs.values()), moves.moves_into(log_dir))
    return LogDirDescription(log_dir.path, None, space, sizes)


def _partition_sizes(logs: list[Log], moves: list[LogMove]) -> Iterator[PartitionSize]:
    for log in logs:
        lag = max(log.high_watermark - log.log_end_offset, 0)
        yield PartitionSize(log.partition, log.size, lag, False)
    for move in moves:
        yield PartitionSize(move.partition, move.size, move.lag, True)
