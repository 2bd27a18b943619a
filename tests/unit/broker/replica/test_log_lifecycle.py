"""Creation and deletion of logs under the same name (S1)."""

import asyncio
import threading
from pathlib import Path

from penstock.broker.replica.log_lifecycle import LogLifecycle
from penstock.broker.workers import Workers
from penstock.core.ids import TopicPartition
from penstock.storage.disk import OsDisk
from penstock.storage.log_config import LogConfig
from penstock.storage.manager.log_creation import NewLog
from penstock.storage.manager.log_manager import LogManager
from tests.support.clock import ManualClock

P0 = TopicPartition("orders", 0)


class SlowDeletions(OsDisk):
    """Syncs of the log directory, with which a deletion ends, wait until `gate` is set."""

    def __init__(self, log_dir: str) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self._log_dir = log_dir

    def sync_directory(self, path: str) -> None:
        if path == self._log_dir:
            self.gate.wait()
        super().sync_directory(path)


def test_a_log_is_created_after_the_deletion_of_its_predecessor(tmp_path: Path) -> None:
    disk = SlowDeletions(str(tmp_path))
    manager = LogManager(disk, [str(tmp_path)], ManualClock())
    manager.startup(lambda topic: LogConfig(), node_id=1)
    manager.get_or_create(P0, LogConfig())
    workers = Workers()

    async def work() -> None:
        lifecycle = LogLifecycle(manager, workers)
        disk.gate.clear()
        lifecycle.begin_deletion([P0])
        creation = asyncio.create_task(lifecycle.create([NewLog(P0, LogConfig())]))
        await asyncio.sleep(0.05)
        assert not manager.has(P0)
        assert not (tmp_path / "orders-0" / "00000000000000000000.log").exists()
        disk.gate.set()
        assert await creation == ([P0], None)

    try:
        asyncio.run(work())
    finally:
        disk.gate.set()
        manager.shutdown()
        workers.close()
    assert (tmp_path / "orders-0" / "00000000000000000000.log").exists()
