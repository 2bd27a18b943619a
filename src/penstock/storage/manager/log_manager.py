"""All logs of a broker, in its log directories (`log.dirs`).

Every operation that blocks on the disk has a `begin_…` method, which returns a task for a worker
thread. Blocking methods are for the start and the shutdown.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial

from penstock.core.clock import Clock
from penstock.core.errors import ErrorCode, KafkaError, KafkaStorageError
from penstock.core.ids import TopicId, TopicPartition
from penstock.storage.checkpoint.latest_files import FileWrite
from penstock.storage.disk import Disk
from penstock.storage.file_names import MAX_NAME_BYTES, future_directory_name
from penstock.storage.log.log import Log
from penstock.storage.log.log_loader import ProducerLimits
from penstock.storage.log.truncation import begin_full_truncation, begin_truncation
from penstock.storage.log_config import LogConfig
from penstock.storage.manager.log_creation import DirCreation, LogCreation, NewLog
from penstock.storage.manager.log_deletion import delete_logs
from penstock.storage.manager.log_dir import LogDir
from penstock.storage.manager.log_dir_description import LogDirDescription, describe_log_dir
from penstock.storage.manager.log_discovery import IsHosted, StrayLog
from penstock.storage.manager.log_listener import LogListener
from penstock.storage.manager.log_maintenance import LogMaintenance, MaintenanceIntervals
from penstock.storage.manager.log_move import LogMove
from penstock.storage.manager.log_moves import LogMoves, resolve_duplicate_logs
from penstock.storage.manager.log_reload import LogReloads
from penstock.storage.manager.other_duplicates import resolve_other_duplicates
from penstock.storage.staged_operation import StagedOperation, Steps

logger = logging.getLogger(__name__)


class LogManager:
    """Loads, creates, moves and deletes logs; `maintenance` has their periodic tasks."""

    def __init__(
        self,
        disk: Disk,
        log_dirs: Sequence[str],
        clock: Clock,
        *,
        limits: ProducerLimits = ProducerLimits(),
        intervals: MaintenanceIntervals = MaintenanceIntervals(),
        roll_jitter: Callable[[int], int] = lambda limit: 0,
    ) -> None:
        self._new_dir = partial(LogDir, disk, clock=clock, limits=limits, roll_jitter=roll_jitter)
        self.dirs = [self._new_dir(path) for path in log_dirs]
        self.listeners: list[LogListener] = []
        self.disk = disk
        self._moves = LogMoves(disk, self.listeners)
        self._preferred_dirs: dict[TopicPartition, LogDir] = {}
        self.reloads = LogReloads(self.dirs, clock)
        self.maintenance = LogMaintenance(disk, self.dirs, clock, intervals)

    def startup(
        self, config_of: Callable[[str], LogConfig], *, node_id: int, cluster_id: str | None = None
    ) -> None:
        """Opens every log directory and loads its logs."""
        self.open(node_id=node_id, cluster_id=cluster_id)
        self.load(config_of)

    def open(self, *, node_id: int, cluster_id: str | None = None) -> None:
        """Locks every log directory. One that fails is offline.

        Raises KafkaStorageError if all of them fail, or one belongs to another broker; then all
        are closed again.
        """
        if not self.dirs:
            raise KafkaStorageError("log.dirs is empty", remedy="name at least one directory")
        try:
            for log_dir in self.dirs:
                log_dir.open(cluster_id=cluster_id, node_id=node_id)
            self.check_online_dirs(self.dirs)
        except Exception:
            self.shutdown()
            raise

    def check_online_dirs(self, previously_online: Iterable[LogDir]) -> None:
        """Raises the first error if all directories are offline, or else logs the new errors."""
        if not self.online_dirs:
            self.dirs[0].require_online()
        for log_dir in previously_online:
            if log_dir.error is not None:
                logger.error("%s", log_dir.error.message)

    def load(
        self,
        config_of: Callable[[str], LogConfig],
        is_hosted: IsHosted = lambda partition, topic_id: True,
    ) -> list[StrayLog]:
        """Loads the logs in the open directories. After a crash it recovers them, which takes time.

        `config_of` returns the settings of a topic. The directories of partitions that this broker
        does not host are renamed to `<topic>-<partition>.<uuid>-stray` and returned, never
        deleted. After an error all log directories are closed again.
        """
        online_dirs = self.online_dirs
        try:
            strays = [
                stray for log_dir in self.dirs for stray in log_dir.load(config_of, is_hosted)
            ]
            self.finish_load(online_dirs)
        except Exception:
            self.shutdown()
            raise
        return strays

    def finish_load(self, previously_online: Iterable[LogDir]) -> None:
        """Chooses between logs that two directories have, after every directory was loaded."""
        resolve_duplicate_logs(self.disk, self.dirs)
        self.check_online_dirs(previously_online)
        resolve_other_duplicates(self.disk, self.dirs)

    def abandon(self, log_dir: LogDir, error: KafkaStorageError) -> None:
        """Takes a directory offline whose `open` or `load` does not end on its thread.

        What the thread still does concerns nobody: another object takes the directory's place.
        """
        log_dir.error = error
        replacement = self._new_dir(log_dir.path)
        replacement.error = error
        self.dirs[self.dirs.index(log_dir)] = replacement

    @property
    def online_dirs(self) -> list[LogDir]:
        return [log_dir for log_dir in self.dirs if log_dir.is_online]

    def __iter__(self) -> Iterator[Log]:
        for log_dir in self.dirs:
            yield from log_dir.logs.values()

    def get(self, partition: TopicPartition) -> Log | None:
        """Returns the partition's log; None if there is none, or if it could not be loaded."""
        for log_dir in self.dirs:
            log = log_dir.logs.get(partition)
            if log is not None:
                return log
        return None

    def has(self, partition: TopicPartition) -> bool:
        """Returns whether the partition has a log, also one that could not be loaded."""
        return any(log_dir.has(partition) for log_dir in self.dirs)

    def get_or_create(
        self,
        partition: TopicPartition,
        config: LogConfig,
        topic_id: TopicId | None = None,
        *,
        is_new: bool = False,
    ) -> Log:
        """Returns the partition's log; creates it in the online directory with the fewest logs.

        A directory that could not be opened may contain the log. In that case a log is created
        only for a partition that `is_new` to this broker: otherwise an empty log would replace
        existing records. Raises KafkaError if the log could not be loaded or belongs to another
        topic of this name.
        """
        log = self._existing_log(partition, topic_id)
        if log is not None:
            return log
        for log_dir in self.dirs:
            if log_dir.is_hanging:
                # The caller may be the event loop, which must not wait for a disk.
                raise log_dir.hang_error()
        log_dir = self._choose_log_dir(partition, {}, is_new=is_new)
        log = log_dir.create(partition, config, topic_id)
        self._preferred_dirs.pop(partition, None)
        return log

    def _existing_log(self, partition: TopicPartition, topic_id: TopicId | None) -> Log | None:
        for log_dir in self.dirs:
            if partition in log_dir.load_errors:
                raise log_dir.load_errors[partition]
        log = self.get(partition)
        if log is not None and topic_id is not None and log.topic_id not in (None, topic_id):
            raise KafkaError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"{partition} has topic id {log.topic_id} on disk, not {topic_id}: the topic was "
                "deleted and created again",
                remedy=f"delete the old directory {log.directory}",
            )
        if log is not None and topic_id is not None and log.topic_id is None:
            self._log_dir_of(partition).assign_topic_id(log, topic_id)
        return log

    def _choose_log_dir(
        self,
        partition: TopicPartition,
        new_log_counts: Mapping[LogDir, int],
        *,
        is_new: bool,
        excluded_dirs: Collection[LogDir] = (),
    ) -> LogDir:
        """Returns the directory for a new log; `new_log_counts` has the logs not yet created."""
        online_dirs = [log_dir for log_dir in self.online_dirs if log_dir not in excluded_dirs]
        hanging_dirs = [log_dir for log_dir in online_dirs if log_dir.is_hanging]
        if hanging_dirs and len(hanging_dirs) == len(online_dirs):
            raise hanging_dirs[0].hang_error()
        online_dirs = [log_dir for log_dir in online_dirs if not log_dir.is_hanging]
        if excluded_dirs and not online_dirs:
            raise KafkaStorageError(
                "no directory of log.dirs has room for another log", remedy="see the broker's log"
            )
        if not online_dirs:
            raise KafkaStorageError(
                "every directory of log.dirs is offline",
                remedy="repair a disk and restart the broker",
            )
        unloaded = [log_dir.path for log_dir in self.dirs if not log_dir.is_loaded]
        if unloaded and not is_new:
            raise KafkaStorageError(
                f"{partition} may be in {', '.join(unloaded)}, which could not be opened",
                remedy="repair the disk and restart the broker",
            )
        preferred = self._preferred_dirs.get(partition)
        if preferred in online_dirs and preferred is not None:
            return preferred
        return min(
            online_dirs,
            key=lambda log_dir: len(log_dir.logs) + new_log_counts.get(log_dir, 0),
        )

    def begin_create(
        self,
        new_logs: Sequence[NewLog],
        *,
        is_new: bool = False,
        excluded_dirs: Collection[LogDir] = (),
    ) -> LogCreation:
        """Returns a task that does `get_or_create` for many logs, on any thread.

        Pass it to `finish_create` afterwards. Do not use the partitions until that has returned.
        `excluded_dirs` have no room for another log.
        """
        counts: Counter[LogDir] = Counter()
        logs_to_create: dict[LogDir, list[NewLog]] = {}
        existing_logs: dict[TopicPartition, Log] = {}
        for new_log in new_logs:
            log = self._existing_log(new_log.partition, new_log.topic_id)
            if log is not None:
                existing_logs[new_log.partition] = log
                continue
            log_dir = self._choose_log_dir(
                new_log.partition, counts, is_new=is_new, excluded_dirs=excluded_dirs
            )
            counts[log_dir] += 1
            logs_to_create.setdefault(log_dir, []).append(new_log)
        return LogCreation(
            new_logs,
            [
                DirCreation(
                    self.disk,
                    log_dir,
                    new_logs_of_dir,
                    log_dir.begin_checkpoint() if log_dir.has_stale_checkpoint else None,
                )
                for log_dir, new_logs_of_dir in logs_to_create.items()
            ],
            existing_logs,
        )

    def finish_create(self, creation: LogCreation) -> dict[TopicPartition, Log | KafkaStorageError]:
        """Returns the logs or their errors. An I/O error takes the log directory offline."""
        results: dict[TopicPartition, Log | KafkaStorageError] = dict(creation.existing_logs)
        for dir_creation in creation.dirs:
            failure = dir_creation.finish()
            for partition in [new_log.partition for new_log in dir_creation.new_logs]:
                if failure is not None:
                    results[partition] = failure
                else:
                    log = dir_creation.created_logs[partition]
                    dir_creation.log_dir.logs[partition] = results[partition] = log
                    self._preferred_dirs.pop(partition, None)
        return {new_log.partition: results[new_log.partition] for new_log in creation.new_logs}

    def delete(self, partition: TopicPartition) -> None:
        """Deletes the partition's log on this thread, the files after `file.delete.delay.ms`."""
        self._log_dir_of(partition)
        for error in self.delete_all([partition]):
            raise error

    def delete_all(self, partitions: Iterable[TopicPartition]) -> list[KafkaError]:
        """Deletes logs on this thread; returns the errors."""
        partitions = list(partitions)
        for partition in partitions:
            self.cancel_move(partition)
        self._moves.finish_swaps(partitions)
        return self.begin_deletion(partitions).complete()

    def begin_deletion(
        self, partitions: Iterable[TopicPartition]
    ) -> StagedOperation[list[KafkaError]]:
        """Deletes logs, with one wait for each log directory; the result is the errors.

        The logs are no longer available after the first `advance`. Until the operation has ended,
        none may be created for these partitions: the directories still have their names.
        """
        return StagedOperation(self._delete(list(partitions)))

    def begin_deletions(
        self, partitions: Iterable[TopicPartition]
    ) -> list[tuple[LogDir, list[TopicPartition], StagedOperation[list[KafkaError]]]]:
        """Like `begin_deletion`, with an operation for each log directory: a disk may hang."""
        partitions_by_dir: dict[LogDir, list[TopicPartition]] = {}
        for partition in partitions:
            log_dir = next((item for item in self.dirs if item.has(partition)), self.dirs[0])
            partitions_by_dir.setdefault(log_dir, []).append(partition)
        return [
            (log_dir, group, self.begin_deletion(group))
            for log_dir, group in partitions_by_dir.items()
        ]

    def _delete(self, partitions: Sequence[TopicPartition]) -> Steps[list[KafkaError]]:
        partitions_by_dir: dict[LogDir, list[TopicPartition]] = {}
        errors: list[KafkaError] = []
        for partition in partitions:
            try:
                log_dir = self._log_dir_of(partition)
            except KafkaError as error:
                errors.append(error)
                continue
            self.cancel_move(partition)
            for listener in self.listeners:
                listener.on_deleted(partition)
            partitions_by_dir.setdefault(log_dir, []).append(partition)
        errors += yield from delete_logs(
            partitions_by_dir, self._wait_for_renames(partitions), self._listener_checkpoints
        )
        return errors

    def _wait_for_renames(self, partitions: Sequence[TopicPartition]) -> Steps[None]:
        yield from self._moves.wait_for_swaps(partitions)
        yield from self.reloads.wait_for(partitions)

    def _listener_checkpoints(self, log_dir: LogDir) -> list[FileWrite]:
        checkpoints = [listener.begin_checkpoint(log_dir) for listener in self.listeners]
        return [checkpoint for checkpoint in checkpoints if checkpoint is not None]

    def begin_truncation(self, partition: TopicPartition, offset: int) -> StagedOperation[bool]:
        """Truncates a log and stores its new recovery point.

        Otherwise a start after a crash would trust records above the truncation that were
        replaced since. Nothing may be appended until it has ended; see `truncation`.
        """
        return StagedOperation(self._truncate(partition, offset))

    def _truncate(self, partition: TopicPartition, offset: int) -> Steps[bool]:
        log_dir = self._log_dir_of(partition)
        self._moves.on_truncated(partition)
        has_changed = yield from begin_truncation(log_dir.log(partition), offset).steps
        yield from self._after_truncation(log_dir, partition, offset)
        return has_changed

    def begin_full_truncation(
        self, partition: TopicPartition, offset: int, log_start_offset: int | None = None
    ) -> StagedOperation[None]:
        """Drops all records of a log; the next record gets `offset`. Like `begin_truncation`.

        The log starts at `offset`, or at `log_start_offset` within the batch that comes next.
        """
        return StagedOperation(self._truncate_fully(partition, offset, log_start_offset))

    def _truncate_fully(
        self, partition: TopicPartition, offset: int, log_start_offset: int | None
    ) -> Steps[None]:
        log_dir = self._log_dir_of(partition)
        self._moves.on_truncated(partition)
        log = log_dir.log(partition)
        yield from begin_full_truncation(log, offset, log_start_offset).steps
        yield from self._after_truncation(log_dir, partition, offset)

    def _after_truncation(
        self, log_dir: LogDir, partition: TopicPartition, offset: int
    ) -> Steps[None]:
        self._moves.on_truncated(partition)
        for listener in self.listeners:
            listener.on_truncated(partition, offset)
        for checkpoint in (log_dir.begin_checkpoint(), *self._listener_checkpoints(log_dir)):
            if checkpoint is not None:
                yield checkpoint.run
                log_dir.finish_checkpoint(checkpoint)
                if checkpoint.error is not None and log_dir.is_online:
                    # Nothing may be appended before the recovery point is stored.
                    log_dir.log(partition).guard.fail(checkpoint.error)

    def _log_dir_of(self, partition: TopicPartition) -> LogDir:
        for log_dir in self.dirs:
            if log_dir.has(partition):
                return log_dir
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition} has no log on this broker"
        )

    # --- moves

    def prefer_dir(self, partition: TopicPartition, path: str) -> None:
        """Chooses the log directory for the partition's log, for when it is created."""
        self._preferred_dirs[partition] = self._log_dir_at(path)

    def _log_dir_at(self, path: str) -> LogDir:
        for log_dir in self.dirs:
            if log_dir.path == path:
                log_dir.require_online()
                return log_dir
        raise KafkaError(
            ErrorCode.LOG_DIR_NOT_FOUND,
            f"{path} is not in log.dirs",
            remedy=f"use one of {', '.join(log_dir.path for log_dir in self.dirs)}",
        )

    def begin_move(self, partition: TopicPartition, path: str) -> LogMove | None:
        """Starts to move a partition to another log directory (AlterReplicaLogDirs).

        The caller advances the move until it has ended::

            while not manager.advance_move(move):
                await loop.run_in_executor(pool, move.run)

        Returns None if the partition is in `path` already, or is being moved there. A move to
        another directory is cancelled, also if `path` is the current directory. Raises
        REPLICA_NOT_AVAILABLE for a partition without a log; it will be created in `path`.
        """
        target = self._log_dir_at(path)
        if target.is_hanging:
            # A creation of this partition may have been given up there.
            raise target.hang_error()
        if len(future_directory_name(partition, "0" * 32).encode()) > MAX_NAME_BYTES:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"{partition.topic} cannot be moved: its name is too long",
            )
        current_move = self._moves.get(partition)
        if current_move is not None:
            if current_move.target is target:
                return None
            self.cancel_move(partition)
        if not self.has(partition):
            self.prefer_dir(partition, path)
            raise KafkaError(
                ErrorCode.REPLICA_NOT_AVAILABLE,
                f"{partition} has no log on this broker; it will be created in {path}",
            )
        source = self._log_dir_of(partition)
        if source is target:
            return None
        for log_dir in self.dirs:
            # It may contain an earlier copy.
            log_dir.require_online()
        log = source.log(partition)
        if log.failure is not None:
            raise log.failure
        move = self._moves.begin(partition, source, target)
        for listener in self.listeners:
            listener.on_move_started(partition)
        return move

    def advance_move(self, move: LogMove) -> bool:
        """Continues a move after `move.run`; returns whether it has ended.

        If it has not, call `move.run` again, on any thread. Once `move.is_done`, `get` returns the
        new log and the old one accepts no more records, but files must still be removed. A move
        that has ended without that was cancelled, or has failed with `move.error`.
        """
        return self._moves.advance(move)

    def release_hanging_move(self, move: LogMove) -> None:
        """Lets the current log be flushed, although a step of its move does not end.

        A move whose logs are being swapped is cancelled; others continue when the step has ended.
        """
        self._moves.release_hanging(move)

    def cancel_move(self, partition: TopicPartition) -> None:
        """Cancels the partition's move, if there is one. It must still be advanced to its end."""
        self._moves.cancel(partition)

    def unfinished_moves(self) -> list[tuple[TopicPartition, str]]:
        """Returns the moves that a shutdown or a crash has interrupted, to be started again."""
        return [
            (partition, log_dir.path)
            for log_dir in self.dirs
            for partition in log_dir.future_directories
            if any(source.has(partition) for source in self.dirs)
        ]

    def describe(self) -> list[LogDirDescription]:
        """Returns all log directories and the sizes of their logs (DescribeLogDirs)."""
        return [describe_log_dir(self.disk, log_dir, self._moves) for log_dir in self.dirs]

    # --- shutdown

    def shutdown(self) -> None:
        """Flushes and closes everything and marks the log directories as clean.

        Flushes, cleanings and moves on worker threads must be finished before.
        """
        for close in self.begin_shutdown():
            close()

    def confirm_losses(self) -> None:
        """Notes that the controller knows in which directories records may have been lost."""
        for log_dir in self.dirs:
            log_dir.confirm_loss()

    def begin_shutdown(self, busy_logs: Collection[Log] = ()) -> list[Callable[[], None]]:
        """Returns a `LogDir.close` for each directory, to be run on threads of their own.

        `busy_logs` are left as they are: a flush of them does not end.
        """
        self._moves.close()
        return [partial(log_dir.close, busy_logs) for log_dir in self.dirs]
