"""Garbage collection in a broker's process: no full collection during a large request (X5)."""

import asyncio
import gc
import time
from collections.abc import Iterator

import pytest

from penstock.broker import garbage


@pytest.fixture
def restored() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


@pytest.mark.usefixtures("restored")
def test_a_million_objects_cause_no_full_collection() -> None:
    garbage.configure()
    before = gc.get_stats()[2]["collections"]
    objects = [[] for _ in range(1_000_000)]  # type: ignore[var-annotated]
    assert len(objects) == 1_000_000
    assert gc.get_stats()[2]["collections"] == before


@pytest.mark.usefixtures("restored")
def test_cycles_are_collected_regularly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "INTERVAL_S", 0.001)

    async def main() -> None:
        before = gc.get_stats()[2]["collections"]
        task = asyncio.create_task(garbage.collect_garbage())
        while gc.get_stats()[2]["collections"] < before + 3:
            await asyncio.sleep(0.001)
        task.cancel()

    asyncio.run(main())


def test_objects_that_survive_a_long_collection_are_left_out_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []
    times = iter([0.0, 0.1, *[0.2] * 1000])
    monkeypatch.setattr(time, "thread_time", lambda: next(times))
    for name in ("collect", "freeze", "unfreeze"):
        monkeypatch.setattr(gc, name, lambda name=name: calls.append(name))
    collector = garbage.GarbageCollector()
    for _ in range(2 * garbage.COLLECTIONS_PER_THAW):
        collector.collect()
    expected = ["collect", "freeze", *["collect"] * (garbage.COLLECTIONS_PER_THAW - 1)]
    assert calls[: len(expected) + 2] == [*expected, "unfreeze", "collect"]
    assert calls.count("freeze") == calls.count("unfreeze") == 1
