"""Search for records by timestamp in a range of one `.log` file."""

from typing import NamedTuple

from penstock.records.read import iter_headerless_records
from penstock.storage.disk import File
from penstock.storage.segment.batch_scan import scan_batches


class TimestampAndOffset(NamedTuple):
    """A record that was looked up by its timestamp."""

    timestamp: int
    offset: int
    leader_epoch: int


class SearchRange(NamedTuple):
    """The part of a `.log` file to search: whole batches from `position` to `end`."""

    file: File
    position: int
    end: int


def first_record_since(
    search_range: SearchRange, timestamp: int, start_offset: int
) -> TimestampAndOffset | None:
    """Returns the first record that is not before `timestamp` and not before `start_offset`."""
    for batch in scan_batches(*search_range):
        header = batch.header
        if header.max_timestamp < timestamp or header.last_offset < start_offset:
            continue
        for record in iter_headerless_records(batch.data, batch.start):
            if record.timestamp >= timestamp and record.offset >= start_offset:
                epoch = header.partition_leader_epoch
                return TimestampAndOffset(record.timestamp, record.offset, epoch)
    return None


def first_record_of(search_range: SearchRange, timestamp: int) -> TimestampAndOffset | None:
    """Returns the first record with exactly `timestamp`, in a batch that has no later one."""
    for batch in scan_batches(*search_range):
        if batch.header.max_timestamp == timestamp:
            for record in iter_headerless_records(batch.data, batch.start):
                if record.timestamp == timestamp:
                    epoch = batch.header.partition_leader_epoch
                    return TimestampAndOffset(timestamp, record.offset, epoch)
    return None
