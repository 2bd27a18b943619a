"""Dumps of snapshots, checkpoints, identities and the shutdown marker (S1)."""

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from penstock.core.ids import TopicPartition
from penstock.records.record import Record
from penstock.storage.checkpoint.checkpoint_files import (
    PARTITION_METADATA,
    EpochEntry,
    MetaProperties,
    encode_clean_shutdown,
    encode_leader_epochs,
    encode_meta_properties,
    encode_offsets,
    write_partition_metadata,
)
from penstock.storage.disk import OsDisk, replace_by_temporary
from tests.support.storage.written_log import EPOCH, NOW_MS, WrittenLog, dump_items, of_kind

TOPIC_ID = UUID(bytes=bytes(range(16)))


def problems(path: Path) -> list[str]:
    return [str(fields["problem"]) for fields in of_kind(dump_items(path), "problem")]


def entries(path: Path) -> list[dict[str, object]]:
    items = dump_items(path)
    assert not of_kind(items, "problem")
    return of_kind(items, "entry")


@pytest.mark.parametrize(
    "name",
    [
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
        "cleaner-offset-checkpoint",
    ],
)
def test_offset_checkpoints(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(
        encode_offsets({TopicPartition("orders", 0): 1500, TopicPartition("a-b", 12): 7})
    )
    assert entries(path) == [
        {"topic": "orders", "partition": 0, "offset": 1500},
        {"topic": "a-b", "partition": 12, "offset": 7},
    ]


def test_a_checkpoint_that_makes_no_sense_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    path.write_text("0\n1\norders zero 1500\n")
    (reason,) = problems(path)
    assert "line 3" in reason
    assert "topic partition offset" in reason


def test_leader_epochs(new_log: Callable[..., WrittenLog]) -> None:
    """R4: the epochs of the log that was written."""
    written = new_log()
    written.append_values(b"one")
    written.close()
    path = written.directory / "leader-epoch-checkpoint"
    assert entries(path) == [{"epoch": EPOCH, "startOffset": 0}]


def test_leader_epochs_that_do_not_rise_are_a_problem(tmp_path: Path) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_bytes(encode_leader_epochs([EpochEntry(3, 10), EpochEntry(3, 20)]))
    items = dump_items(path)
    assert len(of_kind(items, "entry")) == 2
    (result,) = of_kind(items, "problem")
    assert "epoch 3 at offset 20 follows epoch 3 at offset 10" in str(result["problem"])


def test_partition_metadata(tmp_path: Path) -> None:
    write_partition_metadata(OsDisk(), str(tmp_path), TOPIC_ID)
    replace_by_temporary(OsDisk(), f"{tmp_path}/{PARTITION_METADATA}")
    assert entries(tmp_path / "partition.metadata") == [
        {"version": 0, "topic_id": "AAECAwQFBgcICQoLDA0ODw"}
    ]


def test_meta_properties_show_every_property(tmp_path: Path) -> None:
    path = tmp_path / "meta.properties"
    properties = encode_meta_properties(MetaProperties(0, "cluster", 1, TOPIC_ID))
    path.write_bytes(properties + b"added.later=yes\n")
    assert entries(path) == [
        {
            "added.later": "yes",
            "broker.id": "1",
            "cluster.id": "cluster",
            "directory.id": "AAECAwQFBgcICQoLDA0ODw",
            "version": "0",
        }
    ]


def test_meta_properties_of_no_known_version(tmp_path: Path) -> None:
    path = tmp_path / "meta.properties"
    path.write_text("version=7\n")
    (reason,) = problems(path)
    assert "version is '7'" in reason


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (encode_clean_shutdown(12), [{"brokerEpoch": 12}]),
        (encode_clean_shutdown(), [{"brokerEpoch": -1}]),
        (b"", []),
    ],
)
def test_clean_shutdown_marker(
    tmp_path: Path, content: bytes, expected: list[dict[str, object]]
) -> None:
    path = tmp_path / ".kafka_cleanshutdown"
    path.write_bytes(content)
    assert entries(path) == expected
    assert len(of_kind(dump_items(path), "note")) == (not expected)


def test_producer_snapshot(new_log: Callable[..., WrittenLog]) -> None:
    """P3: the last batch of every producer; P4: an open transaction."""
    written = new_log()
    two = [Record(0, NOW_MS, b"k", b"v"), Record(1, NOW_MS + 9, b"k", b"v")]
    written.append(two, producer_id=4000, base_sequence=0)
    written.append(two, producer_id=4001, base_sequence=5, is_transactional=True)
    written.close()
    path = written.path(".snapshot", 4)
    items = dump_items(path)
    assert of_kind(items, "file") == [
        {"type": "snapshot", "size": path.stat().st_size, "offset": 4}
    ]
    assert entries(path) == [
        {
            "producerId": 4000,
            "producerEpoch": 0,
            "coordinatorEpoch": -1,
            "currentTxnFirstOffset": None,
            "lastTimestamp": NOW_MS + 9,
            "firstSequence": 0,
            "lastSequence": 1,
            "lastOffset": 1,
            "offsetDelta": 1,
            "timestamp": NOW_MS + 9,
        },
        {
            "producerId": 4001,
            "producerEpoch": 0,
            "coordinatorEpoch": -1,
            "currentTxnFirstOffset": 2,
            "lastTimestamp": NOW_MS + 9,
            "firstSequence": 5,
            "lastSequence": 6,
            "lastOffset": 3,
            "offsetDelta": 1,
            "timestamp": NOW_MS + 9,
        },
    ]


def test_a_torn_snapshot_is_a_problem(new_log: Callable[..., WrittenLog]) -> None:
    written = new_log()
    written.append([Record(0, NOW_MS, b"k", b"v")], producer_id=4000, base_sequence=0)
    written.close()
    path = written.path(".snapshot", 1)
    path.write_bytes(path.read_bytes()[:-3])
    (reason,) = problems(path)
    assert "CRC" in reason
