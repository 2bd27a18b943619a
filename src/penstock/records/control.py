"""Control batches: records that the cluster writes to a log and that consumers do not see.

A control batch holds one record. Its key is a version and a type; its value depends on the type.
A transaction marker is one of them: its value is a version and the coordinator's epoch.
"""

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from penstock.core.buffers import Buffer
from penstock.core.errors import CorruptRecordError, InvalidRecordError
from penstock.records.batch import BatchHeader
from penstock.records.build import build_batch
from penstock.records.read import read_records
from penstock.records.record import Record

_KEY = Struct(">hh")
_END_TXN_VALUE = Struct(">hi")
_VERSION = 0


class ControlType(IntEnum):
    """The type of a control record. Readers ignore unknown types."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndTxnMarker(NamedTuple):
    """The marker that ends a producer's transaction on a partition."""

    control_type: ControlType
    """COMMIT or ABORT; any other type does not end a transaction and is ignored."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int

    @property
    def commits(self) -> bool:
        return self.control_type is ControlType.COMMIT

    @property
    def ends_transaction(self) -> bool:
        return self.control_type in (ControlType.COMMIT, ControlType.ABORT)


def read_control_type(key: bytes | None) -> ControlType:
    """Returns the type in a control record's key; UNKNOWN for types of later versions."""
    if key is None or len(key) < _KEY.size:
        raise CorruptRecordError(f"the key of a control record has {_KEY.size} bytes, not {key!r}")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptRecordError(f"the key of a control record has version {version}")
    try:
        return ControlType(number)
    except ValueError:
        return ControlType.UNKNOWN


def build_end_txn_marker(
    commit: bool,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    partition_leader_epoch: int = -1,
) -> bytearray:
    """Returns the batch that ends a producer's transaction on a partition."""
    if producer_id < 0:
        raise InvalidRecordError("a transaction marker needs a producer id")
    key = _KEY.pack(_VERSION, ControlType.COMMIT if commit else ControlType.ABORT)
    value = _END_TXN_VALUE.pack(_VERSION, coordinator_epoch)
    return build_batch(
        [Record(base_offset, timestamp, key, value)],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        partition_leader_epoch=partition_leader_epoch,
        is_transactional=True,
        is_control=True,
    )


def build_control_batch(
    control_type: ControlType, value: bytes, *, base_offset: int, timestamp: int, leader_epoch: int
) -> bytes:
    """Returns a control batch that belongs to no producer: one of a KRaft controller."""
    batch = build_batch(
        [Record(base_offset, timestamp, _KEY.pack(_VERSION, control_type), value)],
        base_offset=base_offset,
        partition_leader_epoch=leader_epoch,
        is_control=True,
    )
    return bytes(batch)


def read_end_txn_marker(buffer: Buffer, position: int, header: BatchHeader) -> EndTxnMarker:
    """Returns the marker in the control batch at `position`.

    For a batch that compaction has emptied, and for control types that do not end a transaction,
    the coordinator epoch is -1; the type of an emptied batch is UNKNOWN.
    """
    if not header.is_control:
        raise InvalidRecordError(f"the batch at offset {header.base_offset} is not a control batch")
    control_type = ControlType.UNKNOWN
    coordinator_epoch = -1
    records = read_records(buffer, position, header)
    if records:
        control_type = read_control_type(records[0].key)
        if control_type in (ControlType.COMMIT, ControlType.ABORT):
            coordinator_epoch = _coordinator_epoch(records[0].value)
    return EndTxnMarker(control_type, header.producer_id, header.producer_epoch, coordinator_epoch)


def _coordinator_epoch(value: bytes | None) -> int:
    if value is None or len(value) < _END_TXN_VALUE.size:
        raise CorruptRecordError(
            f"the value of a transaction marker has {_END_TXN_VALUE.size} bytes, not {value!r}"
        )
    version, epoch = _END_TXN_VALUE.unpack_from(value)
    if version < 0:
        raise CorruptRecordError(f"a transaction marker has version {version}")
    return int(epoch)
