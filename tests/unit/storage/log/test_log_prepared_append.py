"""Appends whose slow part runs on another thread (P1, P3)."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.core.errors import ErrorCode, KafkaError, KafkaStorageError
from penstock.records.compress import Compression
from penstock.records.prepare import PreparedAppend
from penstock.storage.log.log import Log
from penstock.storage.log_config import LogConfig
from tests.support.storage.logs import NOW, LogDirectory, batch, headers_of, values

PACKED = LogConfig(compression_type="zstd")
TEXT = b"something that can be said in less " * 400


def prepare(log: Log, data: bytearray) -> PreparedAppend:
    prepared = log.begin_append(data)
    assert prepared is not None, "it is slow"
    return prepared


def test_small_appends_need_no_thread(tmp_path: Path) -> None:
    with LogDirectory(tmp_path, PACKED) as directory:
        assert directory.open().begin_append(batch(b"small")) is None


def test_on_a_thread_while_others_append(tmp_path: Path) -> None:
    """The offset is that of when it is finished; it is stored with the topic's codec."""
    with LogDirectory(tmp_path, PACKED) as directory, ThreadPoolExecutor(1) as pool:
        log = directory.open()
        prepared = prepare(log, batch(TEXT))
        running = pool.submit(prepared.run)
        log.append_as_leader(batch(b"meanwhile"), 3)
        running.result()
        info = log.finish_append(prepared, 3)
        assert (info.first_offset, info.last_offset, info.is_duplicate) == (1, 1, False)
        assert values(log) == [b"meanwhile", TEXT]
        assert [header.compression for header in headers_of(log)] == [Compression.ZSTD] * 2
        assert {header.partition_leader_epoch for header in headers_of(log)} == {3}


def test_log_append_time_is_that_of_the_append(tmp_path: Path) -> None:
    config = LogConfig(compression_type="gzip", message_timestamp_type="LogAppendTime")
    with LogDirectory(tmp_path, config) as directory:
        log = directory.open()
        prepared = prepare(log, batch(TEXT))
        prepared.run()
        directory.clock.advance(500)
        assert log.finish_append(prepared, 0).log_append_time == NOW + 500
        assert [header.max_timestamp for header in headers_of(log)] == [NOW + 500]


def test_a_setting_that_changes_before_the_finish_takes_effect(tmp_path: Path) -> None:
    with LogDirectory(tmp_path, PACKED) as directory:
        log = directory.open()
        prepared = prepare(log, batch(TEXT))
        prepared.run()
        log.config = LogConfig(compression_type="lz4", message_timestamp_type="LogAppendTime")
        assert log.finish_append(prepared, 0).log_append_time == NOW
        assert [header.compression for header in headers_of(log)] == [Compression.LZ4]
        log.config = LogConfig(max_message_bytes=100)
        again = PreparedAppend(batch(TEXT), PACKED.append_policy, prepared.origin, NOW)
        again.run()
        with pytest.raises(KafkaError) as error:
            log.finish_append(again, 0)
        assert error.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_duplicate_is_recognised_at_the_end(tmp_path: Path) -> None:
    """P3: both may be prepared at the same time."""
    with LogDirectory(tmp_path, PACKED) as directory:
        log = directory.open()
        both = [prepare(log, batch(TEXT, producer_id=7, sequence=0)) for _ in range(2)]
        for prepared in both:
            prepared.run()
        first, second = (log.finish_append(prepared, 0) for prepared in both)
        assert (first.is_duplicate, second.is_duplicate) == (False, True)
        assert second.first_offset == first.first_offset
        assert len(values(log)) == 1


def test_a_failed_log_accepts_no_append(tmp_path: Path) -> None:
    with LogDirectory(tmp_path, PACKED) as directory:
        log = directory.open()
        prepared = prepare(log, batch(TEXT))
        prepared.run()
        log.guard.stop(KafkaStorageError("gone"))
        with pytest.raises(KafkaStorageError, match="gone"):
            log.finish_append(prepared, 0)
