"""Compaction of records, batches, tombstones and markers (S5)."""

from dataclasses import replace
from struct import pack
from zlib import crc32

import pytest

from penstock.records.batch import TimestampType, read_header
from penstock.records.build import build_batch
from penstock.records.compress import Compression, compress
from penstock.records.record import Record
from penstock.storage.cleaner.batch_cleaner import (
    BatchCleaner,
    CleanedBatch,
    CleanerStats,
    LastRecord,
)
from penstock.storage.cleaner.cleaned_transactions import CleanedTransactions
from penstock.storage.cleaner.offset_map import OffsetMap
from penstock.storage.log_config import LogConfig
from penstock.storage.segment.batch_scan import ScannedBatch, header_at, scan_batches
from tests.support.storage.cleaning import COMPACT, Broker, cleaned, header_of, seal_active_segment
from tests.support.storage.crash_disk import CrashDisk
from tests.support.storage.logs import headers_of, old_message

RETENTION = COMPACT.delete_retention_ms
NOW = 1_700_000_000_000


@pytest.fixture
def broker() -> Broker:
    return Broker()


def assert_all_whole(broker: Broker) -> None:
    for segment in broker.log.local.segments:
        last = [
            batch.header.last_offset
            for batch in scan_batches(segment.file, 0, segment.size, check=True)
        ]
        assert last == sorted(set(last))


class TestRecords:
    def test_the_latest_record_of_each_key_keeps_its_offset(self, broker: Broker) -> None:
        broker.append((b"a", b"1"), (b"b", b"1"))
        broker.append((b"a", b"2"), (b"c", b"1"))
        broker.append((b"a", b"3"))
        seal_active_segment(broker)
        broker.clean()
        assert [(r.offset, r.key, r.value) for r in broker.records()] == [
            (1, b"b", b"1"),
            (3, b"c", b"1"),
            (4, b"a", b"3"),
            (5, b"active", b"-"),
            (6, b"active", b"-"),
        ]
        assert_all_whole(broker)

    def test_a_later_record_in_the_active_segment_does_not_count(self, broker: Broker) -> None:
        broker.append((b"a", b"1"))
        broker.roll()
        broker.append((b"a", b"2"))
        assert broker.clean() == 1
        assert broker.pairs() == [(b"a", b"1"), (b"a", b"2")]

    def test_timestamps_headers_and_epochs_are_kept(self, broker: Broker) -> None:
        broker.append(
            (b"a", b"1"),
            (b"b", b"1"),
            (b"b", b"2"),
            headers=(("name", b"\xff"), ("null", None)),
            timestamps=(NOW + 5, NOW + 9, NOW - 3),
        )
        before = header_of(broker, 0)
        assert cleaned(broker) == [(b"a", b"1"), (b"b", b"2")]
        first, second = broker.records()[:2]
        assert (first.timestamp, second.timestamp) == (NOW + 5, NOW - 3)
        assert first.headers == second.headers == (("name", b"\xff"), ("null", None))
        after = header_of(broker, 0)
        assert after.partition_leader_epoch == before.partition_leader_epoch == 5
        assert (after.base_offset, after.last_offset) == (0, 2)
        assert after.records_count == 2
        assert after.max_timestamp == NOW + 5

    def test_header_names_that_are_not_utf_8_survive(self, broker: Broker) -> None:
        """The bytes of a record are copied, not decoded."""
        batch = build_batch([Record(n, NOW, b"k", b"v%d" % n, (("N@ME", b""),)) for n in (0, 1)])
        damaged = batch.replace(b"N@ME", b"N\xff\xfeE")
        header = read_header(damaged)
        result = rewritten(damaged, keys={b"k": 1})
        assert result is not None
        assert result.header.records_count == 1
        assert b"N\xff\xfeE" in bytes(result.data)
        assert result.header.last_offset == header.last_offset

    def test_records_without_a_key_are_dropped_by_the_cleaner(self) -> None:
        """They were written before the topic was compacted; no later record can replace them."""
        broker = Broker(LogConfig(index_interval_bytes=100))
        broker.append((None, b"1"), (b"a", b"1"))
        broker.append((None, b"2"))
        broker.log.config = COMPACT
        assert cleaned(broker) == [(b"a", b"1")]

    def test_the_log_append_time_is_kept(self) -> None:
        config = replace(COMPACT, message_timestamp_type="LogAppendTime")
        broker = Broker(config)
        broker.append((b"a", b"1"), (b"b", b"1"), (b"a", None), timestamps=(1, 2, 3))
        seal_active_segment(broker)
        broker.clean()
        header = header_of(broker, 0)
        assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
        assert header.has_delete_horizon
        assert header.max_timestamp == broker.clock.now_ms()
        assert {record.timestamp for record in broker.records()} == {broker.clock.now_ms()}


class TestBatches:
    @pytest.mark.parametrize("codec", Compression)
    def test_a_compressed_batch_is_rewritten_with_its_codec(
        self, broker: Broker, codec: Compression
    ) -> None:
        """S5, P6."""
        broker.append(*((b"k%d" % n, b"v" * 100) for n in range(50)), compression=codec)
        broker.append((b"k7", b"new"), compression=codec)
        pairs = cleaned(broker)
        assert len(pairs) == 50
        assert dict(pairs)[b"k7"] == b"new"
        header = header_of(broker, 0)
        assert header.compression is codec
        assert header.records_count == 49
        assert_all_whole(broker)

    @pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
    def test_a_batch_that_loses_nothing_keeps_its_bytes(
        self, broker: Broker, codec: Compression
    ) -> None:
        broker.append((b"x", b"old"))
        broker.append((b"a", b"1"), (b"b", b"2"), compression=codec)
        broker.append((b"x", b"new"))
        before = bytes(next(iter(broker.log.local.segments)).file.read_at(0, 10_000))
        cleaned(broker)
        after = bytes(next(iter(broker.log.local.segments)).file.read_at(0, 10_000))
        start = read_header(before).size
        end = start + read_header(before, start).size
        assert after.startswith(before[start:end])

    def test_a_batch_without_remaining_records_is_removed(self, broker: Broker) -> None:
        broker.append((b"a", b"1"))
        broker.append((b"a", b"2"))
        cleaned(broker)
        assert [header.base_offset for header in headers_of(broker.log)] == [1, 2, 3]

    def test_the_last_batch_of_a_cleaning_is_kept_empty(self) -> None:
        """Otherwise the log would lose its end offset if all later records were lost."""
        broker = Broker(LogConfig(index_interval_bytes=100))
        broker.append((b"a", b"1"))
        broker.append((None, b"1"), (None, b"2"))
        broker.log.config = COMPACT
        broker.roll()
        broker.clean()
        header = header_of(broker, 2)
        assert (header.base_offset, header.last_offset, header.records_count) == (1, 2, 0)
        assert header.size == 61
        assert broker.log.local.segments.first.next_offset() == 3
        broker.append((b"a", b"2"))
        broker.roll()
        broker.clean()
        assert [header.base_offset for header in headers_of(broker.log)] == [3]

    def test_a_batch_that_grows_beyond_the_limit_is_logged(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        batch = build_batch([Record(0, NOW, b"a", None), Record(1, NOW, b"b", bytes(200))])
        result = rewritten(batch, keys={b"a": 0, b"b": 1}, max_message_bytes=len(batch))
        assert result is not None
        assert result.header.has_delete_horizon
        assert len(result.data) > len(batch)
        assert "more than max.message.bytes" in caplog.text


def rewritten(
    batch: bytearray,
    *,
    keys: dict[bytes, int],
    producers: dict[int, LastRecord] | None = None,
    max_message_bytes: int = 10**6,
    keep_legacy_tombstones: bool = True,
    stats: CleanerStats | None = None,
) -> CleanedBatch | None:
    """Returns one batch after compaction with these keys in the map."""
    offsets = OffsetMap(24 * 100)
    for key, offset in sorted(keys.items(), key=lambda item: item[1]):
        offsets.put(key, offset)
    view = memoryview(batch)
    header = header_at(view, 0)
    offsets.advance(header.last_offset)
    cleaner = BatchCleaner(
        offsets,
        CleanedTransactions([]),
        producers or {},
        stats or CleanerStats(),
        now_ms=NOW,
        delete_retention_ms=RETENTION,
        max_message_bytes=max_message_bytes,
        end_offset=10**6,
    )
    return cleaner.clean(
        ScannedBatch(0, header, view, 0), keep_legacy_tombstones=keep_legacy_tombstones
    )


class TestTombstones:
    def test_they_are_kept_for_delete_retention_after_the_first_cleaning(
        self, broker: Broker
    ) -> None:
        """S5."""
        broker.append((b"a", b"1"), (b"b", b"1"))
        broker.append((b"a", None), timestamps=(NOW - 10**9,))
        assert cleaned(broker) == [(b"b", b"1"), (b"a", None)]
        header = header_of(broker, 2)
        assert header.delete_horizon_ms == broker.clock.now_ms() + RETENTION
        assert header.max_timestamp == NOW - 10**9
        assert broker.records()[1].timestamp == NOW - 10**9
        broker.advance(RETENTION - 1)
        assert (b"a", None) in cleaned(broker)
        broker.advance(1)
        assert (b"a", None) not in cleaned(broker)
        assert broker.table() == {b"b": b"1", b"active": b"-"}

    def test_a_later_value_replaces_a_tombstone_at_once(self, broker: Broker) -> None:
        broker.append((b"a", None))
        broker.append((b"a", b"back"))
        assert cleaned(broker) == [(b"a", b"back")]

    @pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
    def test_the_horizon_is_set_once_and_the_rest_of_the_batch_is_kept(
        self, broker: Broker, codec: Compression
    ) -> None:
        times = (NOW, NOW + 1, NOW + 2)
        broker.append((b"a", None), (b"b", b"1"), (b"c", b"1"), compression=codec, timestamps=times)
        cleaned(broker)
        horizon_ms = header_of(broker, 0).delete_horizon_ms
        broker.advance(5)
        broker.append((b"b", b"2"))
        cleaned(broker)
        assert header_of(broker, 0).delete_horizon_ms == horizon_ms
        assert [record.timestamp for record in broker.records()[:2]] == [NOW, NOW + 2]
        broker.advance(RETENTION)
        assert cleaned(broker) == [(b"c", b"1"), (b"b", b"2")]
        assert broker.records()[0].timestamp == NOW + 2

    def test_a_tombstone_beyond_the_map_has_not_done_its_work_yet(self) -> None:
        """Its horizon is set by the cleaning that removes the records before it."""
        batch = build_batch([Record(n, NOW, b"k%d" % n, None) for n in (5, 6)], base_offset=5)
        offsets = OffsetMap(24 * 100)
        offsets.put(b"k5", 5)
        cleaner = BatchCleaner(
            offsets,
            CleanedTransactions([]),
            {},
            CleanerStats(),
            now_ms=NOW,
            delete_retention_ms=RETENTION,
            max_message_bytes=10**6,
            end_offset=100,
        )
        result = cleaner.clean(
            ScannedBatch(0, read_header(batch), memoryview(batch), 0), keep_legacy_tombstones=True
        )
        assert result is not None
        assert result.is_unchanged
        assert not result.header.has_delete_horizon


def wrapper(*messages: bytes, offset: int, magic: int = 1) -> bytes:
    """Messages of an old format, compressed into one."""
    value = compress(Compression.GZIP, b"".join(messages))
    time = pack(">q", NOW) if magic else b""
    body = pack(">bb", magic, int(Compression.GZIP)) + time + pack(">i", -1)
    body += pack(">i", len(value)) + value
    return pack(">qiI", offset, len(body) + 4, crc32(body)) + body


class TestOldFormats:
    @pytest.fixture
    def old(self) -> Broker:
        """A log that an old broker wrote: offsets 0 to 5, the last three compressed into one."""
        broker = Broker()
        broker.stop()
        inner = [old_message(n, b"w%d" % n, key=b"w%d" % (n % 2), magic=1) for n in range(3)]
        data = (
            old_message(0, b"1", key=b"a", magic=0)
            + old_message(1, b"2", key=b"a", magic=1)
            + old_message(2, None, key=b"gone", magic=1)
            + wrapper(*inner, offset=5)
        )
        put(broker.disk, "/data/accounts-0/00000000000000000000.log", data)
        for kind in (".index", ".timeindex"):
            broker.disk.remove(f"/data/accounts-0/00000000000000000000{kind}")
        broker.disk.remove("/data/.kafka_cleanshutdown")
        broker.start()
        assert broker.log.log_end_offset == 6
        broker.log.update_high_watermark(6)
        return broker

    def test_messages_are_kept_or_removed_and_wrappers_become_batches(self, old: Broker) -> None:
        assert cleaned(old) == [
            (b"a", b"2"),
            (b"gone", None),
            (b"w1", b"w1"),
            (b"w0", b"w2"),
        ]
        assert [header.magic for header in headers_of(old.log)] == [1, 1, 2, 2, 2]
        header = headers_of(old.log)[2]
        assert (header.base_offset, header.last_offset) == (4, 5)
        assert header.compression is Compression.GZIP
        assert_all_whole(old)

    @pytest.mark.parametrize(("later_ms", "stays"), [(RETENTION - 1, True), (RETENTION, False)])
    def test_tombstones_go_with_the_age_of_their_segment(
        self, old: Broker, later_ms: int, stays: bool
    ) -> None:
        """They have no horizon of their own: the time of the last clean segment counts."""
        cleaned(old)
        # Too small for two segments to become one, which would then be as young as the younger.
        old.log.config = replace(COMPACT, segment_bytes=200)
        old.advance(later_ms)
        old.append((b"later", b"1"))
        old.roll()
        assert old.clean() == 1
        assert (b"gone", None) in old.pairs()
        old.append((b"later", b"2"))
        old.roll()
        assert old.clean() == 1
        assert ((b"gone", None) in old.pairs()) == stays

    def test_the_rule_for_tombstones_is_the_callers(self) -> None:
        message = bytearray(old_message(0, None, key=b"gone"))
        assert rewritten(message, keys={b"gone": 0}) is not None
        assert rewritten(message, keys={b"gone": 0}, keep_legacy_tombstones=False) is None

    def test_records_without_a_key_are_removed(self) -> None:
        stats = CleanerStats()
        body = pack(">bbq", 1, 0, NOW) + pack(">i", -1) + pack(">i", 1) + b"v"
        message = bytearray(pack(">qiI", 3, len(body) + 4, crc32(body)) + body)
        assert rewritten(message, keys={}, stats=stats) is None
        assert stats.invalid_messages == 1


def put(disk: CrashDisk, path: str, data: bytes) -> None:
    file = disk.open(path, create=True)
    file.truncate(0)
    file.write_at(data, 0)
    file.close()
