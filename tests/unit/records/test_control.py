"""Control batches and the markers that end transactions."""

import pytest

from penstock.core.errors import CorruptRecordError, InvalidRecordError
from penstock.records.batch import read_header, verify
from penstock.records.build import build_batch
from penstock.records.control import (
    ControlType,
    EndTxnMarker,
    build_end_txn_marker,
    read_control_type,
    read_end_txn_marker,
)
from penstock.records.record import Record
from tests.support.storage.batches import T, golden

V2 = golden("v2")


def marker_of(batch: bytes | bytearray) -> EndTxnMarker:
    return read_end_txn_marker(batch, 0, read_header(batch))


def control_batch(key: bytes | None, value: bytes | None) -> bytearray:
    return build_batch(
        [Record(0, T, key, value)],
        producer_id=4711,
        producer_epoch=3,
        is_transactional=True,
        is_control=True,
    )


@pytest.mark.parametrize(
    ("name", "commit", "offset", "timestamp", "coordinator_epoch"),
    [("commit", True, 77, T, 21), ("abort", False, 78, T + 1, 22)],
)
def test_same_bytes_as_kafka(
    name: str, commit: bool, offset: int, timestamp: int, coordinator_epoch: int
) -> None:
    """P4."""
    batch = build_end_txn_marker(
        commit,
        producer_id=4711,
        producer_epoch=3,
        coordinator_epoch=coordinator_epoch,
        timestamp=timestamp,
        base_offset=offset,
        partition_leader_epoch=9,
    )
    assert batch == V2[name]
    header = read_header(batch)
    verify(batch, 0, header)
    assert header.is_control
    assert header.is_transactional
    marker = marker_of(batch)
    assert marker == EndTxnMarker(
        ControlType.COMMIT if commit else ControlType.ABORT, 4711, 3, coordinator_epoch
    )
    assert marker.commits is commit
    assert marker.ends_transaction


def test_types_of_later_versions_are_tolerated() -> None:
    marker = marker_of(control_batch(bytes.fromhex("0000 0063"), b"whatever"))
    assert marker == EndTxnMarker(ControlType.UNKNOWN, 4711, 3, -1)
    assert not marker.ends_transaction
    assert not marker.commits


def test_types_that_end_no_transaction() -> None:
    marker = marker_of(control_batch(bytes.fromhex("0000 0002"), None))
    assert marker.control_type is ControlType.LEADER_CHANGE
    assert not marker.ends_transaction


def test_later_versions_of_known_types_are_read_as_far_as_known() -> None:
    key = bytes.fromhex("0001 0001 ffff")
    value = bytes.fromhex("0001 00000015 ffff")
    assert marker_of(control_batch(key, value)) == EndTxnMarker(ControlType.COMMIT, 4711, 3, 21)


def test_a_marker_that_compaction_emptied() -> None:
    """S5."""
    header = read_header(V2["commit"])
    emptied = build_batch(
        [],
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        is_transactional=True,
        is_control=True,
    )
    assert marker_of(emptied) == EndTxnMarker(ControlType.UNKNOWN, 4711, 3, -1)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (None, None, "key of a control record has 4 bytes"),
        ("000000", None, "key of a control record has 4 bytes"),
        ("ffff0000", None, "version -1"),
        ("00000000", None, "value of a transaction marker has 6 bytes"),
        ("00000001", "0000000000", "value of a transaction marker has 6 bytes"),
        ("00000001", "ffff00000000", "version -1"),
    ],
)
def test_broken_markers(key: str | None, value: str | None, message: str) -> None:
    batch = control_batch(
        None if key is None else bytes.fromhex(key),
        None if value is None else bytes.fromhex(value),
    )
    with pytest.raises(CorruptRecordError, match=message):
        marker_of(batch)


def test_other_batches_are_no_markers() -> None:
    with pytest.raises(InvalidRecordError, match="not a control batch"):
        marker_of(V2["plain"])
    with pytest.raises(InvalidRecordError, match="needs a producer id"):
        build_end_txn_marker(
            True, producer_id=-1, producer_epoch=0, coordinator_epoch=0, timestamp=T
        )
    assert read_control_type(bytes.fromhex("00000000")) is ControlType.ABORT
