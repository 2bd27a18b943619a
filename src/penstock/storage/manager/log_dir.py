"""One log directory of `log.dirs`: its lock, its checkpoints and the logs in it.

A log directory fails as a whole: an I/O error in one partition takes all partitions on the same
disk offline, and none on another disk.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import NamedTuple
from uuid import UUID, uuid4

from penstock.core.clock import Clock
from penstock.core.errors import KafkaError, KafkaStorageError
from penstock.core.ids import TopicId, TopicPartition
from penstock.storage.checkpoint.checkpoint_files import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    CorruptCheckpointError,
    has_clean_shutdown,
    has_failed_marker,
    load_boot_id,
    load_partition_metadata,
    remove_clean_shutdown,
    remove_failed_marker,
    store_boot_id,
    store_clean_shutdown,
    store_failed_marker,
    store_partition_metadata,
)
from penstock.storage.checkpoint.latest_files import FileWrite
from penstock.storage.disk import Disk, Lock
from penstock.storage.disk_errors import is_lack_of_room, remedy_for
from penstock.storage.file_names import (
    DELETE_DIRECTORY_SUFFIX,
    deleted_directory_name,
    is_broker_directory,
    parse_future_directory,
)
from penstock.storage.index.mapped_index import CorruptIndexError
from penstock.storage.log.failure_guard import describe_error
from penstock.storage.log.log import Log
from penstock.storage.log.log_loader import ProducerLimits, load_log
from penstock.storage.log_config import LogConfig
from penstock.storage.manager.dir_checkpoints import DirCheckpoints
from penstock.storage.manager.dir_identity import check_owner, create_log_dir, lock_log_dir
from penstock.storage.manager.file_removal import DeletedDirectory, RemovalTask
from penstock.storage.manager.log_discovery import (
    PARTITION_ERRNOS,
    IsHosted,
    StrayLog,
    partition_of_directory,
    rename_stray_logs,
)
from penstock.storage.manager.log_slices import LogSlices
from penstock.storage.segment.log_segment import LogSegment
from penstock.storage.staged_operation import StagedOperation, Steps, Work

logger = logging.getLogger(__name__)

_WARNING_INTERVAL_MS = 10_000


class _LogToDelete(NamedTuple):
    partition: TopicPartition
    new_name: str
    """The name that its directory gets."""
    log: Log | None


class _DelayedRemoval(NamedTuple):
    remove_at_ms: int
    directory: DeletedDirectory


class LogDir:
    """A directory with logs: `open` it, then `load` them. After a failure `error` is set."""

    def __init__(
        self,
        disk: Disk,
        path: str,
        clock: Clock,
        limits: ProducerLimits,
        *,
        roll_jitter: Callable[[int], int],
    ) -> None:
        self.path = path
        self.may_have_lost_records = False
        """Whether the machine stopped without a clean shutdown before the directory was loaded."""
        self.logs: dict[TopicPartition, Log] = {}
        self.error: KafkaStorageError | None = None
        self.load_errors: dict[TopicPartition, KafkaStorageError] = {}
        """Partitions whose files are invalid; they are offline, the others are not."""
        self.future_directories: dict[TopicPartition, str] = {}
        """Directory names of future logs that an interrupted move has left here."""
        self.transient_logs: dict[TopicPartition, Log] = {}
        """Logs that are being added or deleted. Their directory may exist after a crash, so the
        checkpoints include them."""
        self.is_loaded = False
        """Whether it is known which partitions are in the directory."""
        self.directory_id: UUID | None = None
        self._disk = disk
        self._clock = clock
        self._limits = limits
        self._roll_jitter = roll_jitter
        self._lock: Lock | None = None
        self._delayed_removals: list[_DelayedRemoval] = []
        self._checkpoints = DirCheckpoints(disk, path)
        self._unremoved_segments: list[LogSegment] = []
        self._removal_slices = LogSlices(lambda: self.logs.values())
        self._next_warning_ms = 0
        self.closed_logs = 0
        """The progress of `close`."""
        self.has_stale_checkpoint = False
        """Whether the checkpoints could not be written for lack of room. Until they are, no log is
        created: they may have offsets of a deleted partition of the same name."""

    def __repr__(self) -> str:
        status = "online" if self.is_online else "offline"
        return f"LogDir({self.path!r}, {status}, {len(self.logs)} logs)"

    @property
    def is_online(self) -> bool:
        return self.error is None

    # --- start

    def open(self, *, cluster_id: str | None, node_id: int) -> None:
        """Locks the directory and checks its owner.

        An I/O error or an invalid `meta.properties` takes it offline. Raises KafkaStorageError if
        the directory is in use or belongs to another broker.
        """
        try:
            create_log_dir(self._disk, self.path)
            self._lock = lock_log_dir(self._disk, self.path)
            self.directory_id = check_owner(self._disk, self.path, cluster_id, node_id)
        except (OSError, CorruptCheckpointError) as error:
            self.take_offline(error)

    def load(
        self,
        config_of: Callable[[str], LogConfig],
        is_hosted: IsHosted = lambda partition, topic_id: True,
    ) -> list[StrayLog]:
        """Loads the logs of the partitions that this broker hosts.

        Renames the directories of the other partitions and returns them. An I/O error takes the
        directory offline, unlogged.
        """
        strays: list[StrayLog] = []
        if self.is_online:
            try:
                strays = rename_stray_logs(self._disk, self.path, is_hosted)
                self._load_logs(config_of)
            except OSError as error:
                self.take_offline(error)
        return strays

    def _check_boot_id(self, clean: bool) -> None:
        """Finds out whether records that were not flushed may be lost.

        They are not if only the process ended: the machine still runs as it did then. A directory
        that is empty may be that of a new disk, which has lost everything.
        """
        boot_id = self._disk.boot_id()
        last_boot_id = load_boot_id(self._disk, self.path)
        is_same_boot = bool(boot_id) and boot_id == last_boot_id
        self.may_have_lost_records = not clean and not is_same_boot
        if boot_id != last_boot_id:
            store_boot_id(self._disk, self.path, boot_id)

    def _load_logs(self, config_of: Callable[[str], LogConfig]) -> None:
        clean = has_clean_shutdown(self._disk, self.path)
        # After the first append the directory is not clean any more.
        remove_clean_shutdown(self._disk, self.path)
        self._check_boot_id(clean)
        recovery_points = self._checkpoints.load(RECOVERY_POINT_CHECKPOINT)
        high_watermarks = self._checkpoints.load(REPLICATION_OFFSET_CHECKPOINT)
        start_offsets = self._checkpoints.load(LOG_START_OFFSET_CHECKPOINT)
        cleaned_to = self._checkpoints.load(CLEANER_OFFSET_CHECKPOINT)
        rewrite = has_failed_marker(self._disk, self.path)
        for partition, path in self._partition_directories():
            try:
                metadata = load_partition_metadata(self._disk, path)
                self.logs[partition] = self._load_log(
                    partition,
                    config_of(partition.topic),
                    topic_id=None if metadata is None else metadata.topic_id,
                    clean=clean,
                    recovery_point=recovery_points.get(partition, 0),
                    cleaned_to=cleaned_to.get(partition, 0),
                    rewrite=rewrite,
                    high_watermark=high_watermarks.get(partition, 0),
                    log_start_offset=start_offsets.get(partition, 0),
                )
            except OSError as error:
                if error.errno not in PARTITION_ERRNOS and not is_lack_of_room(error):
                    raise
                self.set_load_error(partition, error)
            except Exception as error:  # noqa: BLE001 - one partition must not affect the others
                self.set_load_error(partition, error)
        checkpoints = {
            RECOVERY_POINT_CHECKPOINT: recovery_points,
            REPLICATION_OFFSET_CHECKPOINT: high_watermarks,
            LOG_START_OFFSET_CHECKPOINT: start_offsets,
        }
        for name, offsets in checkpoints.items():
            self._checkpoints.keep(
                name, {key: offset for key, offset in offsets.items() if key in self.load_errors}
            )
        if self._are_outdated(checkpoints):
            self.checkpoint()
        if rewrite and not self.load_errors:
            remove_failed_marker(self._disk, self.path)
        self.is_loaded = True

    def _partition_directories(self) -> list[tuple[TopicPartition, str]]:
        """Returns the partitions to load; removes deleted ones and collects future logs."""
        partitions: list[tuple[TopicPartition, str]] = []
        for name in self._disk.names(self.path):
            path = self._path(name)
            if not self._disk.is_directory(path):
                continue
            if name.endswith(DELETE_DIRECTORY_SUFFIX):
                self._disk.remove_directory(path)
                continue
            future_partition = parse_future_directory(name)
            if future_partition is not None:
                self.future_directories[future_partition] = name
                continue
            partition = partition_of_directory(name)
            if partition is None:
                if not is_broker_directory(name):
                    logger.warning("ignoring %s, which is not the directory of a partition", path)
            else:
                partitions.append((partition, path))
        return partitions

    def set_load_error(self, partition: TopicPartition, error: Exception) -> None:
        """Takes one partition offline, because its files are invalid or cannot be read."""
        log = self.logs.pop(partition, None)
        if log is not None:
            log.local.close_handlers()
        if isinstance(error, KafkaStorageError):
            load_error = KafkaStorageError(f"{partition} is offline: {error.message}")
        else:
            reason = error.message if isinstance(error, KafkaError) else describe_error(error)
            load_error = KafkaStorageError(
                f"{partition} is offline because it cannot be loaded: {reason}. Restore "
                f"{self._path(str(partition))}, or move it away and have it copied from another "
                f"replica"
            )
        is_expected = isinstance(error, KafkaError | CorruptIndexError | OSError)
        logger.error("%s", load_error.message, exc_info=None if is_expected else error)
        self.load_errors[partition] = load_error

    def _are_outdated(self, checkpoints: Mapping[str, Mapping[TopicPartition, int]]) -> bool:
        """Returns whether the checkpoints must be rewritten before they are read again.

        A partition that no longer exists may be created again, with other records at the same
        offsets. The same is true for the offsets between the end of a log and its recovery point,
        if records were lost.
        """
        existing = self.logs.keys() | self.load_errors.keys()
        if any(offsets.keys() - existing for offsets in checkpoints.values()):
            return True
        recovery_points = checkpoints[RECOVERY_POINT_CHECKPOINT]
        return any(
            log.recovery_point < recovery_points.get(partition, 0)
            for partition, log in self.logs.items()
        )

    def _load_log(
        self,
        partition: TopicPartition,
        config: LogConfig,
        *,
        topic_id: TopicId | None,
        name: str | None = None,
        clean: bool = False,
        recovery_point: int = 0,
        cleaned_to: int = 0,
        rewrite: bool = False,
        high_watermark: int = 0,
        log_start_offset: int = 0,
    ) -> Log:
        return load_log(
            self._disk,
            self._path(name or str(partition)),
            partition,
            config,
            self._clock,
            clean=clean,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            cleaned_to=cleaned_to,
            rewrite=rewrite,
            high_watermark=high_watermark,
            topic_id=topic_id,
            limits=self._limits,
            on_failure=self.fail,
            roll_jitter=self._roll_jitter,
        )

    def load_again(self, stopped_log: Log) -> Log:
        """Returns a new log with the files of one that has stopped; may run on another thread."""
        partition = stopped_log.partition
        return self._load_log(
            partition,
            stopped_log.config,
            topic_id=stopped_log.topic_id,
            recovery_point=stopped_log.recovery_point,
            cleaned_to=self._checkpoints.load(CLEANER_OFFSET_CHECKPOINT).get(partition, 0),
            high_watermark=stopped_log.high_watermark,
            log_start_offset=stopped_log.log_start_offset,
        )

    def _path(self, name: str) -> str:
        return f"{self.path}/{name}"

    def directory_of(self, partition: TopicPartition) -> str:
        """Returns the directory that the partition has, or would have, here."""
        return self._path(str(partition))

    # --- create

    def has(self, partition: TopicPartition) -> bool:
        return partition in self.logs or partition in self.load_errors

    def log(self, partition: TopicPartition) -> Log:
        """Returns the partition's log; raises KafkaStorageError if it could not be loaded."""
        if partition in self.load_errors:
            raise self.load_errors[partition].with_traceback(None)
        return self.logs[partition]

    def create(self, partition: TopicPartition, config: LogConfig, topic_id: TopicId | None) -> Log:
        """Creates and returns an empty log."""
        self.require_online()
        try:
            log = self.create_unsynced(partition, config, topic_id)
            self._disk.sync_directory(self.path)
        except OSError as error:
            if is_lack_of_room(error):
                self._disk.remove_directory(self.directory_of(partition))
            raise self.failure_of(error) from error
        self.logs[partition] = log
        return log

    def create_unsynced(
        self,
        partition: TopicPartition,
        config: LogConfig,
        topic_id: TopicId | None,
        *,
        name: str | None = None,
        log_start_offset: int = 0,
    ) -> Log:
        """Returns an empty log whose directory is not durable yet. May run on another thread."""
        path = self._path(name or str(partition))
        self._disk.make_directory(path)
        if topic_id is not None:
            # Before any record: records without a topic id could be attributed to another topic.
            store_partition_metadata(self._disk, path, topic_id)
        log = self._load_log(
            partition, config, topic_id=topic_id, name=name, log_start_offset=log_start_offset
        )
        self._disk.sync_directory(path)
        return log

    # --- moves into this directory

    def create_future_log(
        self,
        name: str,
        partition: TopicPartition,
        config: LogConfig,
        topic_id: TopicId | None,
        log_start_offset: int,
    ) -> Log:
        """Returns an empty log for a move into this directory. May run on another thread."""
        self._disk.remove_directory(self._path(name))
        log = self.create_unsynced(
            partition, config, topic_id, name=name, log_start_offset=log_start_offset
        )
        log.guard.on_failure = lambda error: None
        self._disk.sync_directory(self.path)
        return log

    def begin_rename(self, log: Log, name: str) -> Work:
        """Returns the work that renames the directory of a moved log to `name`.

        After an `OSError` it is unknown which name the directory has.
        """
        return partial(self._rename, log.directory, self._path(name))

    def _rename(self, source: str, target: str) -> None:
        self._disk.rename(source, target)
        self._disk.sync_directory(self.path)

    def add_moved_log(self, log: Log) -> None:
        """Makes a future log, whose directory has been renamed, the log of its partition."""
        log.guard.on_failure = self.fail
        self.logs[log.partition] = log

    # --- delete

    def delete(self, partition: TopicPartition, reason: str = "was deleted") -> None:
        """Deletes a log, even one that could not be loaded, on this thread.

        Its directory is renamed at once and removed later.
        """
        StagedOperation(self.delete_steps([partition], reason)).complete()

    def delete_steps(
        self, partitions: Iterable[TopicPartition], reason: str = "was deleted"
    ) -> Steps[None]:
        """Deletes logs with one wait for the disk. They are detached in the first step.

        No log of these partitions may be created in this directory until it has ended. The files
        stay usable: only the directories are renamed. In a directory that is offline the logs are
        detached, and its error is raised; the next start finds that their topics do not exist.
        """
        deletions = [self._detach(partition, reason) for partition in partitions]
        if self.error is not None:
            for deletion in deletions:
                self.transient_logs.pop(deletion.partition, None)
                if deletion.log is not None:
                    deletion.log.local.close_handlers()
            self.require_online()
        try:
            yield partial(self._rename_deleted, deletions)
            for deletion in deletions:
                if deletion.log is not None:
                    # A fetch may still be sending from its files, which are opened by name.
                    deletion.log.update_directory(self._path(deletion.new_name))
                self.transient_logs.pop(deletion.partition, None)
                self._checkpoints.forget(deletion.partition)
        except Exception as error:  # noqa: BLE001 - it is unknown what is on the disk
            self.fail_for_any(error)
        checkpoint = self.begin_checkpoint()
        if checkpoint is not None:
            yield checkpoint.run
            self.finish_checkpoint(checkpoint)
        now_ms = self._clock.now_ms()
        for deletion in deletions:
            log = deletion.log
            delay_ms = 0 if log is None else log.config.file_delete_delay_ms
            directory = DeletedDirectory(self._path(deletion.new_name), log)
            self._delayed_removals.append(_DelayedRemoval(now_ms + delay_ms, directory))
        self.require_online()

    def _detach(self, partition: TopicPartition, reason: str) -> _LogToDelete:
        log = self.logs.pop(partition, None) or self.transient_logs.get(partition)
        self.load_errors.pop(partition, None)
        if log is not None:
            # Nothing may be appended any more, and a flush that misses the files is no disk error.
            log.guard.stop(KafkaStorageError(f"{partition} {reason}"))
            # Until the directory is renamed, the log may reappear after a crash.
            self.transient_logs[partition] = log
        return _LogToDelete(partition, deleted_directory_name(partition, uuid4().hex), log)

    def _rename_deleted(self, deletions: Iterable[_LogToDelete]) -> None:
        for deletion in deletions:
            self._disk.rename(self._path(str(deletion.partition)), self._path(deletion.new_name))
        self._disk.sync_directory(self.path)

    def begin_removal(self) -> RemovalTask | None:
        """Returns the removal of files whose delay has passed, for any thread; None for none."""
        now_ms = self._clock.now_ms()
        removals = [removal for removal in self._delayed_removals if removal.remove_at_ms <= now_ms]
        if removals:
            self._delayed_removals = [
                removal for removal in self._delayed_removals if removal.remove_at_ms > now_ms
            ]
        segments, self._unremoved_segments = self._unremoved_segments, []
        for log in self._removal_slices.take_endlessly():
            segments += log.local.take_removable_segments(now_ms)
        if not removals and not segments:
            return None
        return RemovalTask(self._disk, [removal.directory for removal in removals], segments)

    def finish_removal(self, task: RemovalTask) -> None:
        """Handles the error of a removal; without descriptors the rest is removed later."""
        if task.error is not None:
            self.fail(task.error)
            self._unremoved_segments += task.segments
            self._delayed_removals += [
                _DelayedRemoval(self._clock.now_ms(), directory) for directory in task.directories
            ]

    # --- checkpoints

    def checkpoint(self) -> None:
        """Stores the recovery points, high watermarks and start offsets, on this thread."""
        task = self.begin_checkpoint()
        if task is not None:
            task.run()
            self.finish_checkpoint(task)

    def begin_checkpoint(self) -> FileWrite | None:
        """Returns the write of the checkpoints, for any thread; None if the directory is offline.

        Several writes may run at the same time: the one that was begun last wins.
        """
        if self.error is not None:
            return None
        return self._checkpoints.begin_write(self.transient_logs, self.logs)

    def finish_checkpoint(self, task: FileWrite) -> None:
        """Handles the error of a checkpoint; without room it is written again later."""
        self.has_stale_checkpoint = task.error is not None
        if task.error is not None:
            self.fail(task.error)

    # --- failure and close

    def fail(self, error: Exception) -> None:
        """Takes the directory and all its logs offline, unless it only lacks space or descriptors.

        In that case it logs what to do, not more often than every `_WARNING_INTERVAL_MS`.
        """
        if not is_lack_of_room(error):
            self.fail_for_any(error)
            return
        store_failed_marker(self._disk, self.path)
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._next_warning_ms:
            self._next_warning_ms = now_ms + _WARNING_INTERVAL_MS
            logger.error("%s", self._lack_of_room(error).message)

    def fail_for_any(self, error: Exception) -> None:
        """Takes the directory and all its logs offline, also for lack of room, and logs why."""
        if self.error is None:
            store_failed_marker(self._disk, self.path)
            logger.error("%s", self.take_offline(error).message)

    def failure_of(self, error: Exception) -> KafkaStorageError:
        """Calls `fail`; returns the error for the operation that could not be done."""
        self.fail(error)
        return self.error if self.error is not None else self._lack_of_room(error)

    def _lack_of_room(self, error: Exception) -> KafkaStorageError:
        assert isinstance(error, OSError)
        return KafkaStorageError(
            f"{self.path} has no room ({describe_error(error)}); acknowledged records are safe, "
            f"and what needs room is refused until there is some",
            remedy=remedy_for(error, self.path),
        )

    def take_offline(self, error: Exception) -> KafkaStorageError:
        """Takes the directory and all its logs offline; returns why."""
        self.error = KafkaStorageError(
            f"{self.path} is offline: {describe_error(error)}. Its partitions accept no more "
            f"records; repair the disk or free space on it, then restart the broker"
        )
        for log in self.logs.values():
            log.guard.stop(self.error)
        return self.error

    def require_online(self) -> None:
        """Raises `error` if the directory is offline."""
        if self.error is not None:
            raise self.error.with_traceback(None)

    def close(self, busy_logs: Collection[Log] = ()) -> None:
        """Closes the logs and marks the directory as clean if everything could be written.

        Leaves a directory that could not be opened unchanged: it may belong to another broker. Also
        leaves `busy_logs`, whose flush does not end; the directory is not clean then.
        """
        lock, self._lock = self._lock, None
        if lock is None:
            return
        for log in self.logs.values():
            if log in busy_logs:
                log.guard.stop(KafkaStorageError(f"the flush of {log.partition} has not ended"))
            else:
                self._close_log(log)
            self.closed_logs += 1
        for removal in self._delayed_removals:
            if removal.directory.log is not None:
                removal.directory.log.local.close_handlers()
        if self.is_loaded:
            self.checkpoint()
            self._mark_clean()
        lock.release()

    def _close_log(self, log: Log) -> None:
        try:
            log.close()
        except KafkaStorageError as error:
            logger.error("could not close %s: %s", log.partition, error.message)
        except Exception as error:
            logger.exception("could not close %s", log.partition)
            self.fail(error)

    def _mark_clean(self) -> None:
        # The next start must recover a partition that was not loaded, or not flushed to its end.
        is_complete = not self.load_errors and all(
            log.failure is None for log in self.logs.values()
        )
        if self.error is None and is_complete and not self.has_stale_checkpoint:
            try:
                store_clean_shutdown(self._disk, self.path)
            except OSError as error:
                self.fail(error)
