"""A partition in two log directories: one was offline while its replica was assigned again (R8)."""

import errno
from uuid import UUID

import pytest

from penstock.core.errors import KafkaStorageError
from penstock.storage.log.log import Log
from tests.support.broker.two_log_dirs import SMALL, TP, A, B, TwoLogDirs
from tests.support.storage.crash_disk import CrashMode
from tests.support.storage.logs import filler

ID = UUID("5c8f2f5e-7d9b-4f0a-9d0e-0a1b2c3d4e5f")


def append(log: Log, count: int, epoch: int) -> None:
    for _ in range(count):
        log.append_as_leader(filler(100), epoch)
    log.update_high_watermark(log.log_end_offset)


def reassigned(old_records: int, new_records: int, new_epoch: int) -> TwoLogDirs:
    """A broker whose replica was removed and assigned again while its directory was offline.

    Records of the first log have epoch 1. The broker is stopped, and the disk is repaired.
    """
    broker = TwoLogDirs()
    manager = broker.manager
    manager.confirm_losses()
    append(manager.get_or_create(TP, SMALL, ID), old_records, epoch=1)
    manager.dirs[0].fail(OSError(errno.EIO, "the disk fails"))
    manager.delete_all([TP])
    log = manager.get_or_create(TP, SMALL, ID, is_new=True)
    assert log.directory.startswith(B)
    append(log, new_records, epoch=new_epoch)
    manager.shutdown()
    return broker


def strays(broker: TwoLogDirs, path: str) -> list[str]:
    return [name for name in broker.directories(path) if name.endswith("-stray")]


@pytest.mark.parametrize(
    ("old_records", "new_records", "new_epoch", "expected_dir"),
    [
        pytest.param(5, 7, 1, B, id="the new log has more records"),
        pytest.param(5, 3, 1, A, id="the new log has not caught up"),
        pytest.param(5, 3, 2, B, id="the new log has a later leader epoch"),
        pytest.param(5, 5, 1, A, id="both are equal"),
    ],
)
def test_the_log_that_is_more_up_to_date_remains(
    old_records: int, new_records: int, new_epoch: int, expected_dir: str
) -> None:
    broker = reassigned(old_records, new_records, new_epoch)
    broker.start()
    assert broker.current_dir() == expected_dir
    assert broker.log.log_end_offset == (old_records if expected_dir == A else new_records)
    broker.fill(1)
    other_dir = A if expected_dir == B else B
    (stray,) = strays(broker, other_dir)
    assert broker.disk.exists(f"{other_dir}/{stray}/{0:020d}.log"), "nothing is deleted"
    broker.manager.shutdown()


def test_the_controller_learns_that_records_may_be_lost() -> None:
    """R4: neither log shows what the other one has acknowledged."""
    broker = reassigned(5, 7, 1)
    broker.start()
    assert [log_dir.may_have_lost_records for log_dir in broker.manager.dirs] == [False, True]
    broker.disk = broker.disk.image(CrashMode.WRITTEN)
    broker.start()
    assert broker.manager.dirs[1].may_have_lost_records, "it was not reported before the crash"
    broker.manager.confirm_losses()
    broker.manager.shutdown()
    broker.start()
    assert not any(log_dir.may_have_lost_records for log_dir in broker.manager.dirs)
    broker.manager.shutdown()


def test_an_empty_log_is_deleted() -> None:
    broker = reassigned(5, 0, 1)
    broker.start()
    assert broker.current_dir() == A
    assert strays(broker, B) == []
    assert not any(log_dir.may_have_lost_records for log_dir in broker.manager.dirs)
    broker.manager.shutdown()


def test_a_log_that_cannot_be_renamed_is_not_used() -> None:
    broker = reassigned(5, 7, 1)
    broker.disk.fail("rename", f"{A}/{TP}", errno.EIO)
    broker.start()
    assert not broker.manager.dirs[0].is_online
    assert broker.current_dir() == B
    broker.manager.shutdown()
    broker.disk.heal()
    broker.start()
    assert broker.current_dir() == B
    assert len(strays(broker, A)) == 1
    broker.manager.shutdown()


def test_the_partition_is_offline_if_the_loss_cannot_be_noted() -> None:
    broker = reassigned(5, 7, 1)
    broker.disk.fail("create", f"{B}/*", errno.ENOSPC)
    broker.start()
    with pytest.raises(KafkaStorageError, match="it is in /a and in /b"):
        _ = broker.log
    broker.manager.shutdown()
    broker.disk.heal()
    broker.start()
    assert broker.current_dir() == B
    broker.manager.shutdown()


def test_the_partition_is_offline_if_one_of_its_logs_cannot_be_loaded() -> None:
    """A log that is loaded later, when there is room, is not used beside the other one."""
    broker = reassigned(5, 7, 1)
    broker.disk.remove(f"{B}/.kafka_cleanshutdown")
    fault = broker.disk.fail("reserve", f"{B}/{TP}/*", errno.ENOSPC)
    broker.start()
    assert TP in broker.manager.dirs[1].load_errors
    with pytest.raises(KafkaStorageError, match="it is in /a and in /b"):
        _ = broker.log
    broker.disk.end_faults([fault])
    broker.clock.advance(10_000)
    assert broker.manager.reloads.begin() == []
    broker.manager.shutdown()
    broker.start()
    assert broker.current_dir() == B
    broker.manager.shutdown()
