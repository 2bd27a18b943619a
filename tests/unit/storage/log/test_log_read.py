"""Reading a log: whole batches, bounds, isolation, time, epochs (R2, R4, P4, Q5)."""

import gzip
import os
import socket
from pathlib import Path

import pytest

from penstock.core.errors import ErrorCode, OffsetOutOfRangeError
from penstock.records.append_policy import AppendOrigin
from penstock.records.compress import Compression
from penstock.storage.log.log import Log
from penstock.storage.log.results import FetchData, FetchIsolation, OffsetAndEpoch
from penstock.storage.log.retention import delete_old_segments
from penstock.storage.log.timestamp_search import offset_for_timestamp, offset_of_max_timestamp
from penstock.storage.log.truncation import begin_truncation
from penstock.storage.log_config import LogConfig
from penstock.storage.segment.log_segment import LogSlice
from penstock.storage.segment.timestamp_scan import TimestampAndOffset
from tests.support.storage.logs import (
    NOW,
    LogDirectory,
    batch,
    batches_in,
    filler,
    marker,
    offsets,
    old_message,
    read_all,
    records_in,
    values,
)

SMALL = LogConfig(segment_bytes=1000, segment_index_bytes=1200, index_interval_bytes=150)
EVERYONE = list(FetchIsolation)


def fill(log: Log, count: int, size: int = 100) -> None:
    """Appends batches of one record and `size` bytes each."""
    for n in range(count):
        log.append_as_leader(filler(size, timestamp=NOW + 10 * n), 0)


def bases(fetched: FetchData) -> list[int]:
    """Returns the base offsets of the batches that a read returned."""
    if fetched.records is None:
        return []
    return [header.base_offset for _, _, header in batches_in(fetched.records)]


def sent(records: LogSlice) -> bytes:
    """Returns what a consumer receives with sendfile."""
    here, there = socket.socketpair()
    with here, there:
        pinned = records.file.pin()
        count = os.sendfile(here.fileno(), pinned.fileno(), records.position, records.size)
        assert count == records.size
        return there.recv(count, socket.MSG_WAITALL)


# --- bounds


@pytest.mark.parametrize("isolation", EVERYONE)
def test_an_empty_log(tmp_path: Path, isolation: FetchIsolation) -> None:
    with LogDirectory(tmp_path) as directory:
        log = directory.open()
        fetched = log.read(0, 1000, isolation)
        assert (fetched.records, fetched.size) == (None, 0)
        with pytest.raises(OffsetOutOfRangeError):
            log.read(1, 1000, isolation)


@pytest.mark.parametrize("isolation", EVERYONE)
def test_offsets_out_of_range(tmp_path: Path, isolation: FetchIsolation) -> None:
    with LogDirectory(tmp_path, SMALL) as directory:
        log = directory.open()
        fill(log, 30)
        log.update_high_watermark(25)
        log.increment_log_start_offset(12)
        for offset in (-1, 0, 11, 31):
            with pytest.raises(OffsetOutOfRangeError, match="12 to 30") as error:
                log.read(offset, 1000, isolation)
            assert error.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        beyond = list(range(25, 30)) if isolation is FetchIsolation.LOG_END else []
        assert bases(log.read(25, 1000, isolation)) == beyond
        assert bases(log.read(30, 1000, isolation)) == []
        assert bases(log.read(12, 100, isolation)) == [12]


@pytest.mark.parametrize(
    ("max_bytes", "expected"),
    [(0, [3]), (1, [3]), (100, [3]), (199, [3]), (200, [3, 4]), (10**9, [3, 4, 5, 6, 7, 8, 9])],
)
def test_whole_batches_of_one_segment(tmp_path: Path, max_bytes: int, expected: list[int]) -> None:
    with LogDirectory(tmp_path, SMALL) as directory:
        log = directory.open()
        fill(log, 25)
        fetched = log.read(3, max_bytes, FetchIsolation.LOG_END)
        assert bases(fetched) == expected
        assert fetched.size == 100 * len(expected)


def test_a_first_batch_larger_than_max_bytes_is_returned(tmp_path: Path) -> None:
    """C1: the first of all partitions gets it, so that the reader gets on; the others wait."""
    with LogDirectory(tmp_path) as directory:
        log = directory.open()
        fill(log, 3)
        assert bases(log.read(1, 50, FetchIsolation.LOG_END, min_one=True)) == [1]
        fetched = log.read(1, 50, FetchIsolation.LOG_END, min_one=False)
        assert bases(fetched) == []
        assert fetched.size == 0


def test_from_the_middle_of_a_batch(tmp_path: Path) -> None:
    with LogDirectory(tmp_path) as directory:
        log = directory.open()
        log.append_as_leader(batch(*[b"v"] * 10, compression=Compression.SNAPPY), 0)
        log.append_as_leader(batch(*[b"w"] * 10), 0)
        assert bases(log.read(7, 10**6, FetchIsolation.LOG_END)) == [0, 10]
        assert bases(log.read(17, 10**6, FetchIsolation.LOG_END)) == [10]


@pytest.mark.parametrize("high_watermark", [0, 1, 7, 10, 13, 20, 29, 30])
def test_consumers_see_up_to_the_high_watermark(tmp_path: Path, high_watermark: int) -> None:
    """R2: in a sealed segment, at its end, in the active one."""
    with LogDirectory(tmp_path, SMALL) as directory:
        log = directory.open()
        fill(log, 30)
        log.update_high_watermark(high_watermark)
        assert offsets(log, FetchIsolation.LOG_END) == list(range(30))
        assert offsets(log, FetchIsolation.HIGH_WATERMARK) == list(range(high_watermark))
        assert offsets(log, FetchIsolation.TXN_COMMITTED) == list(range(high_watermark))


def test_a_batch_across_the_high_watermark_waits(tmp_path: Path) -> None:
    with LogDirectory(tmp_path) as directory:
        log = directory.open()
        for _ in range(3):
            log.append_as_leader(batch(*[b"v"] * 5), 0)
        log.update_high_watermark(7)
        assert bases(log.read(0, 10**6, FetchIsolation.HIGH_WATERMARK)) == [0]
        fetched = log.read(6, 10**6, FetchIsolation.HIGH_WATERMARK)
        assert bases(fetched) == []
        assert fetched.size == 0


def test_holes_of_compaction(tmp_path: Path) -> None:
    """S5: a read continues with the next record, in its segment or a later one."""
    with LogDirectory(tmp_path, SMALL) as directory:
        log = directory.open()
        for offset in (3, 9, 20):
            log.append_as_follower(filler(300, base_offset=offset))
        log.append_as_follower(filler(300, base_offset=40))
        log.append_as_follower(filler(300, base_offset=41))
        assert log.local.segments.base_offsets == [0, 21]
        expected = {0: 3, 3: 3, 4: 9, 10: 20, 20: 20, 21: 40, 39: 40, 41: 41}
        for offset, result in expected.items():
            assert bases(log.read(offset, 1, FetchIsolation.LOG_END)) == [result]
        log.update_high_watermark(30)
        assert bases(log.read(21, 1000, FetchIsolation.HIGH_WATERMARK)) == []
        assert bases(log.read(10, 1000, FetchIsolation.HIGH_WATERMARK)) == [20]


def test_a_read_returns_a_range_of_a_file(tmp_path: Path) -> None:
    """S6: for sendfile; it stays readable while the log is appended to and the segment deleted."""
    with LogDirectory(tmp_path, SMALL) as directory:
        log = directory.open()
        fill(log, 25)
        fetched = log.read(12, 250, FetchIsolation.LOG_END)
        assert fetched.records is not None
        content = directory.file(10).read_bytes()[200:400]
        assert fetched.records.position == 200
        assert fetched.records.read() == content
        log.update_high_watermark(25)
        log.increment_log_start_offset(25)
        delete_old_segments(log)
        assert directory.names(".log.deleted") != []
        assert fetched.records.read() == content
        assert sent(fetched.records) == content


def test_a_range_survives_a_truncation_of_its_segment(tmp_path: Path) -> None:
    """S6, R4: a fetch that is sending from it can finish."""
    with LogDirectory(tmp_path, SMALL) as directory:
        log = directory.open()
        fill(log, 25)
        fetched = log.read(22, 100, FetchIsolation.LOG_END)
        assert fetched.records is not None
        content = directory.file(20).read_bytes()[200:300]
        begin_truncation(log, 15).complete()
        assert sent(fetched.records) == content


def test_old_formats_are_read(tmp_path: Path) -> None:
    """S1: segments that a broker before 0.11 wrote, and new batches appended to them."""
    with LogDirectory(tmp_path) as directory:
        directory.path.mkdir()
        directory.file(0).write_bytes(
            old_message(0, b"a", magic=0) + old_message(1, b"b", magic=1, timestamp=NOW - 9)
        )
        log = directory.open(clean=True, recovery_point=2)
        assert log.log_end_offset == 2
        log.append_as_leader(batch(b"c"), 1)
        assert values(log) == [b"a", b"b", b"c"]
        assert [record.timestamp for record in read_all(log)] == [-1, NOW - 9, NOW]
        assert bases(log.read(1, 1, FetchIsolation.LOG_END)) == [1]
        assert offset_for_timestamp(log, NOW - 10) == TimestampAndOffset(NOW - 9, 1, -1)
        log = directory.reopen(clean=False)
        assert values(log) == [b"a", b"b", b"c"]


def wrapped(magic: int, *members: int) -> bytes:
    """Old messages in a gzip wrapper, which has the offset of its last one."""
    inner = b"".join(
        old_message(offset - (members[0] if magic else 0), b"%d" % offset, magic=magic)
        for offset in members
    )
    return old_message(members[-1], gzip.compress(inner), magic=magic, attributes=1)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("clean", [True, False])
def test_old_formats_are_read_compressed(tmp_path: Path, magic: int, clean: bool) -> None:
    """S1: every record of a wrapper is found by its offset."""
    with LogDirectory(tmp_path) as directory:
        directory.path.mkdir()
        directory.file(0).write_bytes(wrapped(magic, 0, 1, 2) + wrapped(magic, 3, 4, 5, 6))
        log = directory.open(clean=clean, recovery_point=7 if clean else 0)
        assert log.log_end_offset == 7
        for offset in range(7):
            fetched = log.read(offset, 1, FetchIsolation.LOG_END)
            assert fetched.records is not None
            open_slice = [record.offset for record in records_in(fetched.records)]
            assert open_slice == ([0, 1, 2] if offset < 3 else [3, 4, 5, 6])
        assert values(log) == [b"%d" % offset for offset in range(7)]
        begin_truncation(log, 5).complete()
        assert offsets(log) == [0, 1, 2]


# --- transactions


def transact(log: Log, producer: int, sequence: int, *data: bytes) -> None:
    sent = batch(*data, producer_id=producer, sequence=sequence, transactional=True)
    log.append_as_leader(sent, 0)


def end(log: Log, producer: int, *, commit: bool) -> None:
    log.append_as_leader(marker(producer, commit=commit), 0, origin=AppendOrigin.COORDINATOR)


def committed(log: Log) -> list[bytes | None]:
    """Returns what a `read_committed` consumer returns: it drops the aborted records."""
    shown: list[bytes | None] = []
    offset = log.log_start_offset
    while True:
        fetched = log.read(offset, 300, FetchIsolation.TXN_COMMITTED)
        assert fetched.aborted_transactions is not None
        if fetched.records is None:
            return shown
        aborted = {(txn.producer_id, txn.first_offset): txn for txn in fetched.aborted_transactions}
        for view, position, header in batches_in(fetched.records):
            offset = header.next_offset
            if header.is_control:
                continue
            if header.is_transactional and any(
                producer == header.producer_id and first <= header.base_offset <= txn.last_offset
                for (producer, first), txn in aborted.items()
            ):
                continue
            data = bytes(view[position : position + header.size])
            shown += [record.value for record in records_in(data)]


def test_committed_reads_end_before_an_open_transaction(tmp_path: Path) -> None:
    """P4: up to the last stable offset, even if later transactions have ended."""
    with LogDirectory(tmp_path) as directory:
        log = directory.open()
        log.append_as_leader(batch(b"plain"), 0)
        transact(log, 1, 0, b"open")
        transact(log, 2, 0, b"done")
        end(log, 2, commit=True)
        log.update_high_watermark(4)
        assert log.last_stable_offset == 1
        assert offsets(log, FetchIsolation.TXN_COMMITTED) == [0]
        assert offsets(log, FetchIsolation.HIGH_WATERMARK) == [0, 1, 2, 3]
        end(log, 1, commit=True)
        log.update_high_watermark(5)
        assert committed(log) == [b"plain", b"open", b"done"]


def test_aborted_transactions_come_with_the_records(tmp_path: Path) -> None:
    """P4: over several segments, for every part of a transaction."""
    with LogDirectory(tmp_path, SMALL) as directory:
        log = directory.open()
        pending: dict[int, list[tuple[int, bytes]]] = {1: [], 2: []}
        remaining: list[tuple[int, bytes]] = []

        def finish(producer: int, commit: bool) -> None:
            end(log, producer, commit=commit)
            remaining.extend(pending[producer] if commit else [])
            pending[producer].clear()

        for n in range(40):
            producer = 1 + n % 2
            value = b"%d" % n + b"-" * 40
            pending[producer].append((log.log_end_offset, value))
            transact(log, producer, n // 2, value)
            if n % 4 == 2:
                finish(1, commit=n % 8 == 2)
            if n % 4 == 3:
                finish(2, commit=n % 3 == 0)
            remaining.append((log.log_end_offset, b"plain %d" % n))
            log.append_as_leader(batch(b"plain %d" % n), 0)
        finish(1, commit=True)
        finish(2, commit=True)
        expected = [value for _, value in sorted(remaining)]
        log.update_high_watermark(log.log_end_offset)
        assert len(log.local.segments) > 5
        assert log.last_stable_offset == log.log_end_offset
        assert committed(log) == expected
        log = directory.reopen(clean=False)
        assert committed(log) == expected


def test_only_committed_reads_look_up_aborted_transactions(tmp_path: Path) -> None:
    with LogDirectory(tmp_path) as directory:
        log = directory.open()
        transact(log, 1, 0, b"a")
        end(log, 1, commit=False)
        log.update_high_watermark(2)
        for isolation in (FetchIsolation.LOG_END, FetchIsolation.HIGH_WATERMARK):
            assert log.read(0, 1000, isolation).aborted_transactions is None
            assert log.read(2, 1000, isolation).aborted_transactions is None
        fetched = log.read(0, 1000, FetchIsolation.TXN_COMMITTED).aborted_transactions
        assert fetched is not None
        assert [txn.producer_id for txn in fetched] == [1]
        assert log.read(2, 1000, FetchIsolation.TXN_COMMITTED).aborted_transactions == []


# --- time


def at(timestamp: int, offset: int, epoch: int = 0) -> TimestampAndOffset:
    return TimestampAndOffset(timestamp, offset, epoch)


def test_the_first_record_at_or_after_a_time(tmp_path: Path) -> None:
    """Q5: over segments."""
    with LogDirectory(tmp_path, SMALL) as directory:
        log = directory.open()
        fill(log, 35)
        for clean in (True, False, False):
            for n in range(35):
                assert offset_for_timestamp(log, NOW + 10 * n - 3) == at(NOW + 10 * n, n)
            assert offset_for_timestamp(log, NOW + 341) is None
            assert offset_for_timestamp(log, 0) == at(NOW, 0)
            log = directory.reopen(clean=clean)


def test_times_that_are_not_in_order(tmp_path: Path) -> None:
    """Q5: the first by offset, not the nearest by time."""
    with LogDirectory(tmp_path, SMALL) as directory:
        log = directory.open()
        times = [50, 10, 90, 20, 30, 80, 40, 95, 5]
        for shift in times:
            log.append_as_leader(filler(300, timestamp=NOW + shift), 0)
        assert len(log.local.segments) == 3
        for requested in range(0, 101, 5):
            first = next((n for n, shift in enumerate(times) if shift >= requested), None)
            expected = None if first is None else at(NOW + times[first], first)
            assert offset_for_timestamp(log, NOW + requested) == expected


def test_a_time_before_the_log_start_offset(tmp_path: Path) -> None:
    """Q5, S4: records below it are deleted, even while their segment is there."""
    with LogDirectory(tmp_path, SMALL) as directory:
        log = directory.open()
        fill(log, 25)
        log.update_high_watermark(25)
        log.increment_log_start_offset(12)
        assert log.local.segments.base_offsets == [0, 10, 20]
        assert offset_for_timestamp(log, NOW) == at(NOW + 120, 12)
        assert offset_for_timestamp(log, NOW + 130) == at(NOW + 130, 13)


def test_records_without_time_are_not_found(tmp_path: Path) -> None:
    with LogDirectory(tmp_path, SMALL) as directory:
        log = directory.open()
        for _ in range(12):
            log.append_as_leader(filler(100, timestamp=-1), 0)
        assert offset_for_timestamp(log, 0) is None
        assert offset_of_max_timestamp(log) is None
        log.append_as_leader(filler(100, timestamp=NOW), 0)
        assert offset_for_timestamp(log, 0) == at(NOW, 12)


def test_log_append_time_is_searched_too(tmp_path: Path) -> None:
    config = LogConfig(message_timestamp_type="LogAppendTime")
    with LogDirectory(tmp_path, config) as directory:
        log = directory.open()
        for _ in range(3):
            log.append_as_leader(batch(b"a", b"b", timestamp=5), 0)
            directory.clock.advance(10)
        assert offset_for_timestamp(log, NOW + 1) == at(NOW + 10, 2)
        assert offset_of_max_timestamp(log) == at(NOW + 20, 4)


def test_the_record_with_the_largest_timestamp(tmp_path: Path) -> None:
    with LogDirectory(tmp_path, SMALL) as directory:
        log = directory.open()
        assert offset_of_max_timestamp(log) is None
        for n, shift in enumerate([5, 70, 3, 70, 8, 6, 70, 1, 2]):
            times = (NOW + shift, NOW + shift - 1, NOW + shift)
            log.append_as_leader(batch(*[b"v" * 80] * 3, timestamps=times), n)
        assert len(log.local.segments) > 2
        assert offset_of_max_timestamp(log) == at(NOW + 70, 3, 1)
        log = directory.reopen(clean=True)
        assert offset_of_max_timestamp(log) == at(NOW + 70, 3, 1)


# --- epochs


def test_the_end_offset_of_an_epoch(tmp_path: Path) -> None:
    """R4: the query of a returning follower."""
    with LogDirectory(tmp_path) as directory:
        log = directory.open()
        assert log.end_offset_for_epoch(0) is None
        for epoch in (1, 1, 4, 6):
            log.append_as_leader(batch(b"a", b"b"), epoch)
        assert log.end_offset_for_epoch(1) == OffsetAndEpoch(4, 1)
        assert log.end_offset_for_epoch(3) == OffsetAndEpoch(4, 1)
        assert log.end_offset_for_epoch(4) == OffsetAndEpoch(6, 4)
        assert log.end_offset_for_epoch(6) == OffsetAndEpoch(8, 6)
        assert log.end_offset_for_epoch(7) is None
        assert log.end_offset_for_epoch(-1) is None
        assert log.end_offset_for_epoch(0) == OffsetAndEpoch(0, 0)


def test_its_repr(tmp_path: Path) -> None:
    with LogDirectory(tmp_path) as directory:
        log = directory.open()
        fill(log, 3)
        assert repr(log) == "Log(orders-3, 0..3)"
        assert log.size == 300
        assert log.directory == str(directory.path)
