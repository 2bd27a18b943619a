"""One directory of `log.dirs`, opened, crashed and opened again."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from penstock.core.ids import TopicPartition
from penstock.storage.disk import Disk, OsDisk
from penstock.storage.log.flush_task import FlushTask
from penstock.storage.log.log import Log
from penstock.storage.log.log_loader import ProducerLimits
from penstock.storage.log_config import LogConfig
from penstock.storage.manager.log_dir import LogDir
from penstock.storage.manager.log_manager import LogManager
from tests.support.clock import ManualClock
from tests.support.storage.logs import NOW, filler

SMALL = LogConfig(segment_bytes=1000, segment_index_bytes=1200, file_delete_delay_ms=500)
A = TopicPartition("a", 0)
B = TopicPartition("b", 11)
TOPIC_ID = UUID("5c8f2f5e-7d9b-4f0a-9d0e-0a1b2c3d4e5f")
RECOVERY = "recovery-point-offset-checkpoint"
REPLICATION = "replication-offset-checkpoint"
STARTS = "log-start-offset-checkpoint"
CLEAN = ".kafka_cleanshutdown"


def small(topic: str) -> LogConfig:
    return SMALL


class Directory:
    """A `log.dirs` directory that can be opened again and again."""

    def __init__(self, path: str, disk: Disk | None = None) -> None:
        self.path = path
        self.disk = disk or OsDisk()
        self.clock = ManualClock(NOW)
        self.config_of: Callable[[str], LogConfig] = small

    def make(self) -> LogDir:
        return LogDir(
            self.disk, self.path, self.clock, ProducerLimits(), roll_jitter=lambda limit: 0
        )

    def open(self, *, node_id: int = 1, cluster_id: str | None = "the-cluster") -> LogDir:
        log_dir = self.make()
        log_dir.open(cluster_id=cluster_id, node_id=node_id)
        log_dir.load(self.config_of)
        return log_dir

    @contextmanager
    def opened(self) -> Iterator[LogDir]:
        """Opened, and closed cleanly at the end."""
        log_dir = self.open()
        try:
            yield log_dir
        finally:
            log_dir.close()

    def file(self, *parts: str) -> Path:
        return Path(self.path, *parts)

    def checkpoint(self, name: str) -> dict[str, int]:
        lines = self.file(name).read_text().splitlines()
        assert lines[0] == "0"
        assert int(lines[1]) == len(lines) - 2
        return {f"{t}-{p}": int(o) for t, p, o in (line.split() for line in lines[2:])}


def crash(log_dir: LogDir) -> None:
    """Simulates a kill -9: the kernel closes the files and releases the lock."""
    for log in log_dir.logs.values():
        log.local.close_handlers()
    lock = log_dir._lock
    assert lock is not None
    lock.release()


def fill(log: Log, count: int) -> None:
    """Batches of one record and 100 bytes, ten in a segment; all below the high watermark."""
    for _ in range(count):
        log.append_as_leader(filler(100), 0)
    log.update_high_watermark(log.log_end_offset)


def remove_deleted_files(log_dir: LogDir) -> None:
    """Removes the files of deleted logs and segments whose delay has passed."""
    task = log_dir.begin_removal()
    if task is not None:
        task.run()
        log_dir.finish_removal(task)


def run_maintenance(manager: LogManager) -> list[tuple[Log, FlushTask]]:
    """Runs the maintenance that is due on this thread; returns the flushes that are due."""
    for log_dir, removal in manager.maintenance.begin_removals():
        removal.run()
        log_dir.finish_removal(removal)
    for log_dir, checkpoint in manager.maintenance.begin_checkpoints():
        checkpoint.run()
        log_dir.finish_checkpoint(checkpoint)
    manager.maintenance.apply_retention()
    return manager.maintenance.due_flushes()
