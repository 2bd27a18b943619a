"""A deleted log is freed without a collection of garbage, which a broker has once a minute."""

import gc
import weakref
from pathlib import Path

from penstock.core.ids import TopicPartition
from penstock.storage.disk import OsDisk
from penstock.storage.log_config import LogConfig
from penstock.storage.manager.log_manager import LogManager
from tests.support.clock import ManualClock
from tests.support.storage.logs import filler

PARTITION = TopicPartition("t", 0)


def test_a_deleted_log_is_freed(tmp_path: Path) -> None:
    clock = ManualClock()
    config = LogConfig(file_delete_delay_ms=10)
    manager = LogManager(OsDisk(), [str(tmp_path)], clock)
    manager.startup(lambda topic: config, node_id=1)
    log = manager.get_or_create(PARTITION, config)
    log.append_as_leader(filler(100), 0)
    log.flush()
    gc.collect()
    gc.disable()
    try:
        manager.delete(PARTITION)
        clock.advance(20)
        removal = manager.dirs[0].begin_removal()
        assert removal is not None
        removal.run()
        manager.dirs[0].finish_removal(removal)
        reference = weakref.ref(log)
        del log, removal
        assert reference() is None, gc.get_referrers(reference())
    finally:
        gc.enable()
        manager.shutdown()
