"""One log directory of `log.dirs`: its lock, its checkpoints and the logs in it.

A log directory fails as a whole: an I/O error in one partition takes all partitions on the same
disk offline, and none on another disk.
"""

import logging
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import NamedTuple
from uuid import UUID, uuid4

from penstock.core.clock import Clock
from penstock.core.errors import KafkaError, KafkaStorageError
from penstock.core.ids import TopicId, TopicPartition
from penstock.storage.checkpoint.checkpoint_files import (
    CLEANER_OFFSET_CHECKPOINT,
    PARTITION_METADATA,
    CorruptCheckpointError,
    has_clean_shutdown,
    has_failed_marker,
    load_partition_metadata,
    remove_clean_shutdown,
    remove_failed_marker,
    store_clean_shutdown,
    store_failed_marker,
    write_partition_metadata,
)
from penstock.storage.checkpoint.latest_files import FileWrite
from penstock.storage.disk import Disk, Lock, replace_by_temporary
from penstock.storage.disk_errors import is_lack_of_room
from penstock.storage.file_names import (
    deleted_directory_name,
)
from penstock.storage.index.mapped_index import CorruptIndexError
from penstock.storage.log.failure_guard import describe_error, lack_of_room_error
from penstock.storage.log.log import Log
from penstock.storage.log.log_loader import ProducerLimits, load_log
from penstock.storage.log_config import LogConfig
from penstock.storage.manager.dir_checkpoints import DirCheckpoints, StoredOffsets
from penstock.storage.manager.dir_identity import (
    check_owner,
    confirm_loss,
    create_log_dir,
    has_stored_loss,
    lock_log_dir,
    may_have_lost_records,
    store_loss,
)
from penstock.storage.manager.file_removal import DeletedDirectory, FileRemovals, RemovalTask
from penstock.storage.manager.log_discovery import (
    PARTITION_ERRNOS,
    IsHosted,
    StrayLog,
    list_partition_directories,
    load_error_of,
    rename_stray_logs,
)
from penstock.storage.staged_operation import StagedOperation, Steps

logger = logging.getLogger(__name__)

_WARNING_INTERVAL_MS = 10_000


class _LogToDelete(NamedTuple):
    partition: TopicPartition
    new_name: str
    """The name that its directory gets."""
    log: Log | None


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
        self.on_failed: Callable[[], None] = lambda: None
        """Called when the directory fails after the start, on the thread that noticed it."""
        self.load_errors: dict[TopicPartition, KafkaStorageError] = {}
        """Partitions whose files are invalid; they are offline, the others are not."""
        self.deferred_loads: dict[TopicPartition, Callable[[], Log]] = {}
        """Loads of those for which there was no room at the start, for any thread."""
        self.future_directories: dict[TopicPartition, str] = {}
        """Directory names of future logs that an interrupted move has left here."""
        self.transient_logs: dict[TopicPartition, Log] = {}
        """Logs that are being added or deleted. Their directory may exist after a crash, so the
        checkpoints include them."""
        self.found_logs = 0
        """How many logs the directory had when it was loaded."""
        self.is_loaded = False
        """Whether it is known which partitions are in the directory."""
        self.directory_id: UUID | None = None
        self._disk = disk
        self._clock = clock
        self._limits = limits
        self._roll_jitter = roll_jitter
        self._lock: Lock | None = None
        self._checkpoints = DirCheckpoints(disk, path)
        self._removals = FileRemovals(disk, lambda: self.logs.values())
        self._next_warning_ms = 0
        self.closed_logs = 0
        """The progress of `close`."""
        self.hanging_operations = 0
        """Creations and deletions that were given up and have not ended yet."""
        self.has_stale_checkpoint = False
        """Whether the checkpoints could not be written for lack of room. Until they are, no log is
        created: they may have offsets of a deleted partition of the same name."""

    def __repr__(self) -> str:
        status = "online" if self.is_online else "offline"
        return f"LogDir({self.path!r}, {status}, {len(self.logs)} logs)"

    @property
    def is_online(self) -> bool:
        return self.error is None

    @property
    def is_hanging(self) -> bool:
        """Whether the disk does not respond: no log is created here until it does."""
        return self.hanging_operations > 0

    def hang_error(self) -> KafkaStorageError:
        return KafkaStorageError(
            f"the disk of {self.path} does not respond",
            remedy="check the disk; it is used again when it responds",
        )

    # --- start

    def open(self, *, cluster_id: str | None, node_id: int) -> None:
        """Locks the directory and checks its owner.

        An I/O error or an invalid `meta.properties` takes it offline. Raises KafkaStorageError if
        the directory is in use or belongs to another broker. Does nothing if it is offline.
        """
        if not self.is_online:
            return
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

    def report_loss(self) -> None:
        """Notes that records may have been lost, until `confirm_loss`; may raise `OSError`."""
        store_loss(self._disk, self.path)
        self.may_have_lost_records = True

    def confirm_loss(self) -> None:
        """Notes that the controller knows that records may have been lost."""
        if self.may_have_lost_records and self.is_online:
            self.may_have_lost_records = False
            confirm_loss(self._disk, self.path)

    def _load_logs(self, config_of: Callable[[str], LogConfig]) -> None:
        clean = has_clean_shutdown(self._disk, self.path)
        # After the first append the directory is not clean any more.
        remove_clean_shutdown(self._disk, self.path)
        self.may_have_lost_records = may_have_lost_records(self._disk, self.path, clean)
        stored = self._checkpoints.load_offsets()
        cleaned_to = self._checkpoints.load(CLEANER_OFFSET_CHECKPOINT)
        rewrite = has_failed_marker(self._disk, self.path)
        directories = list_partition_directories(self._disk, self.path)
        self.future_directories.update(directories.future_names)
        self.found_logs = len(directories.partitions)
        for partition in directories.partitions:
            load = partial(
                self._load_stored_log,
                partition,
                config_of(partition.topic),
                stored,
                cleaned_to.get(partition, 0),
            )
            try:
                self.logs[partition] = load(clean=clean, rewrite=rewrite)
            except OSError as error:
                if error.errno not in PARTITION_ERRNOS and not is_lack_of_room(error):
                    raise
                self.set_load_error(partition, error)
                if is_lack_of_room(error):
                    # What the attempt has written may be incomplete, and lost by the kernel.
                    self.deferred_loads[partition] = partial(load, clean=False, rewrite=True)
            except Exception as error:  # noqa: BLE001 - one partition must not affect the others
                self.set_load_error(partition, error)
            if self.error is not None:
                self._release_abandoned_logs()
                return
        self._checkpoints.keep(stored, self.load_errors)
        if stored.are_outdated(self.logs, self.load_errors):
            self.checkpoint()
        if rewrite and not self.load_errors:
            remove_failed_marker(self._disk, self.path)
        self.is_loaded = True

    def _release_abandoned_logs(self) -> None:
        """Closes the files: the disk responds again, after the load was given up."""
        for log in self.logs.values():
            log.local.close_handlers()

    def set_load_error(self, partition: TopicPartition, error: Exception) -> None:
        """Takes one partition offline, because its files are invalid or cannot be read."""
        log = self.logs.pop(partition, None)
        if log is not None:
            log.local.close_handlers()
        load_error = load_error_of(partition, self.directory_of(partition), error)
        is_expected = isinstance(error, KafkaError | CorruptIndexError | OSError)
        logger.error("%s", load_error.message, exc_info=None if is_expected else error)
        self.load_errors[partition] = load_error
        self.deferred_loads.pop(partition, None)

    def add_deferred_log(self, log: Log) -> bool:
        """Adds a log for which there is room now; returns whether it still exists."""
        partition = log.partition
        if self.deferred_loads.pop(partition, None) is None:
            return False
        del self.load_errors[partition]
        self.logs[partition] = log
        self._checkpoints.forget(partition)
        return True

    def _load_stored_log(
        self,
        partition: TopicPartition,
        config: LogConfig,
        stored: StoredOffsets,
        cleaned_to: int,
        *,
        clean: bool,
        rewrite: bool,
    ) -> Log:
        metadata = load_partition_metadata(self._disk, self.directory_of(partition))
        return self._load_log(
            partition,
            config,
            topic_id=None if metadata is None else metadata.topic_id,
            clean=clean,
            recovery_point=stored.recovery_points.get(partition, 0),
            cleaned_to=cleaned_to,
            rewrite=rewrite,
            high_watermark=stored.high_watermarks.get(partition, 0),
            log_start_offset=stored.log_start_offsets.get(partition, 0),
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
            self.sync_created(log)
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
        """Returns an empty log of which nothing is durable yet. May run on another thread.

        Before it gets a record, `sync_created` and a sync of this directory must have returned.
        """
        path = self._path(name or str(partition))
        self._disk.make_directory(path)
        if topic_id is not None:
            write_partition_metadata(self._disk, path, topic_id)
        return self._load_log(
            partition, config, topic_id=topic_id, name=name, log_start_offset=log_start_offset
        )

    def sync_created(self, log: Log) -> None:
        """Makes the files of a new log durable. May run on another thread.

        Records without a topic id could be attributed to another topic, so it comes before them.
        """
        self.replace_created_files(log)
        self._disk.sync_directory(log.directory)

    def replace_created_files(self, log: Log) -> None:
        """The first half of `sync_created`; a sync of the log's directory is the other."""
        if log.topic_id is not None:
            replace_by_temporary(self._disk, f"{log.directory}/{PARTITION_METADATA}")
        if log.epochs.latest_entry is not None:
            replace_by_temporary(self._disk, log.epochs.path)

    def assign_topic_id(self, log: Log, topic_id: TopicId) -> None:
        """Gives its topic id to a log that was created, but not durably, before a crash.

        Without it, a topic that is deleted and created again would get the records of this one.
        """
        try:
            write_partition_metadata(self._disk, log.directory, topic_id)
            log.topic_id = topic_id
            self.sync_created(log)
        except OSError as error:
            log.topic_id = None
            raise self.failure_of(error) from error

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
        self.sync_created(log)
        log.guard.on_failure = lambda error: None
        self._disk.sync_directory(self.path)
        return log

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
            self._removals.add_directory(directory, now_ms + delay_ms)
        self.require_online()

    def _detach(self, partition: TopicPartition, reason: str) -> _LogToDelete:
        log = self.logs.pop(partition, None) or self.transient_logs.get(partition)
        self.load_errors.pop(partition, None)
        self.deferred_loads.pop(partition, None)
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
        return self._removals.begin(self._clock.now_ms())

    def finish_removal(self, task: RemovalTask) -> None:
        """Handles the error of a removal; without descriptors the rest is removed later."""
        if task.error is not None:
            self.fail(task.error)
            self._removals.add_unremoved(task, self._clock.now_ms())

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
            logger.error("%s", lack_of_room_error(self.path, error).message)

    def fail_for_any(self, error: Exception) -> None:
        """Takes the directory and all its logs offline, also for lack of room, and logs why."""
        if self.error is None:
            store_failed_marker(self._disk, self.path)
            logger.error("%s", self.take_offline(error).message)
            self.on_failed()

    def failure_of(self, error: Exception) -> KafkaStorageError:
        """Calls `fail`; returns the error for the operation that could not be done."""
        self.fail(error)
        return self.error if self.error is not None else lack_of_room_error(self.path, error)

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
        self._removals.close_logs()
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
        # If the loss could not be stored, the next start must notice it.
        is_loss_known = not self.may_have_lost_records or has_stored_loss(self._disk, self.path)
        is_complete = is_complete and is_loss_known
        if self.error is None and is_complete and not self.has_stale_checkpoint:
            try:
                store_clean_shutdown(self._disk, self.path)
            except OSError as error:
                self.fail(error)
