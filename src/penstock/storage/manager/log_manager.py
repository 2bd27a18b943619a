"""All logs of a broker, over several directories (`log.dirs`), and the chores that keep them.

Whatever waits for the disk has a form that the host runs on a thread: `begin_…` gives it. The
methods that do the same here and now are for the start, for the end, and for tests.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from penstock.core.clock import Clock
from penstock.core.errors import ErrorCode, KafkaError, KafkaStorageError
from penstock.core.ids import TopicId, TopicPartition
from penstock.storage.checkpoint.latest_files import FileWrite
from penstock.storage.disk import Disk, DiskSpace
from penstock.storage.file_names import MAX_NAME, future_directory_name
from penstock.storage.log.flush_task import FlushTask
from penstock.storage.log.log import Log
from penstock.storage.log.log_loader import ProducerLimits
from penstock.storage.log.retention import delete_old_segments
from penstock.storage.log.truncation import begin_full_truncation, begin_truncation
from penstock.storage.log_config import LogConfig
from penstock.storage.manager.file_removal import RemovalTask
from penstock.storage.manager.log_creation import LogCreation, NewLog
from penstock.storage.manager.log_deletion import deletion
from penstock.storage.manager.log_dir import LogDir
from penstock.storage.manager.log_discovery import DiscoveredLog, StrayLog
from penstock.storage.manager.log_listener import LogListener
from penstock.storage.manager.log_move import LogMove
from penstock.storage.manager.log_moves import LogMoves, resolve_duplicate_logs
from penstock.storage.staged_operation import StagedOperation, Steps


class MaintenanceIntervals(NamedTuple):
    """How often each chore is due, under the broker settings' names."""

    log_retention_check_interval_ms: int = 5 * 60 * 1000
    log_flush_offset_checkpoint_interval_ms: int = 60 * 1000
    producer_id_expiration_check_interval_ms: int = 10 * 60 * 1000


class PartitionSize(NamedTuple):
    """A log as DescribeLogDirs tells it."""

    partition: TopicPartition
    size: int
    offset_lag: int
    """How far a current log is behind its high watermark, a future one behind the current one."""
    is_future: bool


class LogDirDescription(NamedTuple):
    """A directory of `log.dirs` as DescribeLogDirs tells it."""

    path: str
    error: KafkaStorageError | None
    space: DiskSpace | None
    """None where the directory is offline."""
    partitions: list[PartitionSize]


class LogManager:
    """Finds, makes, deletes and keeps logs."""

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
        self._clock = clock
        self._intervals = intervals
        self.dirs = [
            LogDir(disk, path, clock, limits, roll_jitter=roll_jitter) for path in log_dirs
        ]
        self.watchers: list[LogListener] = []
        self.disk = disk
        self._moves = LogMoves(disk, self.watchers)
        self._preferred: dict[TopicPartition, LogDir] = {}
        now = clock.monotonic_ms()
        self._next_retention = now + intervals.log_retention_check_interval_ms
        self._next_checkpoint = now + intervals.log_flush_offset_checkpoint_interval_ms
        self._next_expiration = now + intervals.producer_id_expiration_check_interval_ms

    def startup(
        self, config_of: Callable[[str], LogConfig], *, node_id: int, cluster_id: str | None = None
    ) -> None:
        """Opens every directory and loads the logs in it: `open` and `load` in one."""
        self.open(node_id=node_id, cluster_id=cluster_id)
        self.load(config_of)

    def open(self, *, node_id: int, cluster_id: str | None = None) -> None:
        """Locks every directory. One that fails is offline; where all fail, that is an error.

        After an error every directory is closed again.
        """
        if not self.dirs:
            raise KafkaStorageError("log.dirs names no directory")
        try:
            for log_dir in self.dirs:
                log_dir.open(cluster_id=cluster_id, node_id=node_id)
            self._require_a_live_one()
        except Exception:
            self.shutdown()
            raise

    def _require_a_live_one(self) -> None:
        if not self.live_dirs:
            self.dirs[0].require_online()

    def found(self) -> list[DiscoveredLog]:
        """The partitions in the open directories, before they are loaded: names and topic ids."""
        return [found for log_dir in self.dirs for found in log_dir.found()]

    def load(
        self,
        config_of: Callable[[str], LogConfig],
        belongs: Callable[[TopicPartition, TopicId | None], bool] = lambda partition, topic_id: (
            True
        ),
    ) -> list[StrayLog]:
        """Loads the logs in the open directories, after a crash with recovery: that may take long.

        `config_of` gives the settings of a topic. What `belongs` says no to is renamed to
        `<topic>-<partition>.<uuid>-stray`, never deleted, and given back. After an error every
        directory is closed again.
        """
        try:
            strays = [stray for log_dir in self.dirs for stray in log_dir.load(config_of, belongs)]
            resolve_duplicate_logs(self.disk, self.dirs)
            self._require_a_live_one()
            self._refuse_doubles()
        except Exception:
            self.shutdown()
            raise
        return strays

    def _refuse_doubles(self) -> None:
        homes: dict[TopicPartition, LogDir] = {}
        for log_dir in self.dirs:
            for partition in log_dir.logs:
                if partition in homes:
                    raise KafkaStorageError(
                        f"{partition} is in {homes[partition].path} and in {log_dir.path}: "
                        f"move one of the two directories away"
                    )
                homes[partition] = log_dir

    @property
    def live_dirs(self) -> list[LogDir]:
        return [log_dir for log_dir in self.dirs if log_dir.online]

    def __iter__(self) -> Iterator[Log]:
        for log_dir in self.dirs:
            yield from log_dir.logs.values()

    def get(self, partition: TopicPartition) -> Log | None:
        """The partition's log, None where there is none; raises where its files are broken."""
        for log_dir in self.dirs:
            if log_dir.has(partition):
                return log_dir.log(partition)
        return None

    def get_or_create(
        self,
        partition: TopicPartition,
        config: LogConfig,
        topic_id: TopicId | None = None,
        *,
        is_new: bool = False,
    ) -> Log:
        """The partition's log; a new one goes to the live directory with the fewest logs.

        A directory that could not be opened may hold the log. One is made all the same only for a
        partition that `is_new` to this broker: an empty log would stand for lost records.
        """
        log = self._existing(partition, topic_id)
        if log is not None:
            return log
        home = self._place_for(partition, {}, is_new=is_new)
        log = home.create(partition, config, topic_id)
        self._preferred.pop(partition, None)
        return log

    def _existing(self, partition: TopicPartition, topic_id: TopicId | None) -> Log | None:
        log = self.get(partition)
        if log is not None and topic_id is not None and log.topic_id not in (None, topic_id):
            raise KafkaError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"{partition} has topic id {log.topic_id} on disk, not {topic_id}: "
                f"the topic was deleted and created again; delete the old directory "
                f"{log.directory}",
            )
        return log

    def _place_for(
        self, partition: TopicPartition, planned: Mapping[LogDir, int], *, is_new: bool
    ) -> LogDir:
        """Where a new log goes; `planned` counts the logs that are not made yet."""
        live = self.live_dirs
        if not live:
            raise KafkaStorageError("every directory of log.dirs is offline")
        unknown = [log_dir.path for log_dir in self.dirs if not log_dir.loaded]
        if unknown and not is_new:
            raise KafkaStorageError(
                f"{partition} may be in {', '.join(unknown)}, which could not be opened: mend "
                f"the disk and restart the broker"
            )
        home = self._preferred.get(partition)
        if home is not None and home.online:
            return home
        return min(live, key=lambda log_dir: len(log_dir.logs) + planned.get(log_dir, 0))

    def begin_create(self, new: Sequence[NewLog], *, is_new: bool = False) -> LogCreation:
        """`get_or_create` for many logs, the slow part of which `run`s on any thread.

        Give it to `finish_create` then, and leave the partitions alone until that has returned.
        """
        count: Counter[LogDir] = Counter()
        planned: list[tuple[LogDir, NewLog]] = []
        existing: dict[TopicPartition, Log] = {}
        for each in new:
            log = self._existing(each.partition, each.topic_id)
            if log is not None:
                existing[each.partition] = log
                continue
            home = self._place_for(each.partition, count, is_new=is_new)
            count[home] += 1
            planned.append((home, each))
        return LogCreation(self.disk, planned, existing)

    def finish_create(self, creation: LogCreation) -> dict[TopicPartition, Log | KafkaStorageError]:
        """The logs, or why one could not be made. An I/O error takes its directory offline."""
        for log_dir, error in creation.errors.items():
            log_dir.fail(error)
        results: dict[TopicPartition, Log | KafkaStorageError] = dict(creation.existing)
        for log_dir, new in creation.planned:
            log = creation.made.get(new.partition)
            if log_dir.error is not None:
                if log is not None:
                    log.local.close_handlers()
                results[new.partition] = log_dir.error
            elif log is not None:
                log_dir.logs[new.partition] = results[new.partition] = log
                self._preferred.pop(new.partition, None)
        return results

    def delete(self, partition: TopicPartition) -> None:
        """Deletes the partition's log; its files go after `file.delete.delay.ms`."""
        self._home_of(partition)
        for error in self.delete_all([partition]):
            raise error

    def delete_all(self, partitions: Iterable[TopicPartition]) -> list[KafkaError]:
        """`begin_deletion`, here and now."""
        partitions = list(partitions)
        for partition in partitions:
            self.cancel_move(partition)
        self._moves.finish_swaps(partitions)
        return self.begin_deletion(partitions).complete()

    def begin_deletion(
        self, partitions: Iterable[TopicPartition]
    ) -> StagedOperation[list[KafkaError]]:
        """`delete` for many, with one wait for each directory; the result is what went wrong.

        After the first `advance` there are no such logs any more. Until it has ended, none may be
        made for these partitions: the directories still have their names.
        """
        return StagedOperation(self._delete(list(partitions)))

    def _delete(self, partitions: Sequence[TopicPartition]) -> Steps[list[KafkaError]]:
        homes: dict[LogDir, list[TopicPartition]] = {}
        errors: list[KafkaError] = []
        for partition in partitions:
            try:
                home = self._home_of(partition)
            except KafkaError as error:
                errors.append(error)
                continue
            self.cancel_move(partition)
            for watcher in self.watchers:
                watcher.deleted(partition)
            homes.setdefault(home, []).append(partition)
        errors += yield from deletion(homes, self._moves.end_of_swaps(partitions), self._stores)
        return errors

    def _stores(self, log_dir: LogDir) -> list[FileWrite]:
        """What the watchers have to store in a directory."""
        stores = [watcher.begin_store(log_dir) for watcher in self.watchers]
        return [each for each in stores if each is not None]

    def truncate_to(self, partition: TopicPartition, offset: int) -> bool:
        """`begin_truncation`, here and now."""
        return self.begin_truncation(partition, offset).complete()

    def begin_truncation(self, partition: TopicPartition, offset: int) -> StagedOperation[bool]:
        """Truncates a log and stores its recovery point before anything can be appended.

        Otherwise a crash would trust records above the truncation that are not the same any more.
        Until it has ended nothing may be appended; see `Log.begin_truncation`.
        """
        return StagedOperation(self._truncate(partition, offset))

    def _truncate(self, partition: TopicPartition, offset: int) -> Steps[bool]:
        home = self._home_of(partition)
        self._moves.truncated(partition)
        truncated = yield from begin_truncation(home.log(partition), offset).steps
        yield from self._after_truncation(home, partition, offset)
        return truncated

    def truncate_fully_and_start_at(self, partition: TopicPartition, offset: int) -> None:
        """`begin_full_truncation`, here and now."""
        self.begin_full_truncation(partition, offset).complete()

    def begin_full_truncation(
        self, partition: TopicPartition, offset: int
    ) -> StagedOperation[None]:
        """Empties a log, which then starts at `offset`; stores that as `begin_truncation` does."""
        return StagedOperation(self._truncate_fully(partition, offset))

    def _truncate_fully(self, partition: TopicPartition, offset: int) -> Steps[None]:
        home = self._home_of(partition)
        self._moves.truncated(partition)
        yield from begin_full_truncation(home.log(partition), offset).steps
        yield from self._after_truncation(home, partition, offset)

    def _after_truncation(
        self, home: LogDir, partition: TopicPartition, offset: int
    ) -> Steps[None]:
        self._moves.truncated(partition)
        for watcher in self.watchers:
            watcher.truncated(partition, offset)
        for file in (home.begin_checkpoint(), *self._stores(home)):
            if file is not None:
                yield file.run
                home.finish_checkpoint(file)

    def _home_of(self, partition: TopicPartition) -> LogDir:
        for log_dir in self.dirs:
            if log_dir.has(partition):
                return log_dir
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition} has no log on this broker"
        )

    # --- moves

    def prefer_dir(self, partition: TopicPartition, path: str) -> None:
        """Has the partition's log made in this directory, once it is made."""
        self._preferred[partition] = self._dir_at(path)

    def _dir_at(self, path: str) -> LogDir:
        for log_dir in self.dirs:
            if log_dir.path == path:
                log_dir.require_online()
                return log_dir
        raise KafkaError(
            ErrorCode.LOG_DIR_NOT_FOUND,
            f"{path} is no directory of log.dirs: use one of "
            f"{', '.join(log_dir.path for log_dir in self.dirs)}",
        )

    def begin_move(self, partition: TopicPartition, path: str) -> LogMove | None:
        """Starts to move a partition to another directory (AlterReplicaLogDirs).

        The host has it go on until it has ended::

            while not manager.advance_move(move):
                await loop.run_in_executor(pool, move.run)

        None where there is nothing to do: the partition is there, or on its way there. A move to
        another directory ends, as does any move where `path` is the current directory. A partition
        without a log raises REPLICA_NOT_AVAILABLE, and is made in `path` when it is made.
        """
        target = self._dir_at(path)
        if len(future_directory_name(partition, "0" * 32).encode()) > MAX_NAME:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"the name of {partition.topic} is too long"
            )
        under_way = self._moves.get(partition)
        if under_way is not None:
            if under_way.target is target:
                return None
            self.cancel_move(partition)
        if not any(log_dir.has(partition) for log_dir in self.dirs):
            self.prefer_dir(partition, path)
            raise KafkaError(
                ErrorCode.REPLICA_NOT_AVAILABLE,
                f"{partition} has no log on this broker; one that is made will be in {path}",
            )
        source = self._home_of(partition)
        if source is target:
            return None
        for log_dir in self.dirs:
            # It may hold an earlier copy.
            log_dir.require_online()
        log = source.log(partition)
        if log.failure is not None:
            raise log.failure
        move = self._moves.begin(partition, source, target)
        for watcher in self.watchers:
            watcher.move_began(partition)
        return move

    def advance_move(self, move: LogMove) -> bool:
        """Takes over what `move.run` did. False: run it again, on any thread. True: it has ended.

        Once `move.done` the partition was moved: `get` has another log for it, and the one before
        takes no more records. There is still something to run then. A move that has ended without
        that was cancelled, or `move.error` says why.
        """
        return self._moves.advance(move)

    def cancel_move(self, partition: TopicPartition) -> None:
        """Ends the partition's move, if there is one. The host advances it to its end."""
        self._moves.cancel(partition)

    def unfinished_moves(self) -> list[tuple[TopicPartition, str]]:
        """The moves that a stop or a crash has interrupted, for the host to begin again."""
        return [
            (partition, log_dir.path)
            for log_dir in self.dirs
            for partition in log_dir.futures
            if any(other.has(partition) for other in self.dirs)
        ]

    def describe(self) -> list[LogDirDescription]:
        """All directories and what is in them (DescribeLogDirs)."""
        return [self._describe(log_dir) for log_dir in self.dirs]

    def _describe(self, log_dir: LogDir) -> LogDirDescription:
        if log_dir.error is not None:
            return LogDirDescription(log_dir.path, log_dir.error, None, [])
        try:
            space = self.disk.space(log_dir.path)
        except OSError as error:
            log_dir.fail(error)
            return LogDirDescription(log_dir.path, log_dir.error, None, [])
        partitions = [
            PartitionSize(
                log.partition, log.size, max(log.high_watermark - log.log_end_offset, 0), False
            )
            for log in log_dir.logs.values()
        ]
        partitions += (
            PartitionSize(move.partition, move.size, move.lag, True)
            for move in self._moves.into(log_dir)
        )
        return LogDirDescription(log_dir.path, None, space, partitions)

    # --- chores

    def tick(self) -> list[tuple[Log, FlushTask]]:
        """Does all chores that are due, here and now, but for the flushes: see `due_flushes`."""
        for log_dir, removal in self.begin_removals():
            removal.run()
            log_dir.finish_removal(removal)
        for log_dir, checkpoint in self.begin_checkpoints():
            checkpoint.run()
            log_dir.finish_checkpoint(checkpoint)
        self.retain()
        return self.due_flushes()

    def retain(self) -> None:
        """Retention, and forgetting of producers, where due. Waits for no disk."""
        now = self._clock.monotonic_ms()
        if now >= self._next_retention:
            self._next_retention = now + self._intervals.log_retention_check_interval_ms
            self._each(lambda log: delete_old_segments(log))
        if now >= self._next_expiration:
            self._next_expiration = now + self._intervals.producer_id_expiration_check_interval_ms
            wall_ms = self._clock.now_ms()
            self._each(lambda log: log.producers.remove_expired(wall_ms))

    def due_flushes(self) -> list[tuple[Log, FlushTask]]:
        """The flushes that are due.

        The host runs each task on a thread and hands it to `Log.finish_flush`.
        """
        tasks: list[tuple[Log, FlushTask]] = []
        for log in self:
            if log.failure is None and log.is_flush_due:
                task = log.begin_flush()
                if task is not None:
                    tasks.append((log, task))
        return tasks

    def begin_checkpoints(self) -> list[tuple[LogDir, FileWrite]]:
        """The checkpoints that are due.

        The host runs each task on a thread and hands it to `LogDir.finish_checkpoint`.
        """
        now = self._clock.monotonic_ms()
        if now < self._next_checkpoint:
            return []
        self._next_checkpoint = now + self._intervals.log_flush_offset_checkpoint_interval_ms
        tasks = [(log_dir, log_dir.begin_checkpoint()) for log_dir in self.live_dirs]
        return [(log_dir, task) for log_dir, task in tasks if task is not None]

    def begin_removals(self) -> list[tuple[LogDir, RemovalTask]]:
        """The deleted files whose time has come.

        The host runs each task on a thread and hands it to `LogDir.finish_removal`.
        """
        tasks = [(log_dir, log_dir.begin_removal()) for log_dir in self.live_dirs]
        return [(log_dir, task) for log_dir, task in tasks if task is not None]

    def _each(self, chore: Callable[[Log], object]) -> None:
        for log in self:
            if log.failure is None:
                try:
                    chore(log)
                except KafkaStorageError:
                    # The log has said so and taken its directory offline; the others go on.
                    continue

    def shutdown(self) -> None:
        """Flushes and closes everything and marks the directories clean.

        Flushes, cleanings and steps of moves that were handed out must be finished before.
        """
        self._moves.close()
        for log_dir in self.dirs:
            log_dir.close()
