"""Health and readiness while a broker loads its logs."""

import asyncio
import threading
from collections import Counter
from pathlib import Path

from penstock.broker.app import App
from penstock.broker.config.broker_config import BrokerConfig
from penstock.storage.disk import OsDisk
from tests.support.broker.in_process import running_broker
from tests.support.metrics.scraping import get
from tests.support.protocol.requests import make_topic


class SlowDisk(OsDisk):
    """A disk on which the second log is not loaded until it may be."""

    def __init__(self) -> None:
        super().__init__()
        self._reads: Counter[str] = Counter()
        self.is_reading = threading.Event()
        self.may_read = threading.Event()

    def read_file(self, path: str) -> bytes:
        self._reads[path] += 1
        # The first time it is read to find stray logs, the second time to load the log.
        if path.endswith("t-1/partition.metadata") and self._reads[path] == 2:
            self.is_reading.set()
            assert self.may_read.wait(60)
        return super().read_file(path)


def test_a_broker_that_recovers_its_logs_responds_with_its_progress(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker, broker.connect() as client:
        make_topic(client, "t", partitions=2)
    disk = SlowDisk()
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(tmp_path / "data"),
        "metrics.port": "0",
    }

    async def start() -> None:
        app = App(BrokerConfig.from_properties(settings), disk=disk)
        starting = asyncio.ensure_future(app.start())
        try:
            assert await asyncio.to_thread(disk.is_reading.wait, 60)
            address = app.metrics_address
            assert address is not None
            health = await asyncio.to_thread(get, address, "/healthz")
            readiness = await asyncio.to_thread(get, address, "/readyz")
        finally:
            disk.may_read.set()
            await starting
            await app.stop()
        assert health.status == 200
        assert readiness.status == 503
        assert readiness.json["reasons"] == [
            "the broker is starting",
            f"{tmp_path / 'data'}: 1 of 2 logs are loaded",
        ]

    asyncio.run(start())
