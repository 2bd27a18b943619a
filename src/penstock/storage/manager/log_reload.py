"""Reloading of logs that have stopped for lack of room, when there is room again.

A sync that failed for lack of space may have lost records: the kernel could not write them, but
counts them as written, so that another sync would succeed. A reload therefore writes everything
above the recovery point again, syncs it, and recovers the log as after a crash. Records that
recovery does not find are lost, as after a crash; the log then stays stopped until the next start
of the broker, because others, such as coordinators, know of them.

Until there is room the stopped log is readable up to what was acknowledged. During the recovery
readers get no records.

Logs that could not be loaded at the start of the broker, for lack of room, are loaded in the same
way. They are offline until then.
"""

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

from penstock.core.clock import Clock
from penstock.core.errors import KafkaStorageError
from penstock.core.ids import TopicPartition
from penstock.storage.disk import Disk
from penstock.storage.disk_errors import is_lack_of_room
from penstock.storage.log.log import Log
from penstock.storage.manager.log_dir import LogDir
from penstock.storage.manager.log_slices import LogSlices
from penstock.storage.staged_operation import StagedOperation, Steps

logger = logging.getLogger(__name__)

_BLOCK_BYTES = 1024 * 1024


_INTERVAL_MS = 5_000
"""How often a log that has stopped is loaded again, until there is room."""
_POLL_SECONDS = 0.002
_RELOADS_AT_ONCE = 100
"""While so many are in progress, no load of another one that has not been loaded yet begins."""


class LogReloads:
    """The logs that lack room, and their reloads. Used by the event loop."""

    def __init__(self, dirs: Sequence[LogDir], clock: Clock) -> None:
        self._dirs = dirs
        self._clock = clock
        self._slices = LogSlices(
            lambda: chain.from_iterable(log_dir.logs.values() for log_dir in dirs)
        )
        self._running: set[TopicPartition] = set()
        self._next_ms: dict[TopicPartition, int] = {}

    def begin(self) -> list[tuple[TopicPartition, LogDir, StagedOperation[Log | None]]]:
        """Returns the reloads that are due; the caller runs each and then calls `finish`.

        Each call looks at some of the logs, and the next one continues with the others.
        """
        now_ms = self._clock.monotonic_ms()
        reloads: list[tuple[TopicPartition, LogDir, StagedOperation[Log | None]]] = []
        for log in self._slices.take_endlessly():
            partition = log.partition
            if not log.guard.is_reloadable or partition in self._running or log.local.is_busy:
                continue
            if now_ms < self._next_ms.get(partition, 0):
                continue
            for log_dir in self._dirs:
                if log_dir.is_online and log_dir.logs.get(partition) is log:
                    self._running.add(partition)
                    self._next_ms[partition] = now_ms + _INTERVAL_MS
                    reload = StagedOperation(reload_log(log_dir, log))
                    reloads.append((partition, log_dir, reload))
        for log_dir in self._dirs:
            if not log_dir.is_online:
                continue
            for partition, load in log_dir.deferred_loads.items():
                if partition in self._running or now_ms < self._next_ms.get(partition, 0):
                    continue
                if len(self._running) >= _RELOADS_AT_ONCE:
                    break
                self._running.add(partition)
                self._next_ms[partition] = now_ms + _INTERVAL_MS
                steps = load_deferred_log(log_dir, partition, load)
                reloads.append((partition, log_dir, StagedOperation(steps)))
        return reloads

    def finish(self, partition: TopicPartition, *, succeeded: bool) -> None:
        """Records the end of a reload; one that has failed is repeated later."""
        self._running.discard(partition)
        if succeeded:
            self._next_ms.pop(partition, None)

    def wait_for(self, partitions: Sequence[TopicPartition]) -> Steps[None]:
        """Waits until none of these partitions is being reloaded."""
        while not self._running.isdisjoint(partitions):
            yield partial(time.sleep, _POLL_SECONDS)


def load_deferred_log(
    log_dir: LogDir, partition: TopicPartition, load: Callable[[], Log]
) -> Steps[Log | None]:
    """Loads a log for which there was no room at the start; returns None if it was deleted.

    Raises `OSError` if there is still no room. After another error the log stays offline.
    """
    loading = _Loading(load)
    try:
        yield loading.run
    except Exception as error:
        if not is_lack_of_room(error) and partition in log_dir.deferred_loads:
            log_dir.set_load_error(partition, error)
        raise
    log = loading.log
    assert log is not None
    if not log_dir.add_deferred_log(log):
        log.local.close_handlers()
        return None
    logger.info("%s is loaded", partition)
    return log


class _Written(NamedTuple):
    """A file to write again, up to a size."""

    path: str
    size: int


def reload_log(log_dir: LogDir, stopped_log: Log) -> Steps[Log | None]:
    """Replaces a stopped log by one that accepts records; returns it, or None if it was deleted.

    Raises `OSError` if there is still no room, and KafkaStorageError if records were lost.
    """
    local = stopped_log.local
    partition = stopped_log.partition
    segments = local.segments.from_floor(stopped_log.recovery_point - 1)
    files = [_Written(segment.log_path, segment.size) for segment in segments]
    yield partial(_write_again, local.disk, files)
    # Recovery changes the indexes, which must not be mapped any more.
    stopped_log.guard.is_recovering = True
    local.close_handlers()
    loading = _Loading(partial(log_dir.load_again, stopped_log))
    yield loading.run
    log = loading.log
    assert log is not None
    if log_dir.logs.get(partition) is not stopped_log:
        log.local.close_handlers()
        return None
    if log.log_end_offset != stopped_log.log_end_offset:
        log.local.close_handlers()
        stopped_log.guard.is_reloadable = False
        raise KafkaStorageError(
            f"{partition} has lost the records from {log.log_end_offset} to "
            f"{stopped_log.log_end_offset - 1}, which were not durable when the disk was full",
            remedy="restart the broker, which continues with the others",
        )
    log_dir.logs[partition] = stopped_log.successor = log
    logger.info("%s accepts records again", partition)
    return log


def _write_again(disk: Disk, files: Sequence[_Written]) -> None:
    for path, size in files:
        try:
            file = disk.open(path)
        except FileNotFoundError:
            continue  # it was about to be replaced: recovery completes or reverts that
        try:
            for position in range(0, size, _BLOCK_BYTES):
                block = file.read_at(position, min(_BLOCK_BYTES, size - position))
                file.write_at(block, position)
            file.sync()
        finally:
            file.close()


class _Loading:
    """Loads a log, on a worker thread."""

    def __init__(self, load: Callable[[], Log]) -> None:
        self._load = load
        self.log: Log | None = None

    def run(self) -> None:
        self.log = self._load()
