"""What compaction leaves of a batch."""

from collections.abc import Sequence
from itertools import compress as select

from penstock.records.batch import BatchHeader, Buffer
from penstock.records.build import build_batch
from penstock.records.compress import DEFAULT_DECOMPRESSED_LIMIT
from penstock.records.read import read_records


def filter_batch(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    keep: Sequence[bool],
    *,
    delete_horizon_ms: int | None = None,
    keep_empty: bool = False,
    max_bytes: int = DEFAULT_DECOMPRESSED_LIMIT,
) -> bytearray | None:
    """The v2 batch at `position` with those records for which `keep` is true, in their order.

    Base offset, last offset, producer, epoch, codec and timestamp type stay, so that the producer's
    last sequence can still be told. `delete_horizon_ms` is set on the batch unless it has one
    already. Untouched bytes are taken over as they are. With no record left, the batch becomes a
    header alone (`keep_empty`), or None.
    """
    sets_horizon = delete_horizon_ms is not None and not header.has_delete_horizon
    if all(keep) and header.records_count > 0 and not sets_horizon:
        return bytearray(memoryview(buffer)[position : position + header.size])
    records = read_records(buffer, position, header, max_bytes=max_bytes)
    if len(keep) != len(records):
        raise ValueError(f"{len(keep)} choices for {len(records)} records")
    kept = list(select(records, keep))
    if not kept and not keep_empty:
        return None
    return build_batch(
        kept,
        base_offset=header.base_offset,
        compression=header.compression,
        timestamp_type=header.timestamp_type,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        partition_leader_epoch=header.partition_leader_epoch,
        is_transactional=header.is_transactional,
        is_control=header.is_control,
        delete_horizon_ms=delete_horizon_ms if sets_horizon else header.delete_horizon_ms,
        last_offset=header.last_offset,
        max_timestamp=header.max_timestamp,
    )
