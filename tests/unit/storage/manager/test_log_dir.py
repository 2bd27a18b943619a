"""One directory of `log.dirs`: lock, identity, checkpoints, partitions (S1, S7)."""

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.core.errors import KafkaStorageError
from penstock.storage.log_config import LogConfig
from tests.support.storage.crash_disk import CrashDisk, CrashMode
from tests.support.storage.log_dirs import (
    CLEAN,
    RECOVERY,
    REPLICATION,
    SMALL,
    STARTS,
    TOPIC_ID,
    A,
    B,
    Directory,
    crash,
    fill,
)
from tests.support.storage.logs import filler, offsets


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory(str(tmp_path / "logs"))


# --- directory, lock, identity


def test_a_new_directory(directory: Directory) -> None:
    """S1: it is created, locked, and has its owner's id."""
    with directory.opened() as log_dir:
        assert log_dir.is_online
        assert log_dir.logs == {}
        assert directory.file(".lock").exists()
        assert not directory.file(CLEAN).exists()
        lines = directory.file("meta.properties").read_text().splitlines()
        assert {"version=1", "cluster.id=the-cluster", "node.id=1"} <= set(lines)
        directory_id = log_dir.directory_id
        assert directory_id is not None
        assert repr(log_dir) == f"LogDir({directory.path!r}, online, 0 logs)"
    with directory.opened() as log_dir:
        assert log_dir.directory_id == directory_id


def test_the_name_of_a_new_directory_is_durable() -> None:
    """S7: with it everything in it would go."""
    disk = CrashDisk()
    with Directory("/data/deep/logs", disk).opened() as log_dir:
        log = log_dir.create(A, SMALL, TOPIC_ID)
        fill(log, 1)
        log.flush()
        log_dir.checkpoint()
        again = Directory("/data/deep/logs", disk.image(CrashMode.DURABLE)).open()
        assert offsets(again.logs[A]) == [0]
        assert again.logs[A].topic_id == TOPIC_ID


def test_a_directory_is_used_once(directory: Directory) -> None:
    with directory.opened(), pytest.raises(KafkaStorageError, match="in use by another process"):
        directory.open()
    with directory.opened() as log_dir:
        assert log_dir.is_online


LOCK_IT = """
import sys
from penstock.storage.disk import OsDisk
lock = OsDisk().lock(sys.argv[1])
print("locked" if lock else "refused", flush=True)
sys.stdin.read()
"""


def test_a_directory_in_use_by_another_process(directory: Directory) -> None:
    """S1: and unlocked as soon as that process has ended, in any way."""
    with directory.opened():
        pass
    process = subprocess.Popen(
        [sys.executable, "-c", LOCK_IT, str(directory.file(".lock"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        with pytest.raises(KafkaStorageError, match="stop that process, or name another directory"):
            directory.open()
        process.kill()
        process.wait(60)
    with directory.opened() as log_dir:
        assert log_dir.is_online


def test_closing_a_directory_of_another_process_changes_nothing(directory: Directory) -> None:
    """S7: a broker that failed to start must not mark another broker's directory as clean."""
    with directory.opened() as log_dir:
        fill(log_dir.create(A, SMALL, None), 15)
        log_dir.checkpoint()
        before = directory.checkpoint(REPLICATION)
        refused = directory.make()
        with pytest.raises(KafkaStorageError):
            refused.open(cluster_id="the-cluster", node_id=1)
        refused.close()
        assert directory.checkpoint(REPLICATION) == before == {"a-0": 15}
        assert not directory.file(CLEAN).exists()


def test_the_directory_of_another_node(directory: Directory) -> None:
    with directory.opened() as log_dir:
        fill(log_dir.create(A, SMALL, None), 15)
    before = {
        path.name: path.read_bytes() for path in Path(directory.path).iterdir() if path.is_file()
    }
    wrong = directory.make()
    with pytest.raises(KafkaStorageError, match=r"node 1, this is node 2.*node\.id=1"):
        wrong.open(cluster_id="the-cluster", node_id=2)
    wrong.close()
    after = {
        path.name: path.read_bytes() for path in Path(directory.path).iterdir() if path.is_file()
    }
    assert after == before, "it is not ours to change"
    with directory.opened() as log_dir:
        assert log_dir.logs[A].high_watermark == 15


def test_the_directory_of_another_cluster(directory: Directory) -> None:
    with directory.opened():
        pass
    wrong = directory.make()
    with pytest.raises(KafkaStorageError, match="cluster the-cluster, this is cluster other"):
        wrong.open(cluster_id="other", node_id=1)
    wrong.close()
    assert directory.file(CLEAN).exists()


def test_a_cluster_without_an_id(directory: Directory) -> None:
    """A directory created before its cluster had an id opens with one, and without."""
    for cluster_id in (None, None, "later"):
        log_dir = directory.open(cluster_id=cluster_id)
        assert log_dir.is_online
        log_dir.close()
    lines = directory.file("meta.properties").read_text().splitlines()
    assert {"version=0", "broker.id=1"} <= set(lines)


def test_a_directory_that_zookeepers_kafka_wrote(directory: Directory) -> None:
    Path(directory.path).mkdir()
    directory.file("meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=the-cluster\n")
    with directory.opened() as log_dir:
        assert log_dir.is_online
    wrong = directory.make()
    with pytest.raises(KafkaStorageError, match="node 1"):
        wrong.open(cluster_id="the-cluster", node_id=2)
    wrong.close()


def test_a_directory_that_cannot_be_created(tmp_path: Path) -> None:
    """S1: offline, with the reason."""
    (tmp_path / "file").write_text("no directory")
    log_dir = Directory(str(tmp_path / "file" / "logs")).open()
    assert not log_dir.is_online
    assert log_dir.error is not None
    assert "offline" in log_dir.error.message
    with pytest.raises(KafkaStorageError):
        log_dir.create(A, SMALL, None)
    log_dir.close()


# --- partitions


def test_partitions_are_loaded_again(directory: Directory) -> None:
    """S1: one directory `topic-partition` each, with the topic's id."""
    with directory.opened() as log_dir:
        fill(log_dir.create(A, SMALL, TOPIC_ID), 15)
        fill(log_dir.create(B, SMALL, None), 3)
        log_dir.logs[B].flush()
        assert directory.file("a-0", "partition.metadata").exists()
        assert not directory.file("b-11", "partition.metadata").exists()
        assert sorted(path.name for path in directory.file("b-11").iterdir()) == [
            f"{0:020d}.index",
            f"{0:020d}.log",
            f"{0:020d}.timeindex",
            "leader-epoch-checkpoint",
        ]
    with directory.opened() as log_dir:
        assert {tp: log.log_end_offset for tp, log in log_dir.logs.items()} == {A: 15, B: 3}
        assert (log_dir.logs[A].topic_id, log_dir.logs[B].topic_id) == (TOPIC_ID, None)


def test_each_topic_has_its_own_settings(directory: Directory) -> None:
    """S4."""
    new_config = LogConfig(segment_bytes=5000, segment_index_bytes=1200)
    with directory.opened() as log_dir:
        log_dir.create(A, SMALL, None)
        log_dir.create(B, new_config, None)
    directory.config_of = lambda topic: new_config if topic == "b" else SMALL
    with directory.opened() as log_dir:
        assert (log_dir.logs[A].config, log_dir.logs[B].config) == (SMALL, new_config)


def test_other_directories_are_ignored(directory: Directory) -> None:
    names = ["lost+found", "a-0.abc-future", "a-0.abc-stray", "notes", "__cluster_metadata-0"]
    for name in names:
        directory.file(name).mkdir(parents=True)
        directory.file(name, "file").write_text("keep me")
    with directory.opened() as log_dir:
        assert log_dir.logs == {}
        assert log_dir.load_errors == {}
    for name in names:
        assert [path.name for path in directory.file(name).iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("partition.metadata", b"version: 0\ntopic_id: nonsense"),
        ("backup.cleaned", b""),
    ],
)
def test_invalid_files_take_only_their_partition_offline(
    directory: Directory, name: str, content: bytes
) -> None:
    """S1: the message names the file and has the remedy."""
    with directory.opened() as log_dir:
        for partition in (A, B):
            fill(log_dir.create(partition, SMALL, None), 3)
    directory.file("a-0", name).write_bytes(content)
    with directory.opened() as log_dir:
        assert log_dir.is_online
        assert list(log_dir.logs) == [B]
        assert name in log_dir.load_errors[A].message
        fill(log_dir.logs[B], 2)


def test_leader_epochs_are_rebuilt_from_the_batches(directory: Directory) -> None:
    with directory.opened() as log_dir:
        log = log_dir.create(A, SMALL, None)
        for epoch in (0, 3, 4):
            for _ in range(15):
                log.append_as_leader(filler(100), epoch)
        entries = log.epochs.entries()
    path = directory.file("a-0", "leader-epoch-checkpoint")
    path.write_bytes(b"0\n1\nnonsense\n")
    with directory.opened() as log_dir:
        assert log_dir.logs[A].epochs.entries() == entries
    assert path.read_bytes() == b"0\n3\n0 0\n3 15\n4 30\n"


def test_invalid_records_take_only_their_partition_offline(directory: Directory) -> None:
    """S7: after a clean stop nothing is recovered; an invalid end was not caused by a crash."""
    with directory.opened() as log_dir:
        for partition in (A, B):
            fill(log_dir.create(partition, SMALL, None), 15)
    with directory.file("a-0", f"{10:020d}.log").open("ab") as file:
        file.write(b"garbage" * 20)
    with directory.opened() as log_dir:
        assert list(log_dir.logs) == [B]
        assert isinstance(log_dir.load_errors[A], KafkaStorageError)
        assert "a-0" in log_dir.load_errors[A].message


def test_a_broken_partition_keeps_its_checkpoints(directory: Directory) -> None:
    """S4, S7: once repaired, it continues; deleted records do not reappear."""
    with directory.opened() as log_dir:
        for partition in (A, B):
            log = log_dir.create(partition, SMALL, None)
            fill(log, 15)
            log.increment_log_start_offset(7)
    broken = directory.file("a-0", "partition.metadata")
    broken.write_bytes(b"nonsense")
    with directory.opened() as log_dir:
        assert list(log_dir.load_errors) == [A]
        log_dir.checkpoint()
    assert not directory.file(CLEAN).exists(), "what was not opened was not closed either"
    broken.unlink()
    with directory.opened() as log_dir:
        log = log_dir.logs[A]
        assert (log.log_start_offset, log.high_watermark, log.recovery_point) == (7, 15, 15)


def test_create_is_durable() -> None:
    """S7: a partition that was acknowledged is there after a power cut."""
    disk = CrashDisk()
    directory = Directory("/logs", disk)
    log_dir = directory.open()
    log_dir.create(A, SMALL, TOPIC_ID)
    again = Directory("/logs", disk.image(CrashMode.DURABLE)).open()
    assert again.logs[A].topic_id == TOPIC_ID


def test_a_loss_is_reported_until_the_controller_knows_it() -> None:
    """R7: also if the broker is stopped or killed before it has registered."""
    disk = CrashDisk()

    def is_lost(disk: CrashDisk, *, is_confirmed: bool = False) -> bool:
        with Directory("/logs", disk).opened() as log_dir:
            is_lost = log_dir.may_have_lost_records
            if is_confirmed:
                log_dir.confirm_loss()
            return is_lost

    assert is_lost(disk), "a new disk"
    assert is_lost(disk), "a clean shutdown, but the controller was not notified"
    assert is_lost(disk, is_confirmed=True)
    assert not is_lost(disk)
    log_dir = Directory("/logs", disk).open()
    assert not log_dir.may_have_lost_records
    after = disk.image(CrashMode.DURABLE)
    assert Directory("/logs", after).open().may_have_lost_records
    after = after.image(CrashMode.DURABLE)
    assert is_lost(after, is_confirmed=True)
    assert not is_lost(after)


# --- checkpoints and the clean-shutdown marker


def test_checkpoints(directory: Directory) -> None:
    """S1: in Kafka's format."""
    with directory.opened() as log_dir:
        a = log_dir.create(A, SMALL, None)
        b = log_dir.create(B, SMALL, None)
        fill(a, 25)
        a.flush()
        fill(a, 5)
        a.update_high_watermark(28)
        a.increment_log_start_offset(13)
        fill(b, 3)
        log_dir.checkpoint()
        assert directory.file(RECOVERY).read_text() == "0\n2\na 0 25\nb 11 0\n"
        assert directory.checkpoint(REPLICATION) == {"a-0": 28, "b-11": 3}
        assert directory.checkpoint(STARTS) == {"a-0": 13}
    assert directory.checkpoint(RECOVERY) == {"a-0": 30, "b-11": 3}


def test_the_mark_of_a_clean_stop(directory: Directory) -> None:
    """S7: written at the very end, removed at the next start before anything is changed."""
    with directory.opened() as log_dir:
        fill(log_dir.create(A, SMALL, None), 15)
        assert not directory.file(CLEAN).exists()
    assert directory.file(CLEAN).read_text() == '{"version":0,"brokerEpoch":-1}'
    log_dir = directory.open()
    assert not directory.file(CLEAN).exists()
    log_dir.close()
    assert directory.file(CLEAN).exists()


def test_after_a_clean_stop_nothing_is_recovered(directory: Directory) -> None:
    """S7: damage that recovery would find is not looked for."""
    with directory.opened() as log_dir:
        fill(log_dir.create(A, SMALL, None), 15)
    path = directory.file("a-0", f"{10:020d}.log")
    data = bytearray(path.read_bytes())
    data[150] ^= 1
    path.write_bytes(data)
    with directory.opened() as log_dir:
        assert log_dir.logs[A].log_end_offset == 15
    directory.file(CLEAN).unlink()
    directory.file(RECOVERY).unlink()
    with directory.opened() as log_dir:
        assert log_dir.logs[A].log_end_offset == 11


def test_after_a_crash_the_checkpoints_count(directory: Directory) -> None:
    """S7: flushed records are not read, the others are, and the log start offset is kept."""
    log_dir = directory.open()
    log = log_dir.create(A, SMALL, None)
    fill(log, 25)
    log.flush()
    log.increment_log_start_offset(3)
    log_dir.checkpoint()
    fill(log, 10)
    crash(log_dir)
    data = bytearray(directory.file("a-0", f"{0:020d}.log").read_bytes())
    data[450] ^= 1
    directory.file("a-0", f"{0:020d}.log").write_bytes(data)
    with directory.opened() as log_dir:
        log = log_dir.logs[A]
        assert (log.log_start_offset, log.log_end_offset) == (3, 35)
        assert (log.recovery_point, log.high_watermark) == (25, 25)


@pytest.mark.parametrize("name", [RECOVERY, REPLICATION, STARTS])
def test_a_broken_checkpoint_is_done_without(directory: Directory, name: str) -> None:
    """S7: more is recovered, less is shown, nothing is lost."""
    log_dir = directory.open()
    fill(log_dir.create(A, SMALL, None), 25)
    log_dir.logs[A].increment_log_start_offset(4)
    log_dir.checkpoint()
    crash(log_dir)
    directory.file(name).write_text("0\nnonsense\n")
    with directory.opened() as log_dir:
        log = log_dir.logs[A]
        start = 0 if name == STARTS else 4
        assert offsets(log) == list(range(start, 25))
        assert log.high_watermark == (start if name == REPLICATION else 25)
