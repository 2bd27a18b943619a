"""Many records in one call (P1, P5)."""

import asyncio
from collections.abc import Sequence
from threading import Event, Thread
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.client.errors import (
    BufferExhaustedError,
    IllegalStateError,
    RecordTooLargeError,
    SerializationError,
    UnknownTopicError,
)
from penstock.client.producer import bulk
from penstock.client.producer.bulk import BulkRecords
from penstock.client.producer.bulk_future import BulkFuture
from penstock.client.producer.partitioners import partition_for_key
from penstock.core.errors import InvalidRecordError
from penstock.records.read import read_records
from penstock.records.record import Record
from tests.support.client.accumulator import AccumulatorFixture, cluster_of

T = 1_700_000_000_000
VALUE = bytes(range(100))


def append_many(
    fixture: AccumulatorFixture,
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None = None,
    *,
    partition: int = -1,
    topic: str = "t",
    timestamps: Sequence[int] | None = None,
    headers: Sequence[tuple[str, bytes | None]] = (),
    batch_size: int = 0,
    max_block_ms: int = 0,
) -> BulkFuture:
    records = BulkRecords(values, keys, timestamps, T, headers, batch_size)
    return fixture.appender.append_many(
        topic, partition, records, fixture.cluster, max_block_ms, fixture.now_ms
    )


def logs_of(fixture: AccumulatorFixture) -> dict[int, list[Record]]:
    """Sends all batches, and returns the records of each partition."""
    logs: dict[int, list[Record]] = {}
    while fixture.has_undrained():
        for batch, _ in fixture.drain():
            log = logs.setdefault(batch.topic_partition.partition, [])
            base = len(log)
            log += [
                record._replace(offset=base + record.offset)
                for record in read_records(batch.close())
            ]
            batch.complete(base)
            fixture.accumulator.complete_and_deallocate(batch)
    return logs


def test_one_partition() -> None:
    fixture = AccumulatorFixture()
    before = fixture.append(b"before")
    future = append_many(fixture, [b"%d" % n for n in range(1000)], partition=0)
    after = fixture.append(b"after")
    assert len(future) == 1000
    assert not future.done()
    log = logs_of(fixture)[0]
    assert [record.value for record in log] == [
        b"before",
        *(b"%d" % n for n in range(1000)),
        b"after",
    ]
    assert [entry.offset for entry in future.result(0)] == list(range(1, 1001))
    assert (before.result(0).offset, after.result(0).offset) == (0, 1001)
    assert fixture.pool.available_memory == fixture.pool.total_memory


def test_batches_are_full() -> None:
    """P5: as full as with single records."""
    single, many = AccumulatorFixture(), AccumulatorFixture()
    for _ in range(1000):
        single.append(VALUE)
    append_many(many, [VALUE] * 1000, partition=0)
    assert many.wakes == single.wakes
    expected = [len(values) for _, values in single.deliver_all()]
    assert [len(values) for _, values in many.deliver_all()] == expected


def test_larger_batches() -> None:
    """They come out of the same memory, and are no larger than what they hold."""
    fixture = AccumulatorFixture()
    append_many(fixture, [VALUE] * 10_000, partition=0, batch_size=500_000)
    used = fixture.pool.total_memory - fixture.pool.available_memory
    assert 1_000_000 < used < 2_000_000
    assert len(fixture.deliver_all()) == 3
    append_many(fixture, [VALUE] * 10, partition=0, batch_size=500_000)
    assert fixture.pool.total_memory - fixture.pool.available_memory == 16384


def test_keys_determine_partitions() -> None:
    """P1: as they do for single records, and null keys are sticky."""
    fixture = AccumulatorFixture(cluster_of({"t": 5}))
    keys = [None if n % 7 == 0 else b"key-%d" % (n % 50) for n in range(3000)]
    future = append_many(fixture, [b"%d" % n for n in range(3000)], keys)
    logs = logs_of(fixture)
    metadata = future.result(0)
    for number, (key, entry) in enumerate(zip(keys, metadata, strict=True)):
        if key is not None:
            assert entry.partition == partition_for_key(key, 5)
        record = logs[entry.partition][entry.offset]
        assert (record.key, record.value) == (key, b"%d" % number)
        assert entry.serialized_key_size == (-1 if key is None else len(key))
        assert entry.serialized_value_size == len(b"%d" % number)
    for log in logs.values():
        numbers = [int(record.value or b"") for record in log]
        assert numbers == sorted(numbers), "with and without keys, in the order of the call"


def test_sticky_without_keys() -> None:
    """P1."""
    fixture = AccumulatorFixture(cluster_of({"t": 4}))
    future = append_many(fixture, [VALUE] * 20_000)
    logs = logs_of(fixture)
    assert set(logs) == {0, 1, 2, 3}
    assert {tp.partition for tp in future.topic_partitions} == {0, 1, 2, 3}
    assert sum(map(len, logs.values())) == 20_000


def test_keys_can_be_ignored() -> None:
    """P1: partitioner_ignore_keys."""
    fixture = AccumulatorFixture(cluster_of({"t": 4}), partitioner_ignore_keys=True)
    append_many(fixture, [b""] * 10, [b"%d" % n for n in range(10)])
    assert len(logs_of(fixture)) == 1


def test_timestamps_and_headers() -> None:
    fixture = AccumulatorFixture()
    headers = (("trace", b"1"),)
    times = [T + 5, T, T + 3]
    future = append_many(
        fixture, (b"a", None, b"c"), partition=0, timestamps=times, headers=headers
    )
    log = logs_of(fixture)[0]
    assert [(r.timestamp, r.value, r.headers) for r in log] == [
        (T + 5, b"a", headers),
        (T, None, headers),
        (T + 3, b"c", headers),
    ]
    assert [entry.timestamp for entry in future.result(0)] == times
    assert future.result(0)[1].serialized_value_size == -1
    append_many(fixture, [b"x"], partition=0)
    assert logs_of(fixture)[0][0].timestamp == T


def test_an_empty_call() -> None:
    fixture = AccumulatorFixture()
    future = append_many(fixture, [], [])
    assert future.done()
    assert list(future.result(0)) == []
    assert not fixture.accumulator.has_incomplete()


def test_all_records_are_checked_first() -> None:
    """P5, P7, E1: a call that is rejected appends no record."""
    fixture = AccumulatorFixture(cluster_of({"t": 2}), max_request_size=1000)
    wrong: list[Any] = [*([b"x"] * 500), "text"]
    with pytest.raises(SerializationError, match="value_serializer"):
        append_many(fixture, wrong)
    with pytest.raises(SerializationError, match="key_serializer"):
        append_many(fixture, [b""] * 501, wrong)
    with pytest.raises(ValueError, match="2 values and 1 keys"):
        append_many(fixture, [b"", b""], [b""])
    with pytest.raises(ValueError, match="1 values and 2 timestamps"):
        append_many(fixture, [b""], timestamps=[1, 2])
    with pytest.raises(InvalidRecordError, match="timestamp -5"):
        append_many(fixture, [b"", b""], timestamps=[1, -5])
    with pytest.raises(RecordTooLargeError, match=r"record 1 takes .* max_request_size \(1000\)"):
        append_many(fixture, [b"", b"x" * 990], [b"k", b"k"])
    append_many(fixture, [b"x" * 900], [b""])
    with pytest.raises(UnknownTopicError, match="'other'"):
        append_many(fixture, [b""], [b"k"], topic="other")
    assert sum(map(len, logs_of(fixture).values())) == 1


def test_a_call_without_memory_raises() -> None:
    fixture = AccumulatorFixture(buffer_memory=16384)
    fixture.append(VALUE, partition=0)
    fixture.cluster = cluster_of({"t": 2})
    with pytest.raises(BufferExhaustedError):
        append_many(fixture, [VALUE], partition=1, max_block_ms=1)


def test_a_call_that_runs_out_of_memory_half_way() -> None:
    """P5: the records in batches are sent, and the others fail."""
    fixture = AccumulatorFixture(buffer_memory=2 * 16384)
    future = append_many(fixture, [VALUE] * 1000, partition=0, max_block_ms=1)
    assert not future.done()
    assert len(logs_of(fixture)[0]) == 2 * 148
    assert isinstance(future.exception(0), BufferExhaustedError)
    assert future.topic_partitions == {("t", 0)}
    assert fixture.pool.available_memory == fixture.pool.total_memory


def test_a_call_waits_for_memory() -> None:
    fixture = AccumulatorFixture(cluster_of({"t": 3}), buffer_memory=4 * 16384)
    stop = Event()
    counts: list[int] = []

    def send() -> None:
        while not stop.is_set() or fixture.accumulator.has_incomplete():
            counts.append(sum(map(len, logs_of(fixture).values())))

    sender = Thread(target=send)
    sender.start()
    keys: list[bytes | None] = [b"%d" % n for n in range(5000)]
    future = append_many(fixture, [VALUE] * 5000, keys, max_block_ms=20_000)
    stop.set()
    sender.join(60)
    assert sum(counts) == 5000
    assert len(future.result(0)) == 5000


def test_tasks_wait_for_memory() -> None:
    fixture = AccumulatorFixture(buffer_memory=2 * 16384)

    async def scenario() -> int:
        call = asyncio.create_task(
            fixture.appender.append_many_async(
                "t",
                0,
                BulkRecords([VALUE] * 1000, None, None, T),
                fixture.cluster,
                20_000,
                fixture.now_ms,
            )
        )
        count = 0
        while not call.done():
            await asyncio.sleep(0)
            count += len(logs_of(fixture).get(0, []))
        count += len(logs_of(fixture).get(0, []))
        assert len(await call.result()) == 1000
        half = await fixture.appender.append_many_async(
            "t",
            0,
            BulkRecords([b"x" * 30_000] * 2, None, None, T),
            fixture.cluster,
            1,
            fixture.now_ms,
        )
        assert not half.done()
        with pytest.raises(BufferExhaustedError):
            await fixture.appender.append_many_async(
                "t",
                0,
                BulkRecords([b"x" * 30_000], None, None, T),
                fixture.cluster,
                1,
                fixture.now_ms,
            )
        return count

    assert asyncio.run(scenario()) == 1000


def test_a_closed_accumulator_rejects_records() -> None:
    fixture = AccumulatorFixture()
    fixture.accumulator.close()
    with pytest.raises(IllegalStateError):
        append_many(fixture, [b""])


keys_or_none = st.none() | st.binary(max_size=3)
payload = st.none() | st.binary(max_size=300)


@settings(max_examples=150)
@given(
    st.lists(st.tuples(keys_or_none, payload), max_size=60),
    st.integers(1, 5),
    st.integers(0, 700),
    st.sampled_from([None, 5000]),
    st.sampled_from(["none", "lz4"]),
    st.integers(1, 20),
)
def test_each_record_is_at_the_offset_of_its_metadata(
    records: list[tuple[bytes | None, bytes | None]],
    partitions: int,
    batch_size: int,
    larger: int | None,
    codec: str,
    chunk: int,
) -> None:
    """P1, P5: whatever the sizes, and whatever the chunks that are sorted at a time."""
    fixture = AccumulatorFixture(
        cluster_of({"t": partitions}), batch_size=batch_size, compression_type=codec
    )
    keys = [key for key, _ in records]
    values = [value for _, value in records]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk, "_CHUNK", chunk)
        patch.setattr(bulk, "_MIN_PER_PARTITION", 1)
        future = append_many(fixture, values, keys, batch_size=larger or 0)
    logs = logs_of(fixture)
    metadata = future.result(0)
    assert len(metadata) == len(records) == sum(map(len, logs.values()))
    for (key, value), entry in zip(records, metadata, strict=True):
        record = logs[entry.partition][entry.offset]
        assert (record.key, record.value) == (key, value)
        assert key is None or entry.partition == partition_for_key(key, partitions)
    assert fixture.pool.available_memory == fixture.pool.total_memory
