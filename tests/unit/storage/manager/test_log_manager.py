"""All logs of a broker: several `log.dirs`, one failing, and maintenance (S1, S4, S6, S7)."""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest

from penstock.core.errors import ErrorCode, KafkaError, KafkaStorageError
from penstock.core.ids import TopicPartition
from penstock.storage.disk import Disk, OsDisk
from penstock.storage.log.log import Log
from penstock.storage.log.log_loader import ProducerLimits
from penstock.storage.log_config import LogConfig
from penstock.storage.manager.log_maintenance import MaintenanceIntervals
from penstock.storage.manager.log_manager import LogManager
from tests.support.clock import ManualClock
from tests.support.storage.crash_disk import CrashDisk, CrashMode
from tests.support.storage.log_dirs import run_maintenance
from tests.support.storage.logs import NOW, batch, filler, offsets, values

SMALL = LogConfig(segment_bytes=1000, segment_index_bytes=1200, file_delete_delay_ms=500)
TOPIC_ID = UUID("5c8f2f5e-7d9b-4f0a-9d0e-0a1b2c3d4e5f")
OTHER_ID = UUID("11111111-2222-3333-4444-555555555555")
A, B, C, D = (TopicPartition(topic, 0) for topic in "abcd")


class Broker:
    """The storage of a broker, which can be stopped, killed and started."""

    def __init__(
        self,
        *directories: str | Path,
        disk: Disk | None = None,
        limits: ProducerLimits | None = None,
        intervals: MaintenanceIntervals = MaintenanceIntervals(1000, 300, 700),
        config_of: Callable[[str], LogConfig] = lambda topic: SMALL,
    ) -> None:
        self.directories = [str(directory) for directory in directories]
        self.disk = disk or OsDisk()
        self.clock = ManualClock(NOW)
        self._limits = limits or ProducerLimits()
        self._intervals = intervals
        self.config_of = config_of

    def make(self) -> LogManager:
        return LogManager(
            self.disk,
            self.directories,
            self.clock,
            limits=self._limits,
            intervals=self._intervals,
        )

    @contextmanager
    def running(self) -> Iterator[LogManager]:
        """Started, and stopped cleanly at the end."""
        manager = self.make()
        manager.startup(self.config_of, node_id=1, cluster_id="c")
        try:
            yield manager
        finally:
            manager.shutdown()


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path / "one", tmp_path / "two")


def fill(log: Log, count: int) -> None:
    """Batches of one record and 100 bytes, ten in a segment; all below the high watermark."""
    for _ in range(count):
        log.append_as_leader(filler(100), 0)
    log.update_high_watermark(log.log_end_offset)


def flush_all(manager: LogManager) -> None:
    """Runs the flushes that are due, as a broker does."""
    for log, task in run_maintenance(manager):
        task.run()
        log.finish_flush(task)


def homes(manager: LogManager) -> list[list[str]]:
    return [sorted(map(str, log_dir.logs)) for log_dir in manager.dirs]


# --- several directories


def test_new_logs_are_created_in_the_directory_with_the_fewest(broker: Broker) -> None:
    """S1."""
    with broker.running() as manager:
        for partition in (A, B, C, D):
            manager.get_or_create(partition, SMALL)
        assert homes(manager) == [["a-0", "c-0"], ["b-0", "d-0"]]
        manager.delete(B)
        manager.delete(D)
        manager.get_or_create(TopicPartition("e", 0), SMALL)
        assert homes(manager) == [["a-0", "c-0"], ["e-0"]]


def test_logs_are_loaded_from_every_directory(broker: Broker) -> None:
    with broker.running() as manager:
        for partition in (A, B, C):
            fill(manager.get_or_create(partition, SMALL), 3)
    with broker.running() as manager:
        assert sorted(str(log.partition) for log in manager) == ["a-0", "b-0", "c-0"]
        for partition in (A, B, C):
            log = manager.get(partition)
            assert log is not None
            assert offsets(log) == [0, 1, 2]
            assert manager.get_or_create(partition, SMALL) is log
        assert manager.get(D) is None


def test_the_id_of_a_topic(broker: Broker) -> None:
    """A topic that was deleted and created again must not get the old records."""
    with broker.running() as manager:
        log = manager.get_or_create(A, SMALL, TOPIC_ID)
        assert manager.get_or_create(A, SMALL, TOPIC_ID) is log
        assert manager.get_or_create(A, SMALL) is log
        with pytest.raises(KafkaError, match="delete the old directory") as refused:
            manager.get_or_create(A, SMALL, OTHER_ID)
        assert refused.value.code is ErrorCode.INCONSISTENT_TOPIC_ID
    with broker.running() as manager, pytest.raises(KafkaError):
        manager.get_or_create(A, SMALL, OTHER_ID)


def test_settings_of_each_topic(tmp_path: Path) -> None:
    """S4: looked up by topic at the start."""
    with Broker(tmp_path).running() as manager:
        for partition in (A, B):
            manager.get_or_create(partition, SMALL)
    large = LogConfig(segment_index_bytes=1200)
    again = Broker(tmp_path, config_of=lambda topic: large if topic == "b" else SMALL)
    with again.running() as manager:
        assert [log.config for log in manager] == [SMALL, large]


def test_no_directory_at_all() -> None:
    with pytest.raises(KafkaStorageError, match=r"log\.dirs"):
        Broker().make().startup(lambda topic: SMALL, node_id=1)


# --- one directory fails


def test_a_directory_that_cannot_be_opened(tmp_path: Path) -> None:
    """S1: the others serve."""
    (tmp_path / "bad").write_text("no directory")
    broker = Broker(tmp_path / "bad", tmp_path / "good")
    with broker.running() as manager:
        assert [log_dir.is_online for log_dir in manager.dirs] == [False, True]
        fill(manager.get_or_create(A, SMALL, is_new=True), 3)
        assert homes(manager) == [[], ["a-0"]]


def test_no_directory_can_be_opened(tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("no directory")
    manager = Broker(tmp_path / "bad").make()
    with pytest.raises(KafkaStorageError, match="bad is offline"):
        manager.startup(lambda topic: SMALL, node_id=1)
    manager.shutdown()


def test_a_log_is_not_created_while_it_may_be_in_an_offline_directory() -> None:
    """S7: an empty log in its place would lose the whole partition. It is created only if the
    partition is known to be new on this broker."""
    disk = CrashDisk()
    broker = Broker("/one", "/two", disk=disk)
    with broker.running() as manager:
        for partition in (A, B):
            fill(manager.get_or_create(partition, SMALL), 3)
        assert homes(manager) == [["a-0"], ["b-0"]]
    disk.fail("read", "/one/meta.properties", errno.EIO)
    with broker.running() as manager:
        assert [log_dir.is_online for log_dir in manager.dirs] == [False, True]
        assert manager.get_or_create(B, SMALL).log_end_offset == 3
        with pytest.raises(KafkaStorageError, match="/one") as refused:
            manager.get_or_create(A, SMALL)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert manager.get_or_create(C, SMALL, is_new=True).log_end_offset == 0
    disk.heal()
    with broker.running() as manager:
        assert manager.get_or_create(A, SMALL).log_end_offset == 3


def test_a_directory_that_fails_later_takes_only_its_own_partitions_offline() -> None:
    """S1: new logs are created in the other one, and maintenance continues."""
    disk = CrashDisk()
    broker = Broker("/one", "/two", disk=disk)
    with broker.running() as manager:
        a, b = (manager.get_or_create(partition, SMALL) for partition in (A, B))
        fill(a, 3)
        fill(b, 3)
        disk.fail("write", "/one/*.log", errno.EIO)
        with pytest.raises(KafkaStorageError):
            fill(a, 1)
        fill(b, 1)
        assert [log_dir.path for log_dir in manager.online_dirs] == ["/two"]
        assert manager.get(A) is a
        assert offsets(a) == [0, 1, 2]
        assert manager.get_or_create(C, SMALL).directory == "/two/c-0", (
            "nobody has it, that is known"
        )
        with pytest.raises(KafkaStorageError):
            manager.delete(A)
        broker.clock.advance(10_000)
        run_maintenance(manager)
    disk.heal()
    assert not disk.exists("/one/.kafka_cleanshutdown")
    assert disk.exists("/two/.kafka_cleanshutdown")
    with broker.running() as manager:
        result = {str(log.partition): log.log_end_offset for log in manager}
        assert result == {"a-0": 3, "b-0": 4, "c-0": 0}


def test_when_every_directory_has_failed() -> None:
    disk = CrashDisk()
    broker = Broker("/one", disk=disk)
    with broker.running() as manager:
        a = manager.get_or_create(A, SMALL)
        disk.fail("write", "*.log", errno.EIO)
        with pytest.raises(KafkaStorageError):
            fill(a, 1)
        with pytest.raises(KafkaStorageError, match="every directory"):
            manager.get_or_create(B, SMALL, is_new=True)
        assert manager.online_dirs == []
        assert run_maintenance(manager) == []


def test_an_unloadable_partition_is_not_created_again(broker: Broker) -> None:
    """S1: only this partition is offline; it is neither recreated nor hidden."""
    with broker.running() as manager:
        for partition in (A, B):
            fill(manager.get_or_create(partition, SMALL), 3)
    Path(broker.directories[0], "a-0", "partition.metadata").write_text("nonsense\n")
    with broker.running() as manager:
        assert manager.get(A) is None
        with pytest.raises(KafkaStorageError, match="partition\\.metadata"):
            manager.get_or_create(A, SMALL)
        fill(manager.get_or_create(B, SMALL), 1)


def test_a_broken_partition_can_be_deleted(broker: Broker) -> None:
    """S1: and then created again."""
    with broker.running() as manager:
        fill(manager.get_or_create(A, SMALL), 3)
    Path(broker.directories[0], "a-0", "partition.metadata").write_text("nonsense\n")
    with broker.running() as manager:
        with pytest.raises(KafkaStorageError):
            manager.begin_truncation(A, 0).complete()
        manager.delete(A)
        assert manager.get(A) is None
        assert manager.get_or_create(A, SMALL).log_end_offset == 0
        run_maintenance(manager)
        assert list(Path(broker.directories[0]).glob("*-delete")) == []


# --- directories that cannot be used


def test_the_same_directory_twice(tmp_path: Path) -> None:
    """S1: however the path is written."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "logs")
    for item in (tmp_path / "logs", tmp_path / "link", tmp_path / "x" / ".." / "logs"):
        (tmp_path / "x").mkdir(exist_ok=True)
        manager = Broker(tmp_path / "logs", item).make()
        with pytest.raises(KafkaStorageError, match="in use"):
            manager.startup(lambda topic: SMALL, node_id=1)
        manager.shutdown()
    with Broker(tmp_path / "logs").running() as manager:
        assert len(manager.online_dirs) == 1


def test_a_refused_start_closes_every_directory(broker: Broker) -> None:
    """S1: the directory that was opened first is unlocked again, and as clean as before."""
    with broker.running() as manager:
        for partition in (A, B):
            fill(manager.get_or_create(partition, SMALL), 3)
    meta = Path(broker.directories[1], "meta.properties")
    content = meta.read_text()
    meta.write_text(content.replace("node.id=1", "node.id=9"))
    with pytest.raises(KafkaStorageError, match="node 9"):
        broker.make().startup(lambda topic: SMALL, node_id=1, cluster_id="c")
    meta.write_text(content)
    for directory in broker.directories:
        assert Path(directory, ".kafka_cleanshutdown").exists()
    with broker.running() as manager:
        assert [log.log_end_offset for log in manager] == [3, 3]


def test_a_partition_in_two_directories(broker: Broker) -> None:
    """S1: it is unknown which one is right."""
    with broker.running() as manager:
        fill(manager.get_or_create(A, SMALL), 3)
        fill(manager.get_or_create(B, SMALL), 3)
    Path(broker.directories[1], "b-0").rename(Path(broker.directories[1], "a-0"))
    with (
        broker.running() as manager,
        pytest.raises(KafkaStorageError, match=r"a-0.*one.*two.*move one of the two"),
    ):
        manager.get_or_create(A, SMALL)
    Path(broker.directories[1], "a-0").rename(Path(broker.directories[1], "b-0"))
    with broker.running() as manager:
        assert homes(manager) == [["a-0"], ["b-0"]]


# --- deleting and truncating


def test_deleting_a_partition(broker: Broker) -> None:
    """S4."""
    with broker.running() as manager:
        fill(manager.get_or_create(A, SMALL), 15)
        manager.delete(A)
        assert manager.get(A) is None
        assert list(manager) == []
        with pytest.raises(KafkaError) as unknown:
            manager.delete(A)
        assert unknown.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        again = manager.get_or_create(A, SMALL)
        assert again.log_end_offset == 0
        broker.clock.advance(500)
        run_maintenance(manager)
        remaining = sorted(
            path.name for path in Path(broker.directories[0]).iterdir() if path.is_dir()
        )
        assert remaining == ["a-0"]


class CountingDisk(OsDisk):
    """Counts how often a directory is synced."""

    def __init__(self) -> None:
        super().__init__()
        self.directory_syncs = 0

    def sync_directory(self, path: str) -> None:
        self.directory_syncs += 1
        super().sync_directory(path)


def test_many_partitions_are_deleted_with_one_wait(tmp_path: Path) -> None:
    """S4: a topic of many partitions does not stop the others for long."""
    disk = CountingDisk()
    broker = Broker(str(tmp_path), disk=disk)
    with broker.running() as manager:
        keys = [TopicPartition("a", number) for number in range(20)]
        for key in keys:
            fill(manager.get_or_create(key, SMALL), 5)
        remaining = manager.get_or_create(TopicPartition("b", 0), SMALL)
        disk.directory_syncs = 0
        missing = TopicPartition("missing", 0)
        errors = manager.delete_all([*keys, missing])
        assert disk.directory_syncs < len(keys)
        assert [error.code for error in errors] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert list(manager) == [remaining]
    with broker.running() as manager:
        assert [log.partition for log in manager] == [remaining.partition]


def test_a_truncation_is_stored_before_anything_is_appended() -> None:
    """R4, S7: otherwise a start after a crash would take new records for flushed ones."""
    disk = CrashDisk()
    broker = Broker("/logs", disk=disk)
    manager = broker.make()
    manager.startup(lambda topic: SMALL, node_id=1)
    log = manager.get_or_create(A, SMALL)
    fill(log, 25)
    log.flush()
    manager.dirs[0].checkpoint()
    assert manager.begin_truncation(A, 13).complete()
    image = disk.image(CrashMode.DURABLE)
    assert image.read_file("/logs/recovery-point-offset-checkpoint") == b"0\n1\na 0 13\n"
    assert not manager.begin_truncation(A, 13).complete()
    with pytest.raises(KafkaError):
        manager.begin_truncation(B, 0).complete()


def test_truncating_fully(broker: Broker) -> None:
    """R4: a follower whose offsets its leader no longer has."""
    with broker.running() as manager:
        log = manager.get_or_create(A, SMALL)
        fill(log, 25)
        manager.begin_full_truncation(A, 1000).complete()
        assert (log.log_start_offset, log.log_end_offset) == (1000, 1000)
        fill(log, 1)
    with broker.running() as manager:
        result = manager.get(A)
        assert result is not None
        assert offsets(result) == [1000]


# --- periodic maintenance


def test_retention_is_checked_in_its_interval(broker: Broker) -> None:
    """S4."""
    config = LogConfig(
        segment_bytes=1000, segment_index_bytes=1200, retention_bytes=1000, retention_ms=-1
    )
    with broker.running() as manager:
        log = manager.get_or_create(A, config)
        fill(log, 35)
        broker.clock.advance(999)
        run_maintenance(manager)
        assert log.log_start_offset == 0
        broker.clock.advance(1)
        run_maintenance(manager)
        assert log.log_start_offset == 20
        fill(log, 20)
        broker.clock.advance(999)
        run_maintenance(manager)
        assert log.log_start_offset == 20
        broker.clock.advance(1)
        run_maintenance(manager)
        assert log.log_start_offset == 40


def test_checkpoints_are_stored_in_their_interval(broker: Broker) -> None:
    """S1."""
    path = Path(broker.directories[0], "replication-offset-checkpoint")
    with broker.running() as manager:
        fill(manager.get_or_create(A, SMALL), 3)
        broker.clock.advance(299)
        run_maintenance(manager)
        assert not path.exists() or "a 0 3" not in path.read_text()
        broker.clock.advance(1)
        run_maintenance(manager)
        assert path.read_text() == "0\n1\na 0 3\n"


def test_high_watermarks_of_replicated_partitions_are_stored_more_often(tmp_path: Path) -> None:
    """R2: a replica starts with the high watermark that it had."""
    broker = Broker(tmp_path, intervals=MaintenanceIntervals())
    path = Path(broker.directories[0], "replication-offset-checkpoint")
    with broker.running() as manager:
        fill(manager.get_or_create(A, SMALL), 3)
        broker.clock.advance(5000)
        run_maintenance(manager)
        assert not path.exists() or "a 0 3" not in path.read_text()
        manager.maintenance.has_replicas = True
        run_maintenance(manager)
        assert path.read_text() == "0\n1\na 0 3\n"


def test_producers_expire_in_their_interval(tmp_path: Path) -> None:
    """P3."""
    broker = Broker(tmp_path, limits=ProducerLimits(producer_id_expiration_ms=500))
    with broker.running() as manager:
        log = manager.get_or_create(A, SMALL)
        log.append_as_leader(batch(b"a", producer_id=7, sequence=0), 0)
        broker.clock.advance(699)
        run_maintenance(manager)
        assert 7 in log.producers.active_producers()
        broker.clock.advance(1)
        run_maintenance(manager)
        assert 7 not in log.producers.active_producers()


def test_flushes_that_are_due_are_handed_out(broker: Broker) -> None:
    """S6: the manager waits for no disk."""
    often = LogConfig(segment_index_bytes=1200, flush_ms=50)
    with broker.running() as manager:
        a = manager.get_or_create(A, often)
        b = manager.get_or_create(B, SMALL)
        fill(a, 3)
        fill(b, 3)
        assert run_maintenance(manager) == []
        broker.clock.advance(50)
        ((log, task),) = run_maintenance(manager)
        assert log is a
        assert a.recovery_point == 0
        assert run_maintenance(manager) == [], "it is under way"
        task.run()
        log.finish_flush(task)
        assert (a.recovery_point, b.recovery_point) == (3, 0)
        fill(b, 10)
        flush_all(manager)
        assert (a.recovery_point, b.recovery_point) == (3, 13), "it has a sealed segment"


def test_files_are_purged(broker: Broker) -> None:
    config = LogConfig(
        segment_bytes=1000,
        segment_index_bytes=1200,
        retention_bytes=1000,
        file_delete_delay_ms=400,
    )
    with broker.running() as manager:
        log = manager.get_or_create(A, config)
        fill(log, 35)
        broker.clock.advance(1000)
        flush_all(manager)
        directory = Path(log.directory)
        assert len(list(directory.glob("*.log.deleted"))) == 2
        broker.clock.advance(400)
        run_maintenance(manager)
        assert list(directory.glob("*.deleted")) == []


def test_a_chore_that_fails_stops_its_directory_only() -> None:
    """S1."""
    disk = CrashDisk()
    broker = Broker("/one", "/two", disk=disk)
    config = LogConfig(segment_bytes=1000, segment_index_bytes=1200, retention_bytes=1000)
    with broker.running() as manager:
        a, b = (manager.get_or_create(partition, config) for partition in (A, B))
        fill(a, 35)
        fill(b, 35)
        disk.fail("rename", "/one/a-0/*", errno.EIO)
        broker.clock.advance(1000)
        run_maintenance(manager)
        assert [log_dir.is_online for log_dir in manager.dirs] == [False, True]
        assert b.log_start_offset == 20
        assert a.failure is not None


# --- stopping


def test_a_clean_stop_and_start(broker: Broker) -> None:
    """S7: every directory is marked, everything is flushed, nothing is lost."""
    with broker.running() as manager:
        for n, partition in enumerate((A, B, C)):
            log = manager.get_or_create(partition, SMALL, TOPIC_ID)
            for m in range(5):
                log.append_as_leader(batch(b"%d/%d" % (n, m)), 2)
            log.update_high_watermark(4)
    for directory in broker.directories:
        assert Path(directory, ".kafka_cleanshutdown").exists()
    with broker.running() as manager:
        for n, partition in enumerate((A, B, C)):
            result = manager.get(partition)
            assert result is not None
            assert values(result) == [b"%d/%d" % (n, m) for m in range(5)]
            assert (result.high_watermark, result.recovery_point) == (4, 5)
            assert result.epochs.latest_epoch == 2


def test_a_power_failure() -> None:
    """S7: flushed records survive, in every partition and directory."""
    disk = CrashDisk()
    broker = Broker("/one", "/two", disk=disk)
    manager = broker.make()
    manager.startup(lambda topic: SMALL, node_id=1)
    logs = [manager.get_or_create(partition, SMALL) for partition in (A, B, C)]
    for log in logs:
        fill(log, 25)
    broker.clock.advance(300)
    flush_all(manager)
    for log in logs:
        fill(log, 2)
    image = Broker("/one", "/two", disk=disk.image(CrashMode.DURABLE))
    with image.running() as again:
        assert [log.log_end_offset for log in again] == [25, 25, 25]
