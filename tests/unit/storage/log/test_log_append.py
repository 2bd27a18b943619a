"""Appending to a log: offsets, epochs, limits, rolls, failures (P2, P7, S3, R4)."""

import errno
import random
from pathlib import Path

import pytest

from penstock.core.errors import (
    CorruptRecordError,
    ErrorCode,
    InvalidRecordError,
    KafkaError,
    KafkaStorageError,
)
from penstock.records.batch import TimestampType, read_header
from penstock.records.compress import Compression
from penstock.storage.checkpoint.leader_epoch_cache import EpochEntry, LeaderEpochCache
from penstock.storage.log.log import Log
from penstock.storage.log.results import FetchIsolation
from penstock.storage.log.retention import delete_old_segments
from penstock.storage.log.timestamp_search import offset_for_timestamp
from penstock.storage.log.truncation import begin_full_truncation, begin_truncation
from penstock.storage.log_config import INT_MAX, LogConfig
from tests.support.storage.crash_disk import CrashDisk
from tests.support.storage.logs import (
    NOW,
    LogDirectory,
    batch,
    filler,
    headers_of,
    marker,
    offsets,
    old_message,
    read_all,
    refused,
    values,
)

SMALL = LogConfig(segment_bytes=1000, segment_index_bytes=1200, index_interval_bytes=150)


# --- offsets and epochs


def test_a_leader_assigns_offsets_and_its_epoch(tmp_path: Path) -> None:
    with LogDirectory(tmp_path) as directory:
        log = directory.open()
        first = log.append_as_leader(batch(b"a", b"b"), 4)
        second = log.append_as_leader(batch(b"c"), 5)
        assert (first.first_offset, first.last_offset) == (0, 1)
        assert (second.first_offset, second.last_offset) == (2, 2)
        assert not first.is_duplicate
        assert not first.has_rolled
        assert not first.needs_flush
        assert first.log_append_time == -1
        assert log.log_end_offset == 3
        assert offsets(log) == [0, 1, 2]
        assert values(log) == [b"a", b"b", b"c"]
        assert [header.partition_leader_epoch for header in headers_of(log)] == [4, 5]
        assert log.epochs.entries() == [EpochEntry(4, 0), EpochEntry(5, 2)]


def test_the_buffer_is_written_as_it_is_but_for_offset_and_epoch(tmp_path: Path) -> None:
    """S6: nothing is copied, nothing is packed again."""
    with LogDirectory(tmp_path) as directory:
        log = directory.open()
        log.append_as_leader(batch(b"a"), 0)
        sent = batch(b"x" * 500, compression=Compression.GZIP)
        length = len(sent)
        log.append_as_leader(sent, 7)
        assert directory.file(0).read_bytes()[-length:] == bytes(sent)
        header = read_header(sent)
        assert (header.base_offset, header.partition_leader_epoch) == (1, 7)


def test_appending_does_not_move_the_high_watermark(tmp_path: Path) -> None:
    """R2: only the leader of the partition knows what is replicated."""
    with LogDirectory(tmp_path) as directory:
        log = directory.open()
        log.append_as_leader(batch(b"a"), 0)
        assert log.high_watermark == log.last_stable_offset == 0
        assert log.update_high_watermark(1) == 1
        assert log.update_high_watermark(100) == 1
        assert log.update_high_watermark(-5) == 0


def test_a_follower_keeps_the_offsets_and_epochs_of_its_leader(tmp_path: Path) -> None:
    """R4: offsets, epochs and bytes; a hole in the offsets is the leader's compaction."""
    with LogDirectory(tmp_path) as directory:
        log = directory.open()
        sent = (
            batch(b"a", b"b", base_offset=0, leader_epoch=2)
            + batch(b"c", base_offset=9, leader_epoch=2)
            + batch(b"d", base_offset=10, leader_epoch=6)
        )
        info = log.append_as_follower(sent)
        assert (info.first_offset, info.last_offset) == (0, 10)
        assert directory.file(0).read_bytes() == bytes(sent)
        assert offsets(log) == [0, 1, 9, 10]
        assert log.log_end_offset == 11
        assert log.epochs.entries() == [EpochEntry(2, 0), EpochEntry(6, 10)]


@pytest.mark.parametrize("seed", range(10))
def test_fetched_batches_without_producers_are_appended_like_any(tmp_path: Path, seed: int) -> None:
    """The same files, indexes and reads, whichever path the batches of a response take."""
    rng = random.Random(seed)
    config = LogConfig(segment_bytes=9_000, segment_index_bytes=1200, index_interval_bytes=400)
    with (
        LogDirectory(tmp_path / "any", config) as any_directory,
        LogDirectory(tmp_path / "plain", config) as plain_directory,
    ):
        any_log, plain_log = any_directory.open(), plain_directory.open()
        offset = 0
        for _ in range(30):
            data = bytearray()
            for _ in range(rng.choice([1, 2, 5, 150 if rng.random() < 0.1 else 8])):
                data += batch(
                    *(b"v" * rng.randrange(60) for _ in range(rng.randrange(1, 4))),
                    base_offset=offset + rng.choice([0, 0, 0, 2]),
                    timestamp=NOW + rng.randrange(-50, 200),
                    leader_epoch=1,
                )
                offset = read_header(data, last_batch(data)).next_offset
            cut = bytes(batch(b"cut", base_offset=offset, leader_epoch=1))[
                : rng.choice([0, 30, 65])
            ]
            expected = any_log.append_as_follower(bytes(data))
            info = plain_log.append_as_follower(bytes(data) + cut, 1)
            assert info == expected
            for log in (any_log, plain_log):
                log.update_high_watermark(log.log_end_offset)
            assert plain_log.log_end_offset == any_log.log_end_offset
            start = rng.randrange(offset)
            assert offsets_from(plain_log, start) == offsets_from(any_log, start)
            assert read_ends(plain_log, start) == read_ends(any_log, start)
        segments = [log.local.segments.active for log in (any_log, plain_log)]
        assert len({segment.max_timestamp_offset for segment in segments}) == 1
        any_directory.close()
        plain_directory.close()
        for suffix in (".log", ".index", ".timeindex"):
            assert len(plain_directory.names(suffix)) > 2
            for base_offset in any_directory.sizes(suffix):
                plain = plain_directory.file(base_offset, suffix).read_bytes()
                assert plain == any_directory.file(base_offset, suffix).read_bytes()


def last_batch(data: bytearray) -> int:
    position = 0
    while (following := position + read_header(data, position).size) < len(data):
        position = following
    return position


def offsets_from(log: Log, start: int) -> list[int]:
    return [header.base_offset for header in headers_of(log, start)]


def read_ends(log: Log, start: int) -> list[int]:
    """Returns how many bytes are read up to different high watermarks and limits."""
    return [
        log.read(start, limit, FetchIsolation.LOG_END, min_one=True).size
        for limit in (1, 300, 2000)
    ]


def test_a_failed_append_of_fetched_batches_leaves_the_log_unchanged(tmp_path: Path) -> None:
    disk = CrashDisk()
    with LogDirectory(tmp_path, disk=disk) as directory:
        log = directory.open()
        log.append_as_follower(bytes(batch(b"a", base_offset=0, leader_epoch=1)), 1)
        disk.fail("write", "*.log", errno.ENOSPC, partial=30)
        data = bytes(
            batch(b"b", base_offset=1, leader_epoch=1) + batch(b"c", base_offset=2, leader_epoch=1)
        )
        with pytest.raises(KafkaStorageError):
            log.append_as_follower(data, 1)
        disk.heal()
        assert log.log_end_offset == 1
        assert log.append_as_follower(data, 1).last_offset == 2
        assert values(log) == [b"a", b"b", b"c"]


def test_a_follower_refuses_offsets_that_it_has(tmp_path: Path) -> None:
    with LogDirectory(tmp_path) as directory:
        log = directory.open()
        log.append_as_follower(batch(b"a", b"b"))
        for offset in (0, 1):
            with pytest.raises(KafkaError, match="truncate first") as error:
                log.append_as_follower(batch(b"c", base_offset=offset))
            assert error.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert values(log) == [b"a", b"b"]


def test_a_follower_refuses_batches_out_of_order_or_broken(tmp_path: Path) -> None:
    with LogDirectory(tmp_path) as directory:
        log = directory.open()
        swapped = batch(b"b", base_offset=5) + batch(b"a", base_offset=4)
        with pytest.raises(InvalidRecordError):
            log.append_as_follower(swapped)
        broken = batch(b"a") + batch(b"b", base_offset=1)
        broken[-1] ^= 1
        with pytest.raises(CorruptRecordError):
            log.append_as_follower(broken)
        with pytest.raises(CorruptRecordError):
            log.append_as_follower(batch(b"a") + b"\0\0\0")
        with pytest.raises(InvalidRecordError):
            log.append_as_follower(b"")
        assert (log.log_end_offset, log.size) == (0, 0)


def test_a_follower_accepts_records_larger_than_its_limit(tmp_path: Path) -> None:
    """P7: the leader has accepted them; a follower that did not would stop."""
    with LogDirectory(tmp_path, LogConfig(max_message_bytes=100)) as directory:
        log = directory.open()
        assert refused(log, filler(101)).code is ErrorCode.MESSAGE_TOO_LARGE
        log.append_as_follower(filler(101))
        assert offsets(log) == [0]


def test_an_older_epoch_adds_no_entry(tmp_path: Path) -> None:
    with LogDirectory(tmp_path) as directory:
        log = directory.open()
        log.append_as_follower(batch(b"a", leader_epoch=5))
        log.append_as_follower(batch(b"b", base_offset=1, leader_epoch=3))
        log.append_as_follower(batch(b"c", base_offset=2, leader_epoch=-1))
        assert log.epochs.entries() == [EpochEntry(5, 0)]


# --- refused batches


def test_a_batch_larger_than_max_message_bytes(tmp_path: Path) -> None:
    """P7, E2: refused with a clear error, never half stored."""
    with LogDirectory(tmp_path, LogConfig(max_message_bytes=200)) as directory:
        log = directory.open()
        log.append_as_leader(filler(200), 0)
        error = refused(log, filler(201))
        assert error.code is ErrorCode.MESSAGE_TOO_LARGE
        assert "max.message.bytes" in error.message
        assert directory.sizes() == {0: 200}


def test_a_batch_larger_than_a_segment(tmp_path: Path) -> None:
    """P7: RECORD_LIST_TOO_LARGE, with the remedy."""
    with LogDirectory(tmp_path, SMALL) as directory:
        log = directory.open()
        log.append_as_leader(filler(1000), 0)
        error = refused(log, filler(1001))
        assert error.code is ErrorCode.RECORD_LIST_TOO_LARGE
        assert "segment.bytes" in error.message


def test_a_follower_accepts_a_batch_larger_than_a_segment(tmp_path: Path) -> None:
    """P7: it was appended before segment.bytes was lowered; refusing it would end replication."""
    with LogDirectory(tmp_path, SMALL) as directory:
        log = directory.open()
        log.append_as_follower(filler(400))
        log.append_as_follower(filler(1001, base_offset=1))
        log.append_as_follower(filler(400, base_offset=2))
        assert directory.sizes() == {0: 400, 1: 1001, 2: 400}


def test_a_fetch_larger_than_a_segment_is_divided(tmp_path: Path) -> None:
    with LogDirectory(tmp_path, SMALL) as directory:
        log = directory.open()
        sizes = (300, 300, 300, 1500, 700, 200)
        sent = b"".join(filler(size, base_offset=n) for n, size in enumerate(sizes))
        info = log.append_as_follower(sent, 0)
        assert (info.first_offset, info.last_offset, info.has_rolled) == (0, 5, True)
        assert directory.sizes() == {0: 900, 3: 1500, 4: 900}
        assert b"".join(directory.file(base).read_bytes() for base in (0, 3, 4)) == sent


def test_a_fetch_may_end_with_an_incomplete_batch(tmp_path: Path) -> None:
    with LogDirectory(tmp_path) as directory:
        log = directory.open()
        first, second = batch(b"a"), batch(b"b", base_offset=1)
        for cut in (1, 16, 17, 60, 61, len(second) - 1):
            info = log.append_as_follower(first + second[:cut], 0)
            assert info.last_offset == 0
            begin_truncation(log, 0).complete()
        with pytest.raises(InvalidRecordError):
            log.append_as_follower(first[:-1], 0)
        assert log.log_end_offset == 0


def test_batches_of_a_later_epoch_than_the_leaders_are_left_out(tmp_path: Path) -> None:
    """The CRC does not cover the epoch; a wrong one would make the follower truncate later."""
    with LogDirectory(tmp_path) as directory:
        log = directory.open()
        sent = batch(b"a", leader_epoch=2) + batch(b"b", base_offset=1, leader_epoch=9)
        assert log.append_as_follower(sent, 2).last_offset == 0
        with pytest.raises(InvalidRecordError):
            log.append_as_follower(batch(b"b", base_offset=1, leader_epoch=9), 2)
        assert log.epochs.entries() == [EpochEntry(2, 0)]


def test_a_fetch_with_a_damaged_batch_changes_nothing(tmp_path: Path) -> None:
    with LogDirectory(tmp_path) as directory:
        log = directory.open()
        broken = batch(b"a") + batch(b"b", base_offset=1)
        broken[-1] ^= 1
        with pytest.raises(CorruptRecordError):
            log.append_as_follower(broken, 0)
        short = batch(b"a")
        short[8:12] = (48).to_bytes(4, "big")
        with pytest.raises(CorruptRecordError):
            log.append_as_follower(short, 0)
        swapped = batch(b"b", base_offset=5) + batch(b"a", base_offset=4)
        with pytest.raises(InvalidRecordError):
            log.append_as_follower(swapped, 0)
        assert (log.log_end_offset, log.size) == (0, 0)


def test_refused_batches_are_not_stored(tmp_path: Path) -> None:
    with LogDirectory(tmp_path, LogConfig(cleanup_policy=frozenset({"compact"}))) as directory:
        log = directory.open()
        log.append_as_leader(batch(b"a", keys=(b"k",)), 0)
        broken = batch(b"b", keys=(b"k",))
        broken[-1] ^= 1
        late = batch(b"b", keys=(b"k",), timestamp=NOW + 3_600_001)
        for data, code in (
            (batch(b"b"), ErrorCode.INVALID_RECORD),
            (broken, ErrorCode.CORRUPT_MESSAGE),
            (late, ErrorCode.INVALID_TIMESTAMP),
            (bytearray(), ErrorCode.INVALID_RECORD),
            (bytearray(b"nonsense" * 10), ErrorCode.CORRUPT_MESSAGE),
            (marker(1, commit=True), ErrorCode.INVALID_RECORD),
        ):
            assert refused(log, data, epoch=9).code is code
        assert values(log) == [b"a"]
        assert log.append_as_leader(batch(b"c", keys=(b"k",)), 0).first_offset == 1


def test_settings_can_change_at_any_time(tmp_path: Path) -> None:
    """S4: global and per topic, without a restart."""
    with LogDirectory(tmp_path) as directory:
        log = directory.open()
        log.append_as_leader(filler(300), 0)
        log.config = LogConfig(max_message_bytes=200, segment_bytes=400)
        assert refused(log, filler(300)).code is ErrorCode.MESSAGE_TOO_LARGE
        info = log.append_as_leader(filler(200), 0)
        assert info.has_rolled
        log.config = LogConfig(message_timestamp_type="LogAppendTime")
        assert log.append_as_leader(filler(300), 0).log_append_time == NOW


# --- timestamps


def test_the_producers_timestamps_are_kept(tmp_path: Path) -> None:
    with LogDirectory(tmp_path) as directory:
        log = directory.open()
        log.append_as_leader(batch(b"a", b"b", timestamps=(NOW - 5, NOW + 5)), 0)
        log.append_as_leader(batch(b"c", timestamp=-1), 0)
        assert [record.timestamp for record in read_all(log)] == [NOW - 5, NOW + 5, -1]


def test_log_append_time(tmp_path: Path) -> None:
    """The broker's clock replaces the producer's."""
    with LogDirectory(tmp_path, LogConfig(message_timestamp_type="LogAppendTime")) as directory:
        log = directory.open()
        directory.clock.advance(1234)
        info = log.append_as_leader(batch(b"a", b"b", timestamps=(5, 7)), 0)
        assert info.log_append_time == NOW + 1234
        assert [record.timestamp for record in read_all(log)] == [NOW + 1234] * 2
        (header,) = headers_of(log)
        assert header.timestamp_type is TimestampType.LOG_APPEND_TIME


def test_the_topics_compression_replaces_the_producers(tmp_path: Path) -> None:
    """P6."""
    with LogDirectory(tmp_path, LogConfig(compression_type="zstd")) as directory:
        log = directory.open()
        log.append_as_leader(batch(b"a" * 100, b"b" * 100, compression=Compression.LZ4), 3)
        (header,) = headers_of(log)
        assert header.compression is Compression.ZSTD
        assert header.partition_leader_epoch == 3
        assert values(log) == [b"a" * 100, b"b" * 100]


def test_messages_of_old_clients_are_converted(tmp_path: Path) -> None:
    """S1: v0 and v1 are read, v2 is written."""
    with LogDirectory(tmp_path) as directory:
        log = directory.open()
        log.append_as_leader(bytearray(old_message(0, b"a") + old_message(1, b"b")), 2)
        (header,) = headers_of(log)
        assert (header.magic, header.base_offset, header.last_offset) == (2, 0, 1)
        assert values(log) == [b"a", b"b"]


# --- rolls


def test_rolls_by_bytes(tmp_path: Path) -> None:
    """S3: `segment.bytes` is never passed."""
    with LogDirectory(tmp_path, SMALL) as directory:
        log = directory.open()
        rolled = [log.append_as_leader(filler(300), 0).has_rolled for _ in range(8)]
        assert rolled == [False, False, False, True, False, False, True, False]
        assert directory.sizes() == {0: 900, 3: 900, 6: 600}
        assert offsets(log) == list(range(8))


def test_rolls_by_time(tmp_path: Path) -> None:
    """S3: `segment.ms`, by the records' own time."""
    with LogDirectory(tmp_path, LogConfig(segment_ms=1000)) as directory:
        log = directory.open()
        for shift in (0, 1000, 1001, 1500, 2001, 2002):
            log.append_as_leader(batch(b"v", timestamp=NOW + shift), 0)
        assert log.local.segments.base_offsets == [0, 2, 5]


def test_rolls_by_the_clock_with_log_append_time(tmp_path: Path) -> None:
    config = LogConfig(segment_ms=1000, message_timestamp_type="LogAppendTime")
    with LogDirectory(tmp_path, config) as directory:
        log = directory.open()
        for wait in (0, 1000, 1, 1000, 1):
            directory.clock.advance(wait)
            log.append_as_leader(batch(b"v"), 0)
        assert log.local.segments.base_offsets == [0, 2, 4]


def test_rolls_with_jitter(tmp_path: Path) -> None:
    """S3: `segment.jitter.ms`, never more than `segment.ms` itself."""
    limits: list[int] = []

    def jitter(limit: int) -> int:
        limits.append(limit)
        return limit

    config = LogConfig(segment_ms=1000, segment_jitter_ms=400)
    with LogDirectory(tmp_path, config, roll_jitter=jitter) as directory:
        log = directory.open()
        log.append_as_leader(batch(b"v"), 0)
        log.roll()
        log.append_as_leader(batch(b"v"), 0)
        assert not log.append_as_leader(batch(b"v", timestamp=NOW + 600), 0).has_rolled
        assert log.append_as_leader(batch(b"v", timestamp=NOW + 601), 0).has_rolled
        log.config = LogConfig(segment_ms=1000, segment_jitter_ms=5000)
        log.roll()
        assert limits[-1] == 1000


def test_rolls_when_an_index_is_full(tmp_path: Path) -> None:
    """S3."""
    config = LogConfig(segment_index_bytes=36, index_interval_bytes=0)
    with LogDirectory(tmp_path, config) as directory:
        log = directory.open()
        for n in range(10):
            log.append_as_leader(filler(100, timestamp=NOW + n), 0)
        assert log.local.segments.base_offsets == [0, 3, 6, 9]
        assert offsets(log) == list(range(10))
        record = [offset_for_timestamp(log, NOW + n) for n in range(10)]
        assert [item and item.offset for item in record] == list(range(10))


def test_rolls_before_offsets_too_large_for_an_index(tmp_path: Path) -> None:
    """S3: a follower of a compacted topic may meet them."""
    with LogDirectory(tmp_path) as directory:
        log = directory.open()
        log.append_as_follower(batch(b"a", base_offset=0))
        log.append_as_follower(batch(b"b", base_offset=INT_MAX))
        assert log.append_as_follower(batch(b"c", base_offset=INT_MAX + 1)).has_rolled
        assert log.append_as_follower(batch(b"d", base_offset=3 * INT_MAX)).has_rolled
        assert log.local.segments.base_offsets == [0, INT_MAX + 1, 3 * INT_MAX]
        assert offsets(log) == [0, INT_MAX, INT_MAX + 1, 3 * INT_MAX]


def test_a_preallocated_log(tmp_path: Path) -> None:
    """S6: files have their full size while they grow, and their real size when sealed."""
    config = LogConfig(segment_bytes=1000, segment_index_bytes=1200, preallocate=True)
    with LogDirectory(tmp_path, config) as directory:
        log = directory.open()
        for _ in range(7):
            log.append_as_leader(filler(300), 0)
        assert directory.sizes() == {0: 900, 3: 900, 6: 1000}
        assert offsets(log) == list(range(7))
        log = directory.reopen(clean=True)
        assert directory.sizes() == {0: 900, 3: 900, 6: 300}
        assert log.append_as_leader(filler(300), 0).first_offset == 7


def test_rolling_an_empty_log_changes_nothing(tmp_path: Path) -> None:
    with LogDirectory(tmp_path) as directory:
        log = directory.open()
        log.roll()
        log.roll()
        assert log.local.segments.base_offsets == [0]
        assert log.append_as_leader(batch(b"a"), 0).first_offset == 0


# --- failure


def test_an_io_error_stops_the_log_and_keeps_acknowledged_records(tmp_path: Path) -> None:
    """S7: every change is refused with the remedy, and reads continue."""
    disk = CrashDisk()
    with LogDirectory(tmp_path, disk=disk) as directory:
        log = directory.open()
        log.append_as_leader(batch(b"a"), 0)
        disk.fail("write", "*.log", errno.EIO, partial=30)
        with pytest.raises(KafkaStorageError, match="is offline") as stopped:
            log.append_as_leader(batch(b"b"), 0)
        assert stopped.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert len(directory.failures) == 1
        disk.heal()
        assert log.failure is stopped.value
        for change in (
            lambda: log.append_as_leader(batch(b"c"), 0),
            lambda: log.append_as_follower(batch(b"c", base_offset=1)),
            lambda: begin_truncation(log, 0).complete(),
            lambda: begin_full_truncation(log, 0).complete(),
            lambda: log.increment_log_start_offset(1),
            lambda: delete_old_segments(log),
            lambda: log.roll(),
        ):
            with pytest.raises(KafkaStorageError):
                change()
        assert values(log) == [b"a"]
        assert len(directory.failures) == 1
        directory.close()
        log = directory.open()
        assert values(log) == [b"a"]
        assert log.append_as_leader(batch(b"d"), 0).first_offset == 1


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize("partial", [0, 30, 1000])
def test_an_append_without_room_is_refused_and_the_next_one_works(
    tmp_path: Path, error: int, partial: int
) -> None:
    """S7: the torn write is removed, acknowledged records stay readable."""
    disk = CrashDisk()
    with LogDirectory(tmp_path, disk=disk) as directory:
        log = directory.open()
        log.append_as_leader(batch(b"a"), 0)
        path = f"{log.directory}/00000000000000000000.log"
        size = disk.size(path)
        disk.fail("write", "*.log", error, partial=partial)
        for _ in range(3):
            with pytest.raises(
                KafkaStorageError, match="continues when there is room: "
            ) as refused:
                log.append_as_leader(batch(b"b"), 0)
            assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
            assert disk.size(path) == size
            assert values(log) == [b"a"]
        assert log.failure is None
        disk.heal()
        assert log.append_as_leader(batch(b"c"), 0).first_offset == 1
        assert values(log) == [b"a", b"c"]
        directory.crash()
        assert values(directory.open()) == [b"a", b"c"]


def test_a_torn_write_that_cannot_be_removed_stops_the_log(tmp_path: Path) -> None:
    disk = CrashDisk()
    with LogDirectory(tmp_path, disk=disk) as directory:
        log = directory.open()
        log.append_as_leader(batch(b"a"), 0)
        disk.fail("write", "*.log", errno.ENOSPC, partial=30)
        disk.fail("truncate", "*.log", errno.EIO)
        with pytest.raises(KafkaStorageError, match="No space left on device, and then Input"):
            log.append_as_leader(batch(b"b"), 0)
        assert log.failure is not None
        assert values(log) == [b"a"]


def test_an_epoch_that_cannot_be_stored_stops_the_log(tmp_path: Path) -> None:
    """R4: records whose epoch is not in the file could not be distinguished later."""
    disk = CrashDisk()
    with LogDirectory(tmp_path, disk=disk) as directory:
        log = directory.open()
        log.append_as_leader(batch(b"a"), 1)
        log.flush()
        disk.fail("rename", "*leader-epoch*", errno.EIO)
        log.append_as_leader(batch(b"b"), 2)
        with pytest.raises(KafkaStorageError):
            log.flush()
        assert log.recovery_point == 1
        disk.heal()
        directory.crash()
        again = directory.open()
        assert again.epochs.entries() == [(1, 0), (2, 1)][: again.log_end_offset]


def test_an_epoch_is_stored_before_the_recovery_point_moves(tmp_path: Path) -> None:
    """R4, S7: above the recovery point its first batch has the epoch, below it the file must."""
    disk = CrashDisk()
    with LogDirectory(tmp_path, disk=disk) as directory:
        log = directory.open()
        log.append_as_leader(batch(b"a"), 1)
        log.flush()
        before = disk.operations
        log.append_as_leader(batch(b"b"), 2)
        assert disk.operations - before == 1, "one write, and no wait for the epoch"
        task = log.begin_flush()
        assert task is not None
        assert not log.epochs.is_stale
        task.run()
        assert LeaderEpochCache(disk, log.directory).entries() == [(1, 0), (2, 1)]
        log.finish_flush(task)
