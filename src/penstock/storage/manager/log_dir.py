"""One directory of `log.dirs`: its lock, its identity, its checkpoint_files, the partitions in it.

A directory fails as a whole: an I/O error in one partition takes all that share the disk offline,
and none on another one.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple
from uuid import UUID, uuid4

from penstock.core.clock import Clock
from penstock.core.errors import KafkaError, KafkaStorageError
from penstock.core.ids import TopicId, TopicPartition
from penstock.storage.checkpoint import checkpoint_files
from penstock.storage.checkpoint.checkpoint_files import MetaProperties
from penstock.storage.checkpoint.latest_files import FileWrite
from penstock.storage.disk import Disk, Lock
from penstock.storage.file_names import (
    DELETE_DIRECTORY_SUFFIX,
    deleted_directory_name,
    parse_future_directory,
)
from penstock.storage.index.mapped_index import CorruptIndexError
from penstock.storage.log.log import Log
from penstock.storage.log.log_loader import ProducerLimits, load_log
from penstock.storage.log_config import LogConfig
from penstock.storage.manager.dir_checkpoints import DirCheckpoints
from penstock.storage.manager.file_removal import DeletedDirectory, RemovalTask
from penstock.storage.manager.log_discovery import (
    DiscoveredLog,
    StrayLog,
    discover_logs,
    partition_in,
    set_strays_aside,
)
from penstock.storage.staged_operation import StagedOperation, Steps, Work

_log = logging.getLogger(__name__)


class _DirectoryRename(NamedTuple):
    """A partition's directory that gets another name."""

    partition: TopicPartition
    new_name: str
    log: Log | None


class LogDir:
    """A directory with logs: `open` it, then `load` them. After a failure `error` says why."""

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
        self.logs: dict[TopicPartition, Log] = {}
        self.error: KafkaStorageError | None = None
        self.broken: dict[TopicPartition, KafkaStorageError] = {}
        """Partitions whose files could not be understood; they are offline, the others are not."""
        self.futures: dict[TopicPartition, str] = {}
        """Names of the directories that a move into this one left behind, when it was loaded."""
        self.loaded = False
        """Whether it is known which partitions are in the directory."""
        self.directory_id: UUID | None = None
        self._disk = disk
        self._clock = clock
        self._limits = limits
        self._roll_jitter = roll_jitter
        self._lock: Lock | None = None
        self._condemned: list[tuple[int, str, Log | None]] = []
        self.passing: dict[TopicPartition, Log] = {}
        """Logs that come or go: their directory may be there after a crash, so that the checkpoints
        name them too."""
        self._checkpoints = DirCheckpoints(disk, path)

    def __repr__(self) -> str:
        state = "online" if self.error is None else "offline"
        return f"LogDir({self.path!r}, {state}, {len(self.logs)} logs)"

    @property
    def online(self) -> bool:
        return self.error is None

    # --- opening

    def open(self, *, cluster_id: str | None, node_id: int) -> None:
        """Locks the directory and looks whose it is; a disk error takes the directory offline.

        Raises where the directory is another broker's: it is in use, or belongs to another node.
        """
        try:
            self._make_directory()
            self._take_lock()
            self._check_identity(cluster_id, node_id)
        except OSError as error:
            self.fail(error)

    def found(self) -> list[DiscoveredLog]:
        """The partitions that have a directory here, by its name and the topic id in it."""
        if self.error is not None:
            return []
        try:
            return discover_logs(self._disk, self.path)
        except OSError as error:
            self.fail(error)
            return []

    def load(
        self,
        config_of: Callable[[str], LogConfig],
        belongs: Callable[[TopicPartition, TopicId | None], bool] = lambda partition, topic_id: (
            True
        ),
    ) -> list[StrayLog]:
        """Loads every log that `belongs` here; the directories of others are renamed, and told."""
        strays: list[StrayLog] = []
        if self.error is None:
            try:
                if belongs is not None:
                    strays = set_strays_aside(self._disk, self.path, belongs)
                self._load_all(config_of)
            except OSError as error:
                self.fail(error)
        return strays

    def _make_directory(self) -> None:
        directory = Path(self.path)
        new = [path for path in (directory, *directory.parents) if not self._disk.exists(str(path))]
        self._disk.make_directory(self.path)
        for path in new:
            # Whatever is synced in a directory is lost with the directory's own name.
            self._disk.sync_directory(str(path.parent))

    def _take_lock(self) -> None:
        self._lock = self._disk.lock(self._file(".lock"))
        if self._lock is None:
            raise KafkaStorageError(
                f"{self.path} is in use by another process, or named twice in log.dirs: stop that "
                f"process, or name another directory"
            )

    def _check_identity(self, cluster_id: str | None, node_id: int) -> None:
        known = checkpoint_files.load_meta_properties(self._disk, self.path)
        if known is None:
            # Version 1 is not valid without the id of a cluster.
            version = 0 if cluster_id is None else 1
            known = MetaProperties(version, cluster_id, node_id, uuid4())
            checkpoint_files.store_meta_properties(self._disk, self.path, known)
        if known.node_id is not None and known.node_id != node_id:
            raise KafkaStorageError(
                f"{self.path} belongs to node {known.node_id}, this is node {node_id}: "
                f"set node.id={known.node_id}, or name another directory in log.dirs"
            )
        if None not in (cluster_id, known.cluster_id) and known.cluster_id != cluster_id:
            raise KafkaStorageError(
                f"{self.path} belongs to cluster {known.cluster_id}, this is cluster "
                f"{cluster_id}: name another directory in log.dirs"
            )
        self.directory_id = known.directory_id

    def _load_all(self, config_of: Callable[[str], LogConfig]) -> None:
        clean = checkpoint_files.has_clean_shutdown(self._disk, self.path)
        # From the first append on the directory is not clean any more.
        checkpoint_files.remove_clean_shutdown(self._disk, self.path)
        recovery_points = self._checkpoints.load(checkpoint_files.RECOVERY_POINT_CHECKPOINT)
        high_watermarks = self._checkpoints.load(checkpoint_files.REPLICATION_OFFSET_CHECKPOINT)
        start_offsets = self._checkpoints.load(checkpoint_files.LOG_START_OFFSET_CHECKPOINT)
        cleaned_to = self._checkpoints.load(checkpoint_files.CLEANER_OFFSET_CHECKPOINT)
        for name in self._disk.names(self.path):
            directory = self._file(name)
            if not self._disk.is_directory(directory):
                continue
            if name.endswith(DELETE_DIRECTORY_SUFFIX):
                self._disk.remove_directory(directory)
                continue
            future = parse_future_directory(name)
            if future is not None:
                self.futures[future] = name
                continue
            partition = partition_in(name)
            if partition is None:
                _log.warning("%s is no partition; left alone", directory)
                continue
            try:
                metadata = checkpoint_files.load_partition_metadata(self._disk, directory)
                self.logs[partition] = self._load_log(
                    partition,
                    config_of(partition.topic),
                    topic_id=None if metadata is None else metadata.topic_id,
                    clean=clean,
                    recovery_point=recovery_points.get(partition, 0),
                    cleaned_to=cleaned_to.get(partition, 0),
                    high_watermark=high_watermarks.get(partition, 0),
                    log_start_offset=start_offsets.get(partition, 0),
                )
            except (KafkaError, CorruptIndexError) as error:
                self._set_broken(partition, error)
        loaded = {
            checkpoint_files.RECOVERY_POINT_CHECKPOINT: recovery_points,
            checkpoint_files.REPLICATION_OFFSET_CHECKPOINT: high_watermarks,
            checkpoint_files.LOG_START_OFFSET_CHECKPOINT: start_offsets,
        }
        for name, offsets in loaded.items():
            self._checkpoints.keep(
                name, {key: offset for key, offset in offsets.items() if key in self.broken}
            )
        if self._are_outdated(loaded):
            self.checkpoint()
        self.loaded = True

    def _set_broken(self, partition: TopicPartition, error: KafkaError | CorruptIndexError) -> None:
        if not isinstance(error, KafkaStorageError):
            error = KafkaStorageError(
                f"{partition} cannot be loaded: {error}. Restore {self._file(str(partition))}, or "
                f"move it away and have it copied from another replica"
            )
        _log.error("%s is offline: %s", partition, error.message)
        self.broken[partition] = error

    def _are_outdated(self, loaded: Mapping[str, Mapping[TopicPartition, int]]) -> bool:
        """Whether a checkpoint must not be read again.

        A partition that is gone may come again, with other records at the same offsets. So may
        records between the end of a log and its recovery point, if some were lost.
        """
        known = self.logs.keys() | self.broken.keys()
        if any(offsets.keys() - known for offsets in loaded.values()):
            return True
        recovery_points = loaded[checkpoint_files.RECOVERY_POINT_CHECKPOINT]
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
        high_watermark: int = 0,
        log_start_offset: int = 0,
    ) -> Log:
        return load_log(
            self._disk,
            self._file(name or str(partition)),
            partition,
            config,
            self._clock,
            clean=clean,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            cleaned_to=cleaned_to,
            high_watermark=high_watermark,
            topic_id=topic_id,
            limits=self._limits,
            on_failure=self.fail,
            roll_jitter=self._roll_jitter,
        )

    def _file(self, name: str) -> str:
        return f"{self.path}/{name}"

    # --- logs come and go

    def has(self, partition: TopicPartition) -> bool:
        return partition in self.logs or partition in self.broken

    def log(self, partition: TopicPartition) -> Log:
        """The partition's log; raises where its files are broken."""
        if partition in self.broken:
            raise self.broken[partition]
        return self.logs[partition]

    def create(self, partition: TopicPartition, config: LogConfig, topic_id: TopicId | None) -> Log:
        """A new, empty log."""
        self.require_online()
        try:
            log = self.make_log(partition, config, topic_id)
            self._disk.sync_directory(self.path)
        except OSError as error:
            self.fail(error)
            self.require_online()
            raise
        self.logs[partition] = log
        return log

    def make_log(
        self,
        partition: TopicPartition,
        config: LogConfig,
        topic_id: TopicId | None,
        *,
        name: str | None = None,
        log_start_offset: int = 0,
    ) -> Log:
        """An empty log in a directory that is not durable yet. May run on another thread."""
        directory = self._file(name or str(partition))
        self._disk.make_directory(directory)
        if topic_id is not None:
            # Before any record: records without a topic id could be taken for another topic's.
            checkpoint_files.store_partition_metadata(self._disk, directory, topic_id)
        log = self._load_log(
            partition, config, topic_id=topic_id, name=name, log_start_offset=log_start_offset
        )
        self._disk.sync_directory(directory)
        return log

    def make_future(
        self,
        name: str,
        partition: TopicPartition,
        config: LogConfig,
        topic_id: TopicId | None,
        log_start_offset: int,
    ) -> Log:
        """An empty log for a move into this directory. May run on another thread."""
        self._disk.remove_directory(self._file(name))
        log = self.make_log(
            partition, config, topic_id, name=name, log_start_offset=log_start_offset
        )
        log.guard.on_failure = lambda error: None
        self._disk.sync_directory(self.path)
        return log

    def begin_adoption(self, log: Log) -> Work:
        """Gives the directory of a log that was moved here its partition's name, on any thread.

        `adopt` or `begin_return` comes next. After an `OSError` it is not known which name the
        directory has.
        """
        return partial(self._rename, log.directory, self._file(str(log.partition)))

    def begin_return(self, log: Log, name: str) -> Work:
        """Undoes `begin_adoption`: the log's directory gets the name that it had before."""
        return partial(self._rename, log.directory, self._file(name))

    def _rename(self, source: str, target: str) -> None:
        self._disk.rename(source, target)
        self._disk.sync_directory(self.path)

    def adopt(self, log: Log) -> None:
        """From now on this is the partition's log."""
        log.guard.on_failure = self.fail
        self.logs[log.partition] = log

    def delete(self, partition: TopicPartition, reason: str = "was deleted") -> None:
        """Takes a log away, a broken one too. Its directory is renamed at once, removed later."""
        self.delete_all([partition], reason)

    def delete_all(self, partitions: Iterable[TopicPartition], reason: str = "was deleted") -> None:
        """`delete` for many, with one wait for the disk."""
        StagedOperation(self.deletion(partitions, reason)).complete()

    def deletion(
        self, partitions: Iterable[TopicPartition], reason: str = "was deleted"
    ) -> Steps[None]:
        """`delete_all` in steps. The logs are nobody's from the first turn on.

        No log of these partitions may be made in this directory until it has ended. Everything else
        may go on: the directories are renamed under files that are open.
        """
        self.require_online()
        gone = [self._take_away(partition, reason) for partition in partitions]
        try:
            yield partial(self._rename_deleted, gone)
            for each in gone:
                self.passing.pop(each.partition, None)
                self._checkpoints.forget(each.partition)
            stored = self.begin_checkpoint()
            if stored is not None:
                yield stored.write
        except OSError as error:
            self.fail(error)
        now_ms = self._clock.now_ms()
        for each in gone:
            delay_ms = 0 if each.log is None else each.log.config.file_delete_delay_ms
            self._condemned.append((now_ms + delay_ms, each.new_name, each.log))
        self.require_online()

    def _take_away(self, partition: TopicPartition, reason: str) -> _DirectoryRename:
        log = self.logs.pop(partition, None) or self.passing.get(partition)
        self.broken.pop(partition, None)
        if log is not None:
            # Nobody may append to its files, and a flush that misses them is no failed disk.
            log.guard.stop(KafkaStorageError(f"{partition} {reason}"))
            # As long as it has its name it may be back after a crash.
            self.passing[partition] = log
        return _DirectoryRename(partition, deleted_directory_name(partition, uuid4().hex), log)

    def _rename_deleted(self, gone: Iterable[_DirectoryRename]) -> None:
        for each in gone:
            self._disk.rename(self._file(str(each.partition)), self._file(each.new_name))
        self._disk.sync_directory(self.path)

    def purge(self) -> None:
        """Removes what was deleted long enough ago."""
        task = self.begin_removal()
        if task is not None:
            task.run()
            self.finish_removal(task)

    def begin_removal(self) -> RemovalTask | None:
        """What was deleted long enough ago, to be removed on any thread; None for nothing."""
        now_ms = self._clock.now_ms()
        directories = [
            DeletedDirectory(self._file(name), log)
            for due_ms, name, log in self._condemned
            if due_ms <= now_ms
        ]
        if directories:
            self._condemned = [item for item in self._condemned if item[0] > now_ms]
        segments = [
            segment
            for log in self.logs.values()
            for segment in log.local.take_removable_segments(now_ms)
        ]
        if not directories and not segments:
            return None
        return RemovalTask(self._disk, directories, segments)

    def finish_removal(self, task: RemovalTask) -> None:
        if task.error is not None:
            self.fail(task.error)

    # --- checkpoint_files, failure, end

    def checkpoint(self) -> None:
        """Stores the recovery points, high watermarks and log start offsets, here and now."""
        task = self.begin_checkpoint()
        if task is not None:
            task.run()
            self.finish_checkpoint(task)

    def begin_checkpoint(self) -> FileWrite | None:
        """`checkpoint` for another thread; None where the directory is offline.

        Any number of them may run at the same time: what was begun last stays.
        """
        if self.error is not None:
            return None
        return self._checkpoints.take({**self.passing, **self.logs})

    def finish_checkpoint(self, task: FileWrite) -> None:
        if task.error is not None:
            self.fail(task.error)

    def fail(self, error: OSError) -> None:
        """Takes the directory and all its logs offline."""
        if self.error is not None:
            return
        self.error = KafkaStorageError(
            f"{self.path} is offline: {error.strerror or error}. Its partitions take no more "
            f"records; mend the disk or free space on it, then restart the broker"
        )
        _log.error("%s", self.error.message)
        for log in self.logs.values():
            log.guard.stop(self.error)

    def require_online(self) -> None:
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        """Closes the logs and marks the directory clean, if all of it could be written.

        A directory that could not be opened is let go of as it is: it may be another broker's.
        """
        lock, self._lock = self._lock, None
        if lock is None:
            return
        for log in self.logs.values():
            try:
                log.close()
            except KafkaStorageError as error:
                _log.error("could not close %s: %s", log.partition, error.message)
        for _, _, deleted in self._condemned:
            if deleted is not None:
                deleted.local.close_handlers()
        if self.loaded:
            self.checkpoint()
            self._mark_clean()
        lock.release()

    def _mark_clean(self) -> None:
        # A broken partition was not recovered: the next start must not take it for clean.
        if self.error is None and not self.broken:
            try:
                checkpoint_files.store_clean_shutdown(self._disk, self.path)
            except OSError as error:
                self.fail(error)
