"""Settings of a topic, changed while it is in use, apply at once (S3, S4, S5, P7)."""

import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TypeVar

import pytest
from msgspec.structs import replace

from penstock.broker.broker import Broker
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import Assignment, Put
from penstock.controller.result import ControllerResult
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.records.batch import read_header, split
from penstock.records.compress import Compression
from penstock.records.record import Record
from penstock.storage.cleaner.log_cleaner import LogCleaner
from penstock.storage.log.log import Log
from penstock.storage.log.retention import delete_old_segments
from tests.support.broker.absent_replicas import add_absent_replica
from tests.support.broker.in_process import RunningBroker, WireClient, running_broker
from tests.support.coordinator.group_client import wait_until
from tests.support.protocol.admin import TOPIC, alter, create_topic, fetch, produce, try_produce
from tests.support.storage.batches import iter_records
from tests.support.storage.logs import remove_deleted_segments

T = TypeVar("T")
DAY_MS = 86_400_000
_numbers = count()


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("topics")


@pytest.fixture(scope="module")
def broker(log_dir: Path) -> Iterator[RunningBroker]:
    # The broker's own rounds of cleaning would get in the way of those of the tests.
    with running_broker(log_dir, {"log.cleaner.backoff.ms": "3600000"}) as running:
        yield running


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[WireClient]:
    with broker.connect() as wire_client:
        yield wire_client


class Topic:
    """A topic with one partition, and access to its log."""

    def __init__(self, broker: RunningBroker, client: WireClient, log_dir: Path) -> None:
        self.name = f"t{next(_numbers)}"
        self._broker = broker
        self._client = client
        self.directory = log_dir / "data" / f"{self.name}-0"
        assert create_topic(client, self.name) is ErrorCode.NONE

    def set(self, **settings: str | int | None) -> None:
        """`set(retention_ms=1)` sets retention.ms."""
        values = {
            name.replace("_", "."): None if value is None else str(value)
            for name, value in settings.items()
        }
        alter(self._client, TOPIC, self.name, values)

    def write(
        self,
        *values: bytes | None,
        key: bytes | None = None,
        timestamp: int = 1_700_000_000_000,
        codec: Compression = Compression.NONE,
    ) -> int:
        return produce(self._client, self.name, *values, key=key, timestamp=timestamp, codec=codec)

    def log(self, function: Callable[[Log], T]) -> T:
        def run(running: Broker) -> T:
            log = running.logs.get(TopicPartition(self.name, 0))
            assert log is not None
            return function(log)

        return self._broker.call(run)

    def segments(self) -> list[int]:
        return self.log(lambda log: log.local.segments.base_offsets)

    def retain(self) -> int:
        """Applies retention now; returns the new log start offset."""

        def run(log: Log) -> int:
            delete_old_segments(log)
            return log.log_start_offset

        return self.log(run)

    def clean(self) -> list[tuple[bytes | None, bytes | None]]:
        """Cleans all dirty segments now; returns the remaining keys and values."""

        def run(running: Broker) -> None:
            cleaner = next(
                listener for listener in running.logs.listeners if isinstance(listener, LogCleaner)
            )
            cleaner.clean()

        # A log is cleaned below its recovery point only: flushes of the broker must have ended.
        wait_until(lambda: self.log(lambda log: log.local.can_flush))
        self._broker.call(run)
        return [(record.key, record.value) for record in self.read()]

    def read(self) -> list[Record]:
        """Reads all records, which needs several fetches because a fetch ends with its segment."""
        result: list[Record] = []
        offset = 0
        while data := bytes(fetch(self._client, self.name, offset).records):
            result += iter_records(data)
            last = split(data)[-1][1]
            offset = last.base_offset + last.last_offset_delta + 1
        return result


@pytest.fixture
def topic(broker: RunningBroker, client: WireClient, log_dir: Path) -> Topic:
    return Topic(broker, client, log_dir)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


# --- retention


def test_retention_ms(topic: Topic) -> None:
    topic.set(retention_ms=-1)
    topic.write(b"a", timestamp=now_ms() - 10 * DAY_MS)
    assert topic.retain() == 0
    topic.set(retention_ms=11 * DAY_MS)
    assert topic.retain() == 0
    topic.set(retention_ms=9 * DAY_MS)
    assert topic.retain() == 1


def test_retention_bytes(topic: Topic) -> None:
    topic.set(internal_segment_bytes=1000, retention_ms=-1)
    for _ in range(4):
        topic.write(b"x" * 900)
    assert topic.retain() == 0
    topic.set(retention_bytes=2500)
    assert topic.retain() == 2 - 1


def test_file_delete_delay_ms(topic: Topic, broker: RunningBroker) -> None:
    topic.set(retention_ms=1)
    topic.write(b"a")
    assert topic.retain() == 1
    assert any(topic.directory.glob("*.deleted"))
    topic.set(file_delete_delay_ms=0)
    topic.write(b"b")
    assert topic.retain() == 2
    topic.log(lambda log: remove_deleted_segments(log))
    # If the broker was about to remove the segment itself, it does so on another thread.
    wait_until(
        lambda: {path.name[:20] for path in topic.directory.glob("*.deleted")} == {f"{0:020}"}
    )


# --- segments


def test_segment_bytes(topic: Topic) -> None:
    for _ in range(2):
        topic.write(b"x" * 600_000)
    assert topic.segments() == [0]
    topic.set(segment_bytes=1_048_576)
    topic.write(b"x" * 600_000)
    assert topic.segments() == [0, 2]


def test_segment_ms(topic: Topic) -> None:
    topic.write(b"a", timestamp=1_700_000_000_000)
    topic.write(b"b", timestamp=1_700_000_005_000)
    topic.set(segment_ms=3000)
    topic.write(b"c", timestamp=1_700_000_005_000)
    assert topic.segments() == [0, 2]


def test_segment_jitter_ms(topic: Topic) -> None:
    """Every new segment gets a random jitter."""
    topic.set(segment_ms=1_000_000, segment_jitter_ms=1_000_000)
    jitters = set()
    for _ in range(8):
        jitters.add(topic.log(lambda log: log.roll(log.log_end_offset).roll_jitter_ms))
        topic.write(b"a")
    assert len(jitters) > 1
    assert max(jitters) <= 1_000_000


def test_segment_index_bytes_and_index_interval_bytes(topic: Topic) -> None:
    topic.set(segment_index_bytes=24, index_interval_bytes=0)
    topic.log(lambda log: log.roll())
    for timestamp in range(6):
        topic.write(b"a", timestamp=1_700_000_000_000 + timestamp)
    # A time index of 24 bytes has room for 2 entries, and every batch adds one.
    assert len(topic.segments()) >= 3
    topic.set(segment_index_bytes=None, index_interval_bytes=None)
    end = topic.log(lambda log: log.log_end_offset)
    topic.write(b"a")
    topic.log(lambda log: log.roll())
    for _ in range(6):
        topic.write(b"a")
    assert topic.log(lambda log: log.local.segments.active.indexes.offset_index.entries) == 0
    assert topic.segments()[-1] == end + 1


def test_preallocate(topic: Topic) -> None:
    topic.set(internal_segment_bytes=100_000)
    topic.write(b"a")
    assert (topic.directory / f"{0:020}.log").stat().st_blocks * 512 < 100_000
    topic.set(preallocate="true")
    topic.log(lambda log: log.roll())
    assert (topic.directory / f"{1:020}.log").stat().st_blocks * 512 >= 100_000


# --- durability


def test_flush_messages(topic: Topic) -> None:
    topic.write(b"a")
    assert topic.log(lambda log: log.recovery_point) == 0
    topic.set(flush_messages=2)
    topic.write(b"b")
    assert topic.log(lambda log: log.recovery_point) == 2
    topic.write(b"c")
    assert topic.log(lambda log: log.recovery_point) == 2
    topic.write(b"d")
    assert topic.log(lambda log: log.recovery_point) == 4


def test_flush_ms(topic: Topic) -> None:
    topic.write(b"a")
    assert not topic.log(lambda log: log.is_flush_due)
    topic.set(flush_ms=0)
    deadline = time.monotonic() + 10
    while topic.log(lambda log: log.recovery_point) == 0:
        assert time.monotonic() < deadline
        time.sleep(0.02)


# --- compaction


def test_cleanup_policy_and_min_cleanable_dirty_ratio(topic: Topic) -> None:
    """S5."""
    for value in (b"1", b"2", b"3"):
        topic.write(value, key=b"k")
    topic.log(lambda log: log.roll())
    assert len(topic.clean()) == 3
    topic.set(cleanup_policy="compact")
    assert topic.clean() == [(b"k", b"3")]
    topic.write(b"4", key=b"k")
    topic.write(b"5", key=b"k")
    topic.log(lambda log: log.roll())
    topic.set(min_cleanable_dirty_ratio="0.99")
    assert len(topic.clean()) == 3
    topic.set(min_cleanable_dirty_ratio="0.1")
    assert topic.clean() == [(b"k", b"5")]


def test_min_compaction_lag_ms(topic: Topic) -> None:
    topic.set(cleanup_policy="compact", min_compaction_lag_ms=DAY_MS)
    for value in (b"1", b"2"):
        topic.write(value, key=b"k", timestamp=now_ms())
    topic.log(lambda log: log.roll())
    assert len(topic.clean()) == 2
    topic.set(min_compaction_lag_ms=0)
    assert topic.clean() == [(b"k", b"2")]


def test_max_compaction_lag_ms(topic: Topic) -> None:
    topic.set(cleanup_policy="compact", min_cleanable_dirty_ratio="1.0")
    topic.write(b"0", key=b"other")
    topic.log(lambda log: log.roll())
    topic.clean()
    for value in (b"1", b"2"):
        topic.write(value, key=b"k", timestamp=now_ms() - DAY_MS)
    topic.log(lambda log: log.roll())
    assert len(topic.clean()) == 3
    topic.set(max_compaction_lag_ms=DAY_MS // 2)
    assert topic.clean() == [(b"other", b"0"), (b"k", b"2")]


def test_delete_retention_ms(topic: Topic) -> None:
    """The first cleaning sets the time after which a later cleaning removes the tombstone."""

    def keys_after_two_cleanings(key: bytes) -> list[bytes | None]:
        topic.write(None, key=key)
        for _ in range(2):
            topic.write(b"x", key=b"other")
            topic.log(lambda log: log.roll())
            result = topic.clean()
        return [item for item, _ in result]

    topic.set(cleanup_policy="compact", min_cleanable_dirty_ratio="0.0")
    assert keys_after_two_cleanings(b"a day") == [b"a day", b"other"]
    topic.set(delete_retention_ms=0)
    assert keys_after_two_cleanings(b"at once") == [b"a day", b"other"]


# --- validation


def test_compression_type(topic: Topic, client: WireClient) -> None:
    """P6: batches with another codec are recompressed."""

    def stored_codec() -> Compression:
        offset = topic.write(b"a" * 1000, b"b" * 1000, codec=Compression.SNAPPY)
        data = bytes(fetch(client, topic.name, offset).records)
        return read_header(data).compression

    assert stored_codec() is Compression.SNAPPY
    for name in ("gzip", "lz4", "zstd", "uncompressed"):
        topic.set(compression_type=name)
        expected_codec = Compression.NONE if name == "uncompressed" else Compression[name.upper()]
        assert stored_codec() is expected_codec
    assert [record.value for record in topic.read()] == [b"a" * 1000, b"b" * 1000] * 5


def test_max_message_bytes(topic: Topic, client: WireClient) -> None:
    """P7, E2."""
    record = Record(0, 1_700_000_000_000, None, b"x" * 2000)
    topic.set(max_message_bytes=1000)
    response = try_produce(client, topic.name, record)
    assert response.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert "max.message.bytes" in response.error_message
    assert topic.log(lambda log: log.log_end_offset) == 0
    topic.set(max_message_bytes=3000)
    assert try_produce(client, topic.name, record).error_code == 0


def test_message_timestamp_type(topic: Topic, client: WireClient) -> None:
    record = Record(0, 1_700_000_000_000, None, b"x")
    assert try_produce(client, topic.name, record).log_append_time_ms == -1
    topic.set(message_timestamp_type="LogAppendTime")
    before = now_ms()
    stamped = try_produce(client, topic.name, record).log_append_time_ms
    assert before <= stamped <= now_ms()
    assert [item.timestamp for item in topic.read()] == [1_700_000_000_000, stamped]


@pytest.mark.parametrize(
    ("setting", "shift_ms"),
    [
        ("message.timestamp.before.max.ms", -DAY_MS),
        ("message.timestamp.after.max.ms", DAY_MS),
    ],
)
def test_timestamps_far_from_now_are_rejected(
    topic: Topic, client: WireClient, setting: str, shift_ms: int
) -> None:
    record = Record(0, now_ms() + shift_ms, None, b"x")
    alter(client, TOPIC, topic.name, {setting: str(DAY_MS // 2)})
    response = try_produce(client, topic.name, record)
    assert response.error_code == ErrorCode.INVALID_TIMESTAMP
    assert response.record_errors
    alter(client, TOPIC, topic.name, {setting: str(DAY_MS * 2)})
    assert try_produce(client, topic.name, record).error_code == 0


def test_min_insync_replicas(topic: Topic, client: WireClient, broker: RunningBroker) -> None:
    """E7: as in Kafka, no more replicas are required than the topic has."""
    record = Record(0, 1_700_000_000_000, None, b"x")
    topic.set(min_insync_replicas=2)
    assert try_produce(client, topic.name, record).error_code == 0
    add_absent_replica(broker, topic.name)
    response = try_produce(client, topic.name, record)
    assert response.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert "min.insync.replicas" in response.error_message
    assert try_produce(client, topic.name, record, acks=1).error_code == 0
    topic.set(min_insync_replicas=1)
    assert try_produce(client, topic.name, record).error_code == 0


def test_unclean_leader_election_enable(
    topic: Topic, client: WireClient, broker: RunningBroker
) -> None:
    """R5: if no in-sync replica is alive, another may become leader as soon as it is allowed."""
    key = TopicPartition(topic.name, 0)
    record = Record(0, 1_700_000_000_000, None, b"x")
    assert try_produce(client, topic.name, record).error_code == 0

    def lose_in_sync_replicas(image: ClusterImage) -> ControllerResult[None]:
        replicas = Assignment((*image.topics[topic.name].assignments[0].replicas, 99))
        state = image.partitions[key]
        return ControllerResult(
            [
                Put(replace(image.topics[topic.name], assignments={0: replicas})),
                Put(
                    replace(
                        state,
                        leader=-1,
                        isr=(99,),
                        leader_epoch=state.leader_epoch + 1,
                        partition_epoch=state.partition_epoch + 1,
                    )
                ),
            ],
            None,
        )

    broker.wait(lambda running: running.controller.run(lose_in_sync_replicas))
    response = try_produce(client, topic.name, record)
    assert response.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    topic.set(unclean_leader_election_enable="true")
    topic.set(retention_ms=-1)  # decided after the election
    assert try_produce(client, topic.name, record, acks=1).base_offset == 1


# --- restarts


def test_settings_hold_after_a_restart(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker, broker.connect() as client:
        create_topic(client, "t")
        settings: dict[str, str | None] = {
            "max.message.bytes": "1000",
            "compression.type": "gzip",
            "message.timestamp.type": "LogAppendTime",
        }
        alter(client, TOPIC, "t", settings)
    with running_broker(tmp_path) as broker, broker.connect() as client:
        record = Record(0, 1_700_000_000_000, None, b"x" * 2000)
        assert try_produce(client, "t", record).error_code == ErrorCode.MESSAGE_TOO_LARGE
        small = try_produce(client, "t", Record(0, 0, None, b"x"))
        assert small.log_append_time_ms > 0
        data = bytes(fetch(client, "t").records)
        assert read_header(data).compression is Compression.GZIP
