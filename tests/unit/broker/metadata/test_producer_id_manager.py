"""Producer ids: each is used once, across restarts too (P3)."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from penstock.broker.metadata.producer_id_manager import ProducerIdManager
from penstock.broker.workers import Workers
from penstock.cluster.embedded import EmbeddedStore
from penstock.controller.producer_ids import BLOCK_SIZE
from tests.support.broker.controller_hosts import HostOfTests

T = TypeVar("T")


def with_ids(path: Path, work: Callable[[ProducerIdManager], "asyncio.Future[T]"]) -> T:
    """Runs `work` with the producer ids of a broker whose store is at `path`."""

    async def inside() -> T:
        store = EmbeddedStore(path)
        workers = Workers()
        try:
            controller = HostOfTests(store, workers)
            controller.load()
            await controller.become_controller()
            return await work(ProducerIdManager(0, controller))
        finally:
            workers.close()
            store.close()

    return asyncio.run(inside())


def test_a_restart_skips_the_rest_of_the_block(tmp_path: Path) -> None:
    first = with_ids(tmp_path / "db", lambda ids: asyncio.ensure_future(ids.wait()))
    second = with_ids(tmp_path / "db", lambda ids: asyncio.ensure_future(ids.wait()))
    assert (first, second) == (0, BLOCK_SIZE)


def test_without_a_block_no_id_is_assigned(tmp_path: Path) -> None:
    async def work(ids: ProducerIdManager) -> list[int | None]:
        none = ids.take()
        first = await ids.wait()
        return [none, first, ids.take()]

    assert with_ids(tmp_path / "db", lambda ids: asyncio.ensure_future(work(ids))) == [None, 0, 1]


def test_concurrent_callers_get_different_ids(tmp_path: Path) -> None:
    async def work(ids: ProducerIdManager) -> list[int]:
        return list(await asyncio.gather(*(ids.wait() for _ in range(50))))

    producer_ids = with_ids(tmp_path / "db", lambda ids: asyncio.ensure_future(work(ids)))
    assert len(set(producer_ids)) == 50


def test_the_next_block_follows(tmp_path: Path) -> None:
    async def work(ids: ProducerIdManager) -> list[int]:
        return [await ids.wait() for _ in range(BLOCK_SIZE + 2)]

    producer_ids = with_ids(tmp_path / "db", lambda ids: asyncio.ensure_future(work(ids)))
    assert producer_ids == list(range(BLOCK_SIZE + 2))
