"""All logs of a broker, over several folders (`log.dirs`), and the chores that keep them.

The manager never waits for a disk on its own account: `tick` gives back the flushes that are due,
for the host to run on a thread.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from penstock.core.clock import Clock
from penstock.core.errors import ErrorCode, KafkaError, KafkaStorageError
from penstock.core.ids import TopicId, TopicPartition
from penstock.storage.config import LogConfig
from penstock.storage.disk import Disk
from penstock.storage.local_log import FlushTask
from penstock.storage.log import Log
from penstock.storage.log_dir import LogDir
from penstock.storage.recovery import ProducerLimits


class ChoreIntervals(NamedTuple):
    """How often each chore is due, under the broker settings' names."""

    log_retention_check_interval_ms: int = 5 * 60 * 1000
    log_flush_offset_checkpoint_interval_ms: int = 60 * 1000
    producer_id_expiration_check_interval_ms: int = 10 * 60 * 1000


class LogWatcher(Protocol):
    """Who must know when a log loses its end, or is deleted: the cleaner."""

    def truncated(self, partition: TopicPartition, offset: int) -> None:
        """The log now ends at `offset`; nothing was appended yet."""
        ...

    def deleted(self, partition: TopicPartition) -> None:
        """The log is about to be deleted."""
        ...


class LogManager:
    """Finds, makes, deletes and keeps logs."""

    def __init__(
        self,
        disk: Disk,
        log_dirs: Sequence[str],
        clock: Clock,
        *,
        limits: ProducerLimits = ProducerLimits(),
        intervals: ChoreIntervals = ChoreIntervals(),
        roll_jitter: Callable[[int], int] = lambda limit: 0,
    ) -> None:
        self._clock = clock
        self._intervals = intervals
        self.dirs = [
            LogDir(disk, path, clock, limits, roll_jitter=roll_jitter) for path in log_dirs
        ]
        self.watchers: list[LogWatcher] = []
        now = clock.monotonic_ms()
        self._next_retention = now + intervals.log_retention_check_interval_ms
        self._next_checkpoint = now + intervals.log_flush_offset_checkpoint_interval_ms
        self._next_expiration = now + intervals.producer_id_expiration_check_interval_ms

    def startup(
        self, config_of: Callable[[str], LogConfig], *, node_id: int, cluster_id: str | None = None
    ) -> None:
        """Opens every folder. One that fails is offline; where all fail, that is an error.

        `config_of` gives the settings of a topic. After an error every folder is closed again.
        """
        if not self.dirs:
            raise KafkaStorageError("log.dirs names no folder")
        try:
            for log_dir in self.dirs:
                log_dir.open(config_of, cluster_id=cluster_id, node_id=node_id)
            if not self.live_dirs:
                self.dirs[0].require_online()
            self._refuse_doubles()
        except Exception:
            self.shutdown()
            raise

    def _refuse_doubles(self) -> None:
        homes: dict[TopicPartition, LogDir] = {}
        for log_dir in self.dirs:
            for partition in log_dir.logs:
                if partition in homes:
                    raise KafkaStorageError(
                        f"{partition} is in {homes[partition].path} and in {log_dir.path}: "
                        f"move one of the two folders away"
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
        """The partition's log; a new one goes to the live folder with the fewest logs.

        A folder that could not be opened may hold the log. One is made all the same only for a
        partition that `is_new` to this broker: an empty log would stand for lost records.
        """
        log = self.get(partition)
        if log is not None:
            if topic_id is not None and log.topic_id not in (None, topic_id):
                raise KafkaError(
                    ErrorCode.INCONSISTENT_TOPIC_ID,
                    f"{partition} has topic id {log.topic_id} on disk, not {topic_id}: "
                    f"the topic was deleted and created again; delete the old folder "
                    f"{log.folder}",
                )
            return log
        live = self.live_dirs
        if not live:
            raise KafkaStorageError("every folder of log.dirs is offline")
        unknown = [log_dir.path for log_dir in self.dirs if not log_dir.loaded]
        if unknown and not is_new:
            raise KafkaStorageError(
                f"{partition} may be in {', '.join(unknown)}, which could not be opened: mend "
                f"the disk and restart the broker"
            )
        home = min(live, key=lambda log_dir: len(log_dir.logs))
        return home.create(partition, config, topic_id)

    def delete(self, partition: TopicPartition) -> None:
        """Deletes the partition's log; its files go after `file.delete.delay.ms`."""
        home = self._home_of(partition)
        for watcher in self.watchers:
            watcher.deleted(partition)
        home.delete(partition)

    def truncate_to(self, partition: TopicPartition, offset: int) -> bool:
        """Truncates a log and stores its recovery point before anything can be appended.

        Otherwise a crash would trust records above the truncation that are not the same any more.
        """
        home = self._home_of(partition)
        truncated = home.log(partition).truncate_to(offset)
        self._after_truncation(home, partition, offset)
        return truncated

    def truncate_fully_and_start_at(self, partition: TopicPartition, offset: int) -> None:
        """Empties a log, which then starts at `offset`; stores that as `truncate_to` does."""
        home = self._home_of(partition)
        home.log(partition).truncate_fully_and_start_at(offset)
        self._after_truncation(home, partition, offset)

    def _after_truncation(self, home: LogDir, partition: TopicPartition, offset: int) -> None:
        home.checkpoint()
        for watcher in self.watchers:
            watcher.truncated(partition, offset)

    def _home_of(self, partition: TopicPartition) -> LogDir:
        for log_dir in self.dirs:
            if log_dir.has(partition):
                return log_dir
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition} has no log on this broker"
        )

    # --- chores

    def tick(self) -> list[tuple[Log, FlushTask]]:
        """Does the chores that are due; gives back the flushes, which may take long.

        The host runs each task on a thread and hands it to `Log.finish_flush`.
        """
        now = self._clock.monotonic_ms()
        if now >= self._next_retention:
            self._next_retention = now + self._intervals.log_retention_check_interval_ms
            self._each(lambda log: log.delete_old_segments())
        if now >= self._next_expiration:
            self._next_expiration = now + self._intervals.producer_id_expiration_check_interval_ms
            wall_ms = self._clock.now_ms()
            self._each(lambda log: log.producers.remove_expired(wall_ms))
        if now >= self._next_checkpoint:
            self._next_checkpoint = now + self._intervals.log_flush_offset_checkpoint_interval_ms
            for log_dir in self.live_dirs:
                log_dir.checkpoint()
        for log_dir in self.live_dirs:
            log_dir.purge()
        tasks: list[tuple[Log, FlushTask]] = []
        for log in self:
            if log.failure is None and log.flush_due:
                task = log.begin_flush()
                if task is not None:
                    tasks.append((log, task))
        return tasks

    def _each(self, chore: Callable[[Log], object]) -> None:
        for log in self:
            if log.failure is None:
                try:
                    chore(log)
                except KafkaStorageError:
                    # The log has said so and taken its folder offline; the others go on.
                    continue

    def shutdown(self) -> None:
        """Flushes and closes everything and marks the folders clean.

        Flushes and cleanings that were handed out must be finished before.
        """
        for log_dir in self.dirs:
            log_dir.close()
