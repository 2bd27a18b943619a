"""Workloads for logs: batches as producers send them, and a broker's use of its logs.

A `Scene` drives a `LogManager` as a broker does, and records a `History` of each log.
"""

from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from penstock.core.ids import TopicPartition
from penstock.records.append_policy import AppendOrigin
from penstock.records.batch import set_base_offset_and_epoch
from penstock.records.build import build_batch
from penstock.records.compress import Compression
from penstock.records.control import build_end_txn_marker
from penstock.records.record import Record
from penstock.storage.cleaner.cleaning_task import CleaningTask
from penstock.storage.cleaner.log_cleaner import LogCleaner
from penstock.storage.cleaner.steps import CheckpointStep, CleanerTask, SwapStep
from penstock.storage.disk import Disk
from penstock.storage.log.log import Log
from penstock.storage.log.results import LogAppendInfo
from penstock.storage.log.retention import delete_old_segments
from penstock.storage.log_config import LogConfig
from penstock.storage.manager.log_manager import LogManager
from tests.support.clock import ManualClock
from tests.support.storage.log_dirs import run_maintenance
from tests.support.storage.log_history import History
from tests.support.storage.log_model import StoredBatch, implied, stored, stored_batches

TP = TopicPartition("orders", 0)
NODE = 1

TINY = LogConfig(
    segment_bytes=1500,
    segment_index_bytes=100,
    index_interval_bytes=100,
    file_delete_delay_ms=1000,
)
"""Rolls every few batches, for one reason or the other."""


def data_batch(
    sizes: Sequence[int],
    *,
    timestamps: Sequence[int],
    keys: Sequence[bytes | None] = (),
    compression: Compression = Compression.NONE,
    producer: tuple[int, int, int] | None = None,
    transactional: bool = False,
) -> bytearray:
    """A batch as a producer sends it; `producer` is id, epoch and sequence."""
    producer_id, epoch, sequence = producer or (-1, -1, -1)
    records = [
        Record(n, timestamp, keys[n] if keys else b"k", bytes((n + i) % 251 for i in range(size)))
        for n, (size, timestamp) in enumerate(zip(sizes, timestamps, strict=True))
    ]
    return build_batch(
        records,
        compression=compression,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=transactional,
    )


def as_appended(data: bytes | bytearray, offset: int, leader_epoch: int) -> list[StoredBatch]:
    """The batches as a leader stores them from an offset on."""
    result: list[StoredBatch] = []
    for batch in stored_batches(bytes(data)):
        copy = bytearray(batch.data)
        set_base_offset_and_epoch(copy, 0, offset, leader_epoch)
        result.append(stored(copy))
        offset = result[-1].next_offset
    return result


def contents(log: Log) -> list[StoredBatch]:
    """Every batch in the files of a log: whole, with right CRCs, nothing in between."""
    batches: list[StoredBatch] = []
    for segment in log.local.segments:
        data = segment.file.read_at(0, segment.size)
        assert len(data) == segment.size, f"{segment} has {len(data)} bytes"
        assert segment.file.size() == segment.size or log.config.preallocate, f"{segment}: garbage"
        batches += stored_batches(data)
    return batches


def _unknown_to_recovery(task: CleanerTask) -> list[int]:
    """Returns the start offsets of old segments that recovery cannot recognise as replaced."""
    if not isinstance(task, CleaningTask) or task.replacement is None:
        return []
    new, old, _ = task.replacement
    first = max(new.next_offset(), new.base_offset + 1)
    return [segment.base_offset for segment in old if segment.base_offset >= first]


def _finish(cleaner: LogCleaner, task: CleanerTask) -> CleanerTask | None:
    """Finishes a step, with all the steps that follow from it."""
    following = cleaner.finish(task)
    while isinstance(following, SwapStep | CheckpointStep):
        following.run()
        following = cleaner.finish(following)
    return following


class Scene:
    """A broker's logs on a disk, and their histories."""

    def __init__(
        self,
        disk: Disk,
        config: LogConfig = TINY,
        *,
        directories: Sequence[str] = ("/logs",),
        seed: int = 0,
    ) -> None:
        self.disk = disk
        self.config = config
        self.directories = directories
        self.clock = ManualClock()
        self.rng = Random(seed)
        self.leader_epoch = 0
        self.histories: dict[TopicPartition, History] = {}
        self.compacted: list[list[StoredBatch]] = []
        """What each step of a compaction left, if that is known from an earlier run."""
        self._compactions = 0
        self.start()

    # --- the broker

    def start(self) -> None:
        self.manager = LogManager(self.disk, self.directories, self.clock)
        self.manager.startup(lambda topic: self.config, node_id=NODE)

    def stop(self) -> None:
        """Stops the broker cleanly; everything is durable once it has returned."""
        starts = {log.partition: log.log_start_offset for log in self.manager}
        self.manager.shutdown()
        for partition, start in starts.items():
            history = self.histories[partition]
            history.flush(history.end)
            history.least_start = history.most_start = start

    def restart(self) -> None:
        self.stop()
        self.start()

    def checkpoint(self) -> None:
        for log_dir in self.manager.dirs:
            log_dir.checkpoint()
        for log in self.manager:
            history = self.histories[log.partition]
            history.least_start = log.log_start_offset
            history.changes += 1

    def pass_time(self, ms: int) -> None:
        """Advances the clock and runs the maintenance that is due."""
        self.clock.advance(ms)
        for log in self.manager:
            history = self.histories[log.partition]
            history.most_start = max(history.most_start, log.high_watermark)
        for log, task in run_maintenance(self.manager):
            task.run()
            log.finish_flush(task)
            self.histories[log.partition].flush(task.end_offset)
        for log in self.manager:
            self.histories[log.partition].most_start = log.log_start_offset

    # --- partitions

    def log(self, partition: TopicPartition = TP) -> Log:
        log = self.manager.get(partition)
        assert log is not None, f"{partition} has no log"
        return log

    def create(self, partition: TopicPartition = TP) -> None:
        history = self.histories[partition] = History()
        history.appear(lambda: self.manager.get_or_create(partition, self.config))

    def delete(self, partition: TopicPartition = TP) -> None:
        self.histories[partition].vanish(lambda: self.manager.delete(partition))

    def move(
        self, directory: str, *concurrent_work: Callable[[], object], partition: TopicPartition = TP
    ) -> bool:
        """Moves a partition, with other work after each step; returns whether it was moved."""
        move = self.manager.begin_move(partition, directory)
        assert move is not None, "nothing to move"
        work = list(concurrent_work)
        while not self.manager.advance_move(move):
            move.run()
            if work:
                work.pop(0)()
        assert move.error is None, f"{move.error}"
        return move.is_done

    # --- appends

    def append(
        self,
        *sizes: int,
        partition: TopicPartition = TP,
        producer: int | None = None,
        epoch: int = 0,
        transactional: bool = False,
        compression: Compression = Compression.NONE,
        keys: Sequence[bytes | None] = (),
        ago_ms: int = 0,
    ) -> LogAppendInfo:
        """Appends a batch with a record of each size, as leader; the next one of its producer."""
        self.clock.advance(self.rng.randint(0, 20))
        now_ms = self.clock.now_ms() - ago_ms
        data = data_batch(
            sizes,
            timestamps=[now_ms - self.rng.randint(0, 50) for _ in sizes],
            keys=keys,
            compression=compression,
            producer=self._next_sequence(partition, producer, epoch),
            transactional=transactional,
        )
        return self.append_data(data, partition=partition)

    def _next_sequence(
        self, partition: TopicPartition, producer: int | None, epoch: int
    ) -> tuple[int, int, int] | None:
        if producer is None:
            return None
        current = implied(self.histories[partition].appended).producers.get(producer)
        if current is None or current.producer_epoch != epoch:
            return producer, epoch, 0
        return producer, epoch, current.last_sequence + 1

    def end_transaction(
        self, producer: int, *, commit: bool, epoch: int = 0, partition: TopicPartition = TP
    ) -> LogAppendInfo:
        marker = build_end_txn_marker(
            commit,
            producer_id=producer,
            producer_epoch=epoch,
            coordinator_epoch=7,
            timestamp=self.clock.now_ms(),
        )
        return self.append_data(marker, partition=partition, origin=AppendOrigin.COORDINATOR)

    def append_data(
        self,
        data: bytearray,
        *,
        partition: TopicPartition = TP,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> LogAppendInfo:
        log = self.log(partition)
        new = as_appended(data, log.log_end_offset, self.leader_epoch)
        info = self.histories[partition].append(
            new, lambda: log.append_as_leader(data, self.leader_epoch, origin=origin)
        )
        log.update_high_watermark(log.log_end_offset)
        return info

    # --- everything else

    def flush(self, partition: TopicPartition = TP) -> None:
        log = self.log(partition)
        log.flush()
        self.histories[partition].flush(log.log_end_offset)

    def flush_while(
        self,
        before: Callable[[], object],
        after: Callable[[], object],
        partition: TopicPartition = TP,
    ) -> None:
        """A flush in steps, with other work before and after its syncs."""
        log = self.log(partition)
        task = log.begin_flush()
        assert task is not None, "nothing to flush"
        before()
        task.run()
        after()
        log.finish_flush(task)
        self.histories[partition].flush(task.end_offset)

    def roll(self, partition: TopicPartition = TP) -> None:
        self.log(partition).roll()

    def flush_and_roll(self, partition: TopicPartition = TP) -> None:
        """Flushes and rolls, so that the end of the segment cannot be lost.

        Recovery takes a gap between segments of a compacted topic for one of compaction.
        """
        self.flush(partition)
        self.roll(partition)

    def truncate(self, offset: int, partition: TopicPartition = TP) -> None:
        self.histories[partition].truncate(
            offset, lambda: self.manager.begin_truncation(partition, offset).complete()
        )

    def truncate_fully(self, offset: int, partition: TopicPartition = TP) -> None:
        self.histories[partition].truncate_fully(
            offset, lambda: self.manager.begin_full_truncation(partition, offset).complete()
        )

    def delete_records(self, offset: int, partition: TopicPartition = TP) -> None:
        log = self.log(partition)
        self.histories[partition].raise_start(
            offset, lambda: log.increment_log_start_offset(offset)
        )

    def retain(self, partition: TopicPartition = TP) -> int:
        """Applies retention; returns how many segments it deleted."""
        log = self.log(partition)
        history = self.histories[partition]
        before = len(log.local.segments)
        history.raise_start(log.high_watermark, lambda: delete_old_segments(log))
        history.most_start = log.log_start_offset
        return before - len(log.local.segments)

    def compact(self, partition: TopicPartition = TP) -> bool:
        """Cleans the logs that are due.

        The result is recorded in the first run of a workload, and expected in the next.
        """
        log = self.log(partition)
        history = self.histories[partition]
        cleaner = LogCleaner(self.manager, self.clock)
        # Old segments are deleted before the others are cleaned.
        task = history.raise_start(log.high_watermark, cleaner.begin)
        history.most_start = log.log_start_offset
        remaining = contents(log)
        deleted = [batch for batch in history.batches if batch not in remaining]
        is_due = task is not None
        while task is not None:
            task.run()
            unknown = _unknown_to_recovery(task)
            current = self._compactions < len(self.compacted)
            after = self.compacted[self._compactions] if current else history.batches
            task = history.replace(after, unknown, partial(_finish, cleaner, task))
            if not current:
                self.compacted.append([*deleted, *contents(log)])
                history.batches = self.compacted[-1]
            self._compactions += 1
            history.flush(log.recovery_point)
        assert not cleaner.uncleanable, f"{cleaner.uncleanable}"
        return is_due
