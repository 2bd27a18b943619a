"""Stray logs at the start, and creation of many logs (S1)."""

import errno
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from penstock.core.errors import ErrorCode, KafkaError, KafkaStorageError
from penstock.core.ids import TopicId, TopicPartition
from penstock.storage.disk import OsDisk
from penstock.storage.log.log import Log
from penstock.storage.manager.log_creation import NewLog
from penstock.storage.manager.log_manager import LogManager
from tests.support.broker.two_log_dirs import OTHER, SMALL, TP, A, B, TwoLogDirs
from tests.support.clock import ManualClock
from tests.support.storage.crash_disk import CrashDisk, CrashMode, Fault, SimulatedCrash
from tests.support.storage.logs import filler, offsets

ID = UUID("5c8f2f5e-7d9b-4f0a-9d0e-0a1b2c3d4e5f")
OTHER_ID = UUID("11111111-2222-3333-4444-555555555555")


class RecordingDisk(CrashDisk):
    """Records the names of its operations."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def step(self, operation: str, path: str) -> Fault | None:
        self.calls.append(operation)
        return super().step(operation, path)


def stopped() -> TwoLogDirs:
    """A broker with a partition in each directory, after a clean stop."""
    broker = TwoLogDirs()
    broker.fill(3, broker.manager.get_or_create(TP, SMALL, ID))
    broker.fill(2, broker.manager.get_or_create(OTHER, SMALL))
    broker.manager.shutdown()
    return broker


class TestLoad:
    def test_nothing_is_loaded_before_load(self) -> None:
        broker = stopped()
        broker.disk.make_directory("/a/__cluster_metadata-0")
        broker.disk.make_directory("/a/no partition")
        broker.disk.make_directory("/b/gone-0.0123456789abcdef0123456789abcdef-stray")
        manager = LogManager(broker.disk, [A, B], broker.clock)
        manager.open(node_id=1)
        assert list(manager) == []
        assert manager.load(lambda topic: SMALL) == []
        assert {log.partition for log in manager} == {TP, OTHER}
        manager.shutdown()


class TestStrays:
    def test_partitions_that_are_not_hosted_are_renamed(self) -> None:
        broker = stopped()
        manager = LogManager(broker.disk, [A, B], broker.clock)
        manager.open(node_id=1)
        requested: list[tuple[TopicPartition, TopicId | None]] = []

        def belongs(partition: TopicPartition, topic_id: TopicId | None) -> bool:
            requested.append((partition, topic_id))
            return topic_id is not None

        strays = manager.load(lambda topic: SMALL, belongs)
        assert requested == [(TP, ID), (OTHER, None)]
        assert [(stray.partition, stray.topic_id) for stray in strays] == [(OTHER, None)]
        name = Path(strays[0].path).name
        assert name.startswith("bills-0.")
        assert name.endswith("-stray")
        assert broker.disk.exists(f"{strays[0].path}/{0:020d}.log")
        assert [log.partition for log in manager] == [TP]
        log = manager.get_or_create(OTHER, SMALL)
        assert log.log_end_offset == 0
        manager.shutdown()

    def test_they_are_kept(self) -> None:
        broker = stopped()
        for _ in range(2):
            manager = LogManager(broker.disk, [A, B], broker.clock)
            manager.open(node_id=1)
            manager.load(lambda topic: SMALL, lambda partition, topic_id: False)
            assert list(manager) == []
            manager.shutdown()
        assert len(broker.directories(A)) == len(broker.directories(B)) == 1

    def test_the_copy_of_a_move_too(self) -> None:
        broker = TwoLogDirs()
        broker.fill(3)
        broker.step(broker.begin())
        broker.manager.shutdown()
        manager = LogManager(broker.disk, [A, B], broker.clock)
        manager.open(node_id=1)
        strays = manager.load(lambda topic: SMALL, lambda partition, topic_id: False)
        assert [stray.partition for stray in strays] == [TP, TP]
        assert manager.unfinished_moves() == []
        manager.shutdown()


class TestCreation:
    def test_many_at_once_on_a_thread(self, tmp_path: Path) -> None:
        directories = [str(tmp_path / "a"), str(tmp_path / "b")]
        manager = LogManager(OsDisk(), directories, ManualClock())
        manager.startup(lambda topic: SMALL, node_id=1)
        new = [NewLog(TopicPartition("t", n), SMALL, ID, 4) for n in range(10)]
        creation = manager.begin_create(new)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(creation.run).result()
        logs = manager.finish_create(creation)
        assert list(logs) == [item.partition for item in new]
        assert [len(log_dir.logs) for log_dir in manager.dirs] == [5, 5]
        for partition, log in logs.items():
            assert isinstance(log, Log)
            assert manager.get(partition) is log
            assert (log.topic_id, log.epochs.latest_epoch) == (ID, 4)
            log.append_as_leader(filler(100), 4)
        manager.shutdown()
        manager = LogManager(OsDisk(), directories, ManualClock())
        manager.startup(lambda topic: SMALL, node_id=1)
        assert [offsets(log) for log in manager] == [[0]] * 10
        manager.shutdown()

    def test_everything_is_written_before_the_first_sync(self) -> None:
        """A file system with a journal then commits all of it with one sync."""
        disk = RecordingDisk()
        manager = LogManager(disk, [A], ManualClock())
        manager.startup(lambda topic: SMALL, node_id=1)
        count = 20
        creation = manager.begin_create(
            [NewLog(TopicPartition("t", n), SMALL, ID, 4) for n in range(count)]
        )
        disk.calls.clear()
        creation.run()
        syncs = [n for n, call in enumerate(disk.calls) if call in ("sync", "sync_directory")]
        assert not {"write", "create"} & set(disk.calls[syncs[0] :])
        # The topic id, the leader epoch and the directory of each log, and the log directory.
        assert len(syncs) == 3 * count + 1
        manager.finish_create(creation)
        manager.shutdown()

    @pytest.mark.parametrize("mode", CrashMode)
    def test_a_crash_at_each_step(self, mode: CrashMode) -> None:
        """S7: a log is not there, or has its topic id; afterwards all of them can be created."""
        partitions = [TopicPartition("t", n) for n in range(3)]
        new_logs = [NewLog(partition, SMALL, ID, 4) for partition in partitions]
        crash_at, is_complete = 0, False
        while not is_complete:
            disk = CrashDisk()
            manager = LogManager(disk, [A], ManualClock())
            manager.startup(lambda topic: SMALL, node_id=1)
            creation = manager.begin_create(new_logs, is_new=True)
            disk.crash_at = disk.operations + crash_at
            with suppress(SimulatedCrash):
                creation.run()
                is_complete = True
            disk = disk.image(mode, Random(crash_at))
            manager = LogManager(disk, [A], ManualClock())
            manager.startup(lambda topic: SMALL, node_id=1)
            assert not manager.dirs[0].load_errors
            assert all(log.topic_id in (None, ID) for log in manager)
            if is_complete:
                assert [(log.partition, log.topic_id) for log in manager] == [
                    (partition, ID) for partition in partitions
                ]
            creation = manager.begin_create(new_logs)
            creation.run()
            for log in manager.finish_create(creation).values():
                assert isinstance(log, Log)
                log.append_as_leader(filler(100), 4)
            manager.shutdown()
            crash_at += 1

    def test_a_log_without_a_topic_id_gets_it_on_disk(self) -> None:
        """S7: a crash may leave a log whose topic id was not durable."""
        broker = TwoLogDirs()
        broker.manager.get_or_create(TP, SMALL)
        log = broker.manager.get_or_create(TP, SMALL, ID)
        assert log.topic_id == ID
        broker.manager.shutdown()
        manager = LogManager(broker.disk, [A, B], broker.clock)
        manager.open(node_id=1)
        manager.load(lambda topic: SMALL)
        with pytest.raises(KafkaError) as raised:
            manager.get_or_create(TP, SMALL, OTHER_ID)
        assert raised.value.code is ErrorCode.INCONSISTENT_TOPIC_ID
        manager.shutdown()

    def test_a_topic_id_that_cannot_be_written_is_not_assigned(self) -> None:
        broker = TwoLogDirs()
        log = broker.manager.get_or_create(TP, SMALL)
        broker.disk.fail("rename", "*partition.metadata*", errno.EIO)
        with pytest.raises(KafkaStorageError):
            broker.manager.get_or_create(TP, SMALL, ID)
        assert log.topic_id is None

    def test_an_existing_log_is_returned(self) -> None:
        broker = TwoLogDirs()
        log = broker.manager.get_or_create(TP, SMALL, ID)
        broker.manager.prefer_dir(OTHER, A)
        creation = broker.manager.begin_create([NewLog(TP, SMALL), NewLog(OTHER, SMALL)])
        creation.run()
        logs = broker.manager.finish_create(creation)
        assert logs[TP] is log
        assert broker.manager.dirs[0].has(OTHER)
        with pytest.raises(KafkaError) as error:
            broker.manager.begin_create([NewLog(TP, SMALL, OTHER_ID)])
        assert error.value.code is ErrorCode.INCONSISTENT_TOPIC_ID
        broker.manager.shutdown()

    @pytest.mark.parametrize(
        ("operation", "path"), [("create", "/b/*.log"), ("sync_directory", "/b")]
    )
    def test_a_directory_that_fails(self, operation: str, path: str) -> None:
        broker = TwoLogDirs()
        broker.disk.fail(operation, path, errno.EIO)
        partitions = [TopicPartition("t", n) for n in range(6)]
        creation = broker.manager.begin_create(
            [NewLog(partition, SMALL) for partition in partitions]
        )
        creation.run()
        logs = broker.manager.finish_create(creation)
        created = [partition for partition, log in logs.items() if isinstance(log, Log)]
        failed = [
            partition for partition, log in logs.items() if isinstance(log, KafkaStorageError)
        ]
        assert (created, failed) == (partitions[::2], partitions[1::2])
        assert [log_dir.is_online for log_dir in broker.manager.dirs] == [True, False]
        broker.manager.shutdown()
