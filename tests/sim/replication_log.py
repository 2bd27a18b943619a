"""The log of one replica in the replication simulation: records in memory, lost in a crash.

A record is an offset, a leader epoch and a value. On the wire it has 24 bytes, the offset first, as
in a real batch.
"""

from bisect import bisect_right
from random import Random
from struct import Struct
from typing import NamedTuple

RECORD = Struct(">qqq")


class SimRecord(NamedTuple):
    epoch: int
    value: int


class SimLog:
    """Implements `ReplicaLog`, and what a leader needs."""

    def __init__(self) -> None:
        self.log_start_offset = 0
        self.records: list[SimRecord] = []
        self.epochs: list[tuple[int, int]] = []
        """Leader epochs and their start offsets."""
        self.high_watermark = 0
        self.durable_end = 0
        self.stored_high_watermark = 0

    @property
    def log_end_offset(self) -> int:
        return self.log_start_offset + len(self.records)

    @property
    def latest_epoch(self) -> int | None:
        return self.epochs[-1][0] if self.epochs else None

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int] | None:
        if leader_epoch == self.latest_epoch:
            return self.log_end_offset, leader_epoch
        after = bisect_right(self.epochs, leader_epoch, key=lambda entry: entry[0])
        if after == len(self.epochs):
            return None
        end = self.epochs[after][1]
        return end, self.epochs[after - 1][0] if after else leader_epoch

    def at(self, offset: int) -> SimRecord:
        return self.records[offset - self.log_start_offset]

    # --- changes

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        if self.epochs and self.epochs[-1][0] >= epoch:
            return
        while self.epochs and self.epochs[-1][1] >= start_offset:
            self.epochs.pop()
        self.epochs.append((epoch, start_offset))

    def append(self, record: SimRecord) -> None:
        self.assign_epoch(record.epoch, self.log_end_offset)
        self.records.append(record)

    def append_fetched(self, data: bytes | bytearray | memoryview, leader_epoch: int) -> None:
        for offset, epoch, value in RECORD.iter_unpack(data):
            assert offset == self.log_end_offset
            assert epoch <= leader_epoch
            self.append(SimRecord(epoch, value))

    def read(self, offset: int, max_records: int) -> bytes:
        first = offset - self.log_start_offset
        return b"".join(
            RECORD.pack(offset + n, record.epoch, record.value)
            for n, record in enumerate(self.records[first : first + max_records])
        )

    def truncate(self, offset: int) -> None:
        if offset < self.log_start_offset:
            self.truncate_fully(offset)
            return
        del self.records[offset - self.log_start_offset :]
        self.epochs = [entry for entry in self.epochs if entry[1] < self.log_end_offset]
        self.high_watermark = min(self.high_watermark, self.log_end_offset)
        self.durable_end = self.log_end_offset

    def truncate_fully(self, offset: int) -> None:
        self.records = []
        self.epochs = []
        self.log_start_offset = self.high_watermark = self.durable_end = offset

    def advance_log_start(self, offset: int) -> None:
        del self.records[: offset - self.log_start_offset]
        self.log_start_offset = offset
        after = bisect_right(self.epochs, offset, key=lambda entry: entry[1])
        if after:
            self.epochs[:after] = [(self.epochs[after - 1][0], offset)]
        self.durable_end = max(self.durable_end, offset)

    def flush(self) -> None:
        self.durable_end = self.log_end_offset
        self.stored_high_watermark = self.high_watermark

    def crash(self, random: Random, *, loses_records: bool) -> None:
        """Restarts with what the disk has; with `loses_records` some unflushed ones are lost."""
        end = self.log_end_offset
        if loses_records:
            end = random.randint(self.durable_end, end)
            del self.records[end - self.log_start_offset :]
        self.epochs = [entry for entry in self.epochs if entry[1] < end]
        # The checkpoint of the high watermark is written now and then.
        self.high_watermark = min(max(self.stored_high_watermark, self.log_start_offset), end)
        self.durable_end = end
