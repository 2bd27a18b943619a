"""Appends of a follower: batches to which a leader has assigned offsets and epochs.

`Log.append_as_follower` calls it. Most fetched batches have no producer ids and fit into the active
segment; those are verified and indexed together, in one compiled loop.
"""

from typing import TYPE_CHECKING

from msgspec import structs

from penstock.core.buffers import Buffer
from penstock.core.errors import ErrorCode, InvalidRecordError, KafkaError
from penstock.core.ids import NO_TIMESTAMP
from penstock.records.append_policy import AppendOrigin
from penstock.records.fetched import divide_batches, verify_fetched, verify_plain
from penstock.records.validate import verify_batches
from penstock.storage.log.results import LogAppendInfo

if TYPE_CHECKING:
    from penstock.storage.log.log import Log


def append_fetched(log: "Log", data: Buffer, leader_epoch: int | None) -> LogAppendInfo:
    """Verifies and appends the batches; see `Log.append_as_follower`."""
    if leader_epoch is None:
        headers = [header for _, header in verify_batches(data)]
    else:
        if leader_epoch == log.epochs.latest_epoch:
            info = _append_plain(log, data, leader_epoch)
            if info is not None:
                return info
        headers, size = verify_fetched(data, leader_epoch)
        if size < len(data):
            data = memoryview(data)[:size]
    if not headers:
        raise InvalidRecordError("no batch to append")
    if headers[0].base_offset < log.log_end_offset:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{log.partition} ends at {log.log_end_offset}; the leader sent "
            f"offset {headers[0].base_offset}",
            remedy="truncate first",
        )
    now_ms = log.clock.now_ms()
    if len(data) <= log.local.config.segment_bytes:
        return log.append_assigned(data, headers, now_ms, AppendOrigin.REPLICATION)
    infos = [
        log.append_assigned(part, part_headers, now_ms, AppendOrigin.REPLICATION)
        for part, part_headers in divide_batches(data, headers, log.local.config.segment_bytes)
    ]
    return structs.replace(
        infos[-1],
        first_offset=infos[0].first_offset,
        has_rolled=any(info.has_rolled for info in infos),
    )


def _append_plain(log: "Log", data: Buffer, leader_epoch: int) -> LogAppendInfo | None:
    """Appends batches without producer ids to the active segment.

    Returns None, and changes nothing, if there are others, or if the log has to roll.
    """
    batches = verify_plain(data, leader_epoch)
    local = log.local
    if batches is None or batches.base_offsets[0] < local.next_offset:
        return None
    config, segment, size = local.config, local.segments.active, batches.size
    first_offset, last_offset = batches.base_offsets[0], batches.last_offsets[-1]
    max_timestamp, now_ms = batches.max_timestamps[-1], log.clock.now_ms()
    if segment.should_roll(config, size, max_timestamp, last_offset, now_ms):
        return None
    if size < len(data):
        data = memoryview(data)[:size]
    try:
        local.append_plain(segment, data, batches)
    except OSError as error:
        log.guard.refuse(error)
    end_offset = log.producers.map_end_offset = local.next_offset
    return LogAppendInfo(
        first_offset,
        last_offset,
        NO_TIMESTAMP,
        log.log_start_offset,
        is_duplicate=False,
        needs_flush=end_offset - local.recovery_point >= config.flush_messages,
        has_rolled=False,
    )
