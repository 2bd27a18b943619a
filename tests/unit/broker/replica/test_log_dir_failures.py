"""Failed log directories and reloaded logs are reported to the controller."""

import asyncio
from collections.abc import Callable, Sequence
from errno import EIO
from typing import cast

import pytest

from penstock.broker.replica import log_dir_failures
from penstock.broker.replica.log_dir_failures import LogDirFailures
from penstock.broker.replica.replica_manager import ReplicaManager
from penstock.broker.workers import Workers
from penstock.cluster.store import StoreUnavailableError
from penstock.controller.metadata import Change, LogDirEventRecord
from penstock.core.ids import TopicPartition
from penstock.storage.manager.log_dir import LogDir
from penstock.storage.manager.log_manager import LogManager
from tests.support.clock import ManualClock
from tests.support.cluster.memory_store import MemoryStore, MemoryStoreServer
from tests.support.storage.crash_disk import CrashDisk


class Replicas:
    """Notes the directories whose replicas are stopped."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    async def on_dir_failed(self, log_dir: LogDir) -> list[TopicPartition]:
        self.failed.append(log_dir.path)
        return []


class FailingStore(MemoryStore):
    """A session whose first commits fail."""

    failures = 0

    def commit(
        self, changes: Sequence[Change], *, based_on: int | None = None, fenced: bool = False
    ) -> int:
        if self.failures:
            self.failures -= 1
            raise StoreUnavailableError("the store is away")
        return super().commit(changes, based_on=based_on, fenced=fenced)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


class Environment:
    """The log directories of broker 3, and a store."""

    def __init__(self) -> None:
        self.server = MemoryStoreServer()
        self.store = FailingStore(self.server)
        self.replicas = Replicas()
        self.workers = Workers()
        self.logs = LogManager(CrashDisk(), ["/a", "/b"], ManualClock(0))
        self.logs.startup(lambda topic: pytest.fail(topic), node_id=3)
        self.failures = LogDirFailures(
            3,
            self.logs,
            cast("ReplicaManager", self.replicas),
            self.store,
            self.workers,
        )
        self.failures.start()

    @property
    def events(self) -> list[int]:
        records = self.store.load().records
        return [record.broker_id for record in records if isinstance(record, LogDirEventRecord)]

    async def close(self) -> None:
        await self.failures.close()
        self.workers.close()


def test_a_failed_directory_is_reported_and_its_replicas_stop() -> None:
    async def run() -> None:
        environment = Environment()
        environment.logs.dirs[1].fail(OSError(EIO, "broken"))
        environment.logs.dirs[1].fail(OSError(EIO, "broken"))
        await until(lambda: environment.events)
        assert (environment.events, environment.replicas.failed) == ([3], ["/b"])
        await environment.close()

    asyncio.run(run())


def test_directories_that_fail_together_are_reported_once() -> None:
    async def run() -> None:
        environment = Environment()
        for log_dir in environment.logs.dirs:
            await asyncio.to_thread(log_dir.fail, OSError(EIO, "broken"))
        await until(lambda: len(environment.replicas.failed) == 2 and environment.events)
        assert len(environment.events) <= 2
        environment.failures.on_log_reloaded()
        environment.failures.on_log_reloaded()
        await environment.close()

    asyncio.run(run())


def test_a_report_is_repeated_until_the_store_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_dir_failures, "_RETRY_S", 0.001)

    async def run() -> None:
        environment = Environment()
        environment.store.failures = 3
        environment.failures.on_log_reloaded()
        await until(lambda: environment.events)
        assert environment.events == [3]
        await environment.close()

    asyncio.run(run())


def test_nothing_is_reported_after_the_broker_has_stopped() -> None:
    async def run() -> None:
        environment = Environment()
        await environment.close()
        environment.logs.dirs[0].fail(OSError(EIO, "broken"))
        await asyncio.sleep(0)
        assert not environment.events

    asyncio.run(run())
