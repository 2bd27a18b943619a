"""The registration of a broker that may have lost records, over lost sessions (R4, R6)."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.metadata.registration import BrokerRegistration
from penstock.broker.workers import Workers
from penstock.controller.metadata import BrokerKey, BrokerRecord
from penstock.core.errors import KafkaStorageError
from penstock.core.system_clock import SystemClock
from tests.support.broker.controller_hosts import HostOfTests
from tests.support.cluster.memory_store import MemoryStore, MemoryStoreServer


class Scenario:
    """A broker that is registered as one that may have lost records."""

    def __init__(self, directory: Path, workers: Workers) -> None:
        self.server = MemoryStoreServer()
        self.store: MemoryStore = self.server.open()
        self.host = HostOfTests(self.store, workers, broker_id=1)
        config = BrokerConfig({"node.id": "1", "log.dirs": str(directory)}, "localhost")
        self.registration = BrokerRegistration(
            config, self.host, self.store, workers, SystemClock()
        )
        self.registration.is_unclean = True

    @property
    def stored(self) -> BrokerRecord | None:
        for record in self.server.fetch([BrokerKey(1)]):
            assert isinstance(record, BrokerRecord)
            return record
        return None


def run(directory: Path, script: Callable[[Scenario], Coroutine[Any, Any, None]]) -> None:
    async def inside() -> None:
        workers = Workers()
        try:
            scenario = Scenario(directory, workers)
            scenario.host.load()
            await scenario.registration.register(())
            assert scenario.stored is not None
            assert scenario.stored.is_unclean
            async with asyncio.timeout(60):
                await script(scenario)
            await scenario.host.close()
        finally:
            workers.close()

    asyncio.run(inside())


def test_a_registration_is_confirmed_once(tmp_path: Path) -> None:
    async def script(scenario: Scenario) -> None:
        await scenario.registration.confirm()
        assert scenario.stored is not None
        assert not scenario.stored.is_unclean
        version = scenario.server.version
        await scenario.registration.confirm()
        assert scenario.server.version == version

    run(tmp_path, script)


def test_a_session_that_ends_before_the_confirmation_is_registered_again(tmp_path: Path) -> None:
    """A confirmation in the new session would create a registration that nobody has made."""

    async def script(scenario: Scenario) -> None:
        scenario.server.end(scenario.store)
        scenario.server.begin(scenario.store)
        confirming = asyncio.create_task(scenario.registration.confirm())
        await asyncio.sleep(0.05)
        assert not confirming.done()
        assert scenario.stored is None
        epoch = await scenario.registration.register(())
        await confirming
        assert scenario.stored is not None
        assert (scenario.stored.epoch, scenario.stored.is_unclean) == (epoch, False)

    run(tmp_path, script)


def test_a_confirmation_is_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store may not respond for a while: the start goes on when it does."""
    failures = 3
    commit = MemoryStore.commit

    def fail_at_first(self: MemoryStore, *args: Any, **kwargs: Any) -> int:
        nonlocal failures
        if failures:
            failures -= 1
            raise KafkaStorageError("the session has expired")
        return commit(self, *args, **kwargs)

    async def script(scenario: Scenario) -> None:
        monkeypatch.setattr(MemoryStore, "commit", fail_at_first)
        await scenario.registration.confirm()
        assert scenario.stored is not None
        assert not scenario.stored.is_unclean
        assert failures == 0

    run(tmp_path, script)
