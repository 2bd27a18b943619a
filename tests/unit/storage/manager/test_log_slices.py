"""Maintenance of many logs in slices: every log has its turn, and no call looks at all of them."""

from pathlib import Path

import pytest

from penstock.core.ids import TopicPartition
from penstock.storage.disk import OsDisk
from penstock.storage.log_config import LogConfig
from penstock.storage.manager import log_slices
from penstock.storage.manager.log_manager import LogManager
from penstock.storage.manager.log_slices import LogSlices
from tests.support.clock import ManualClock
from tests.support.storage.logs import filler

CONFIG = LogConfig(segment_bytes=250, segment_index_bytes=1200, retention_bytes=0, flush_ms=0)


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LogManager:
    monkeypatch.setattr(log_slices, "SLICE", 4)
    manager = LogManager(OsDisk(), [str(tmp_path)], ManualClock())
    manager.startup(lambda topic: CONFIG, node_id=1)
    for n in range(10):
        manager.get_or_create(TopicPartition("t", n), CONFIG)
    return manager


def test_a_pass_ends_after_the_last_log(manager: LogManager) -> None:
    slices = LogSlices(lambda: manager)
    assert slices.take() == []
    slices.begin()
    logs = list(manager)
    assert [slices.take() for _ in range(4)] == [logs[:4], logs[4:8], logs[8:], []]


def test_an_endless_pass_starts_again(manager: LogManager) -> None:
    slices = LogSlices(lambda: manager)
    logs = list(manager)
    assert [slices.take_endlessly() for _ in range(5)] == [
        logs[:4],
        logs[4:8],
        logs[8:] + logs[:2],
        logs[2:6],
        logs[6:],
    ]


def test_flushes_retention_and_removal_come_to_every_log(manager: LogManager) -> None:
    for log in manager:
        for _ in range(3):
            log.append_as_leader(filler(100), 0)
        log.update_high_watermark(3)
    flushed = []
    for _ in range(3):
        tasks = manager.maintenance.due_flushes()
        assert len(tasks) <= 4
        for log, task in tasks:
            task.run()
            log.finish_flush(task)
            flushed.append(log.partition)
    assert sorted(flushed) == [TopicPartition("t", n) for n in range(10)]
    clock = manager.maintenance._clock
    assert isinstance(clock, ManualClock)
    clock.advance(10 * 60 * 1000)
    manager.maintenance.apply_retention()
    assert [log.log_start_offset > 0 for log in manager] == [True] * 4 + [False] * 6
    manager.maintenance.apply_retention()
    manager.maintenance.apply_retention()
    assert all(log.log_start_offset > 0 for log in manager)
    clock.advance(10 * 60 * 1000)
    for _ in range(3):
        for log_dir, removal in manager.maintenance.begin_removals():
            removal.run()
            log_dir.finish_removal(removal)
    assert not list(Path(manager.dirs[0].path).glob("*/*.deleted"))
    manager.shutdown()
