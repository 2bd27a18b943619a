"""A broker with two directories in `log.dirs`, for tests of moves between them."""

from collections.abc import Callable
from pathlib import Path

from penstock.core.ids import TopicPartition
from penstock.storage.disk import Disk
from penstock.storage.log.log import Log
from penstock.storage.log_config import LogConfig
from penstock.storage.manager.log_manager import LogManager
from penstock.storage.manager.log_move import LogMove
from tests.support.clock import ManualClock
from tests.support.storage.crash_disk import CrashDisk, CrashMode
from tests.support.storage.logs import NOW, filler

A, B = "/a", "/b"
TP = TopicPartition("orders", 0)
OTHER = TopicPartition("bills", 0)
SMALL = LogConfig(segment_bytes=1000, segment_index_bytes=1200, file_delete_delay_ms=500)


class TwoLogDirs:
    """The storage of a broker on a disk in memory; `TP` is in the first directory at first."""

    def __init__(self, config: LogConfig = SMALL) -> None:
        self.disk = CrashDisk()
        self.clock = ManualClock(NOW)
        self.config = config
        self.start()
        self.manager.prefer_dir(TP, A)

    def start(self, disk: Disk | None = None) -> None:
        self.manager = LogManager(disk or self.disk, [A, B], self.clock)
        self.manager.startup(lambda topic: self.config, node_id=1)

    def kill(self) -> None:
        """Simulates a power failure after everything was written."""
        self.disk = self.disk.image(CrashMode.WRITTEN)

    @property
    def log(self) -> Log:
        return self.manager.get_or_create(TP, self.config)

    def fill(self, count: int, log: Log | None = None) -> None:
        """Appends batches of one record and 100 bytes, all below the high watermark."""
        log = log or self.log
        for _ in range(count):
            log.append_as_leader(filler(100), 0)
        log.update_high_watermark(log.log_end_offset)

    def begin(self, path: str = B) -> LogMove:
        move = self.manager.begin_move(TP, path)
        assert move is not None, "nothing to move"
        return move

    def finish(self, move: LogMove, between_steps: Callable[[], object] = lambda: None) -> None:
        """Runs a move to its end, with other work after every step."""
        while not self.manager.advance_move(move):
            move.run()
            between_steps()

    def step(self, move: LogMove) -> None:
        assert not self.manager.advance_move(move), "it has ended"
        move.run()

    def current_dir(self) -> str:
        return str(Path(self.log.directory).parent)

    def directories(self, path: str) -> list[str]:
        return [name for name in self.disk.names(path) if self.disk.is_directory(f"{path}/{name}")]
