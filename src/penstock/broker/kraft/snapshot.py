"""Writes a snapshot of `__cluster_metadata`, as a KRaft controller and `kafka-storage` do.

A snapshot is a sequence of batches: a control batch with the header, the records, and a control
batch with the footer, without which it is not complete.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from penstock.broker.kraft.metadata_records import PARTITION_VERSION
from penstock.protocol.codec import encode
from penstock.protocol.fields import Message
from penstock.protocol.stored.cluster_metadata import PartitionRecord, encode_frame
from penstock.protocol.stored.control import SnapshotFooterRecord, SnapshotHeaderRecord
from penstock.records.build import build_batch
from penstock.records.control import ControlType, build_control_batch
from penstock.records.record import Record

_RECORDS_PER_BATCH: Final = 1000


def snapshot_name(end_offset: int, epoch: int) -> str:
    """Returns the file name of a snapshot of everything below the offset."""
    return f"{end_offset:020d}-{epoch:010d}.checkpoint"


def build_snapshot(
    records: Sequence[Message], *, timestamp: int, epoch: int = 0
) -> Iterator[bytes]:
    """Yields the batches of a snapshot with these records."""
    header = encode(SnapshotHeaderRecord(last_contained_log_timestamp=timestamp), 0)
    footer = encode(SnapshotFooterRecord(), 0)
    yield build_control_batch(
        ControlType.SNAPSHOT_HEADER, header, base_offset=0, timestamp=timestamp, leader_epoch=epoch
    )
    offset = 1
    for start in range(0, len(records), _RECORDS_PER_BATCH):
        chunk = records[start : start + _RECORDS_PER_BATCH]
        yield bytes(
            build_batch(
                list(_encoded(chunk, offset, timestamp)),
                base_offset=offset,
                partition_leader_epoch=epoch,
            )
        )
        offset += len(chunk)
    yield build_control_batch(
        ControlType.SNAPSHOT_FOOTER,
        footer,
        base_offset=offset,
        timestamp=timestamp,
        leader_epoch=epoch,
    )


def _encoded(messages: Iterable[Message], offset: int, timestamp: int) -> Iterator[Record]:
    for number, message in enumerate(messages, offset):
        version = PARTITION_VERSION if isinstance(message, PartitionRecord) else 0
        yield Record(number, timestamp, None, encode_frame(message, version))
