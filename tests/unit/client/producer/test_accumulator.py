"""`RecordAppender` and `RecordAccumulator`: records until they are sent (P1, P5)."""

import asyncio
from collections import Counter, defaultdict
from threading import Event, Thread
from typing import Any

import pytest

from penstock.client.errors import (
    BufferExhaustedError,
    ClientError,
    IllegalStateError,
    RecordTooLargeError,
    SerializationError,
)
from penstock.client.producer.accumulator import NEVER
from penstock.client.producer.appender import UNKNOWN_PARTITION, RecordToAppend
from penstock.client.producer.batch import ProducerBatch
from penstock.client.producer.bulk import BulkRecords
from penstock.client.producer.future import RecordFuture
from penstock.core.errors import InvalidRecordError, KafkaError
from penstock.core.ids import TopicPartition
from penstock.records.batch import read_header, verify
from tests.support.client.accumulator import AccumulatorFixture, cluster_of, until

VALUE = bytes(range(100))
PER_BATCH = 148
"""Records of VALUE in a batch of 16 KiB."""

TP = TopicPartition("t", 0)


class Sequences:
    """Assigns sequences to the batches that are drained."""

    def __init__(self) -> None:
        self.is_completing = False
        self.blocked: set[TopicPartition] = set()
        self.tracked: list[ProducerBatch] = []
        self.next: defaultdict[TopicPartition, int] = defaultdict(int)

    def should_stop_drain(self, batch: ProducerBatch, tp: TopicPartition) -> bool:
        assert batch.topic_partition == tp
        return tp in self.blocked

    def assign_sequence(self, batch: ProducerBatch) -> None:
        sequence = self.next[batch.topic_partition]
        batch.set_producer_state(9, 0, sequence, False)
        self.next[batch.topic_partition] = (sequence + batch.records_count) & 0x7FFFFFFF
        self.tracked.append(batch)

    def add_in_flight(self, batch: ProducerBatch) -> None:
        self.tracked.append(batch)


# Appending


def test_records_share_a_batch_until_it_is_full() -> None:
    """P5: the sender is woken for every batch, not for every record."""
    fixture = AccumulatorFixture()
    futures = [fixture.append(VALUE) for _ in range(PER_BATCH)]
    assert fixture.wakes == 1
    assert len({future.batch_result for future in futures}) == 1
    assert [future.relative_offset for future in futures] == list(range(PER_BATCH))
    assert fixture.append(VALUE).relative_offset == 0
    assert fixture.wakes == 2
    delivered = fixture.deliver_all()
    assert [len(values) for _, values in delivered] == [PER_BATCH, 1]
    for batch, _ in delivered:
        assert batch.drained_ms == fixture.now_ms
    assert futures[7].result(0).offset == 7
    assert fixture.pool.available_memory == fixture.pool.total_memory


def test_a_batch_that_is_exactly_full_wakes_the_sender() -> None:
    fixture = AccumulatorFixture(batch_size=61 + 4 * 8, linger_ms=10_000)
    for _ in range(3):
        fixture.append(b"x")
    assert fixture.wakes == 1
    assert fixture.ready()[0] == set()
    fixture.append(b"x")
    assert fixture.wakes == 2
    assert fixture.ready()[0] == {0}


def test_a_large_record_has_memory_of_its_own() -> None:
    """P5, P7: it counts, but is not reused; a record larger than the pool is rejected."""
    fixture = AccumulatorFixture(batch_size=1000, buffer_memory=10_000)
    fixture.append(b"x" * 5000)
    assert fixture.pool.available_memory < 5000
    [(_, values)] = fixture.deliver_all()
    assert values == [b"x" * 5000]
    assert fixture.pool.available_memory == 10_000
    with pytest.raises(RecordTooLargeError, match="raise buffer_memory"):
        fixture.append(b"x" * 10_000)


def test_an_append_without_memory_raises_after_max_block_ms() -> None:
    """P5: the sender is woken when a caller begins to wait."""
    fixture = AccumulatorFixture(buffer_memory=2 * 16384)
    for _ in range(2 * PER_BATCH):
        fixture.append(VALUE)
    wakes = fixture.wakes
    with pytest.raises(BufferExhaustedError, match="max_block_ms"):
        fixture.append(VALUE, max_block_ms=1)
    assert fixture.wakes == wakes + 1
    fixture.deliver_all()
    fixture.append(VALUE)


def test_all_batches_are_ready_while_a_caller_waits_for_memory() -> None:
    """P5: the caller continues when a batch is done."""
    fixture = AccumulatorFixture(buffer_memory=16384, linger_ms=10_000)
    fixture.append(VALUE)
    assert fixture.ready()[0] == set()
    futures: list[RecordFuture] = []

    def append() -> None:
        futures.append(fixture.append(VALUE, partition=1, max_block_ms=20_000))

    fixture.cluster = cluster_of({"t": 2})
    thread = Thread(target=append)
    thread.start()
    until(lambda: fixture.pool.waiting == 1)
    assert fixture.ready()[0] == {0}
    fixture.deliver_all()
    thread.join(20)
    assert futures[0].topic_partition == ("t", 1)
    assert fixture.pool.available_memory == 0


def test_memory_that_is_no_longer_needed_is_returned() -> None:
    """P5: another thread creates a batch during the wait."""
    fixture = AccumulatorFixture(buffer_memory=2 * 16384)
    accumulator = fixture.accumulator
    for _ in range(2):
        accumulator.complete_and_deallocate(_filled_and_drained(fixture))
    blocks = [fixture.pool.allocate(16384, 0) for _ in range(2)]
    threads = [Thread(target=lambda: fixture.append(VALUE, max_block_ms=20_000)) for _ in range(2)]
    for thread in threads:
        thread.start()
    until(lambda: fixture.pool.waiting == 2)
    for block in blocks:
        fixture.pool.deallocate(block, len(block))
    for thread in threads:
        thread.join(20)
    assert fixture.pool.available_memory == 16384
    assert [len(values) for _, values in fixture.deliver_all()] == [2]


def _filled_and_drained(fixture: AccumulatorFixture) -> ProducerBatch:
    fixture.append(VALUE)
    [(batch, _)] = fixture.drain()
    batch.complete(0)
    return batch


@pytest.mark.parametrize("begun", [True, False])
def test_a_record_that_cannot_be_encoded_takes_no_memory(begun: bool) -> None:
    fixture = AccumulatorFixture()
    if begun:
        fixture.append(VALUE)
    free = fixture.pool.available_memory
    wrong: Any = "text"
    for timestamp, value, kind in (
        (-2, VALUE, InvalidRecordError),
        (2**63, VALUE, OverflowError),
        (1, wrong, TypeError),
    ):
        with pytest.raises(kind):
            fixture.appender.append(
                RecordToAppend("t", 0, timestamp, None, value, (), None, fixture.cluster),
                0,
                fixture.now_ms,
            )
        with pytest.raises((InvalidRecordError, OverflowError, SerializationError)):
            fixture.appender.append_many(
                "t",
                0,
                BulkRecords([value], None, None, timestamp),
                fixture.cluster,
                0,
                fixture.now_ms,
            )
    assert fixture.pool.available_memory == free
    assert [len(values) for _, values in fixture.deliver_all()] == [1] * begun


def test_a_closed_accumulator_rejects_records_and_delivers_the_rest() -> None:
    fixture = AccumulatorFixture(linger_ms=10_000)
    fixture.append(VALUE)
    fixture.accumulator.close()
    assert fixture.ready()[0] == {0}
    with pytest.raises(IllegalStateError, match="closed"):
        fixture.append(VALUE)
    assert len(fixture.deliver_all()) == 1


def test_tasks_wait_for_memory() -> None:
    """P5: the aio producer does not block the loop."""
    fixture = AccumulatorFixture(buffer_memory=16384)

    async def append(number: int) -> RecordFuture:
        value = b"%d" % number * 8000
        record = RecordToAppend("t", 0, 1, None, value, (), None, fixture.cluster)
        return await fixture.appender.append_async(record, 20_000, fixture.now_ms)

    async def scenario() -> None:
        tasks = [asyncio.create_task(append(number)) for number in range(6)]
        offsets = []
        for _ in range(6):
            await asyncio.sleep(0)
        while not all(task.done() for task in tasks):
            fixture.deliver_all()
            await asyncio.sleep(0)
        fixture.deliver_all()
        for task in tasks:
            offsets.append((await task.result()).serialized_value_size)
        assert offsets == [8000] * 6

    asyncio.run(scenario())
    assert fixture.pool.available_memory == 16384


# Sticky partitions


def test_the_sticky_partition_changes_after_a_full_batch() -> None:
    """P1: all partitions get about the same, in batches that are full."""
    fixture = AccumulatorFixture(cluster_of({"t": 4}), buffer_memory=1 << 26)
    futures = [fixture.append(VALUE, partition=UNKNOWN_PARTITION) for _ in range(20_000)]
    counts = Counter(future.topic_partition.partition for future in futures)
    assert set(counts) == {0, 1, 2, 3}
    sizes = [len(values) for _, values in fixture.deliver_all()]
    assert sum(sizes) == 20_000
    assert sizes.count(PER_BATCH) >= len(sizes) - 4
    assert all(future.done() for future in futures)


def test_the_sticky_partition_does_not_change_before_a_full_batch() -> None:
    """P1: it changes once the small batch is sent."""
    fixture = AccumulatorFixture(cluster_of({"t": 50}), batch_size=1000)
    first = fixture.append(b"x" * 800, partition=UNKNOWN_PARTITION).topic_partition
    assert fixture.append(b"x" * 300, partition=UNKNOWN_PARTITION).topic_partition == first
    fixture.deliver_all()
    partitions = set()
    for _ in range(20):
        partitions.add(fixture.append(b"x" * 1100, partition=UNKNOWN_PARTITION).topic_partition)
    assert len(partitions) > 5


def test_a_partition_whose_broker_is_not_ready_is_not_chosen() -> None:
    """P1: partitioner_availability_timeout_ms."""
    fixture = AccumulatorFixture(
        cluster_of({"t": [0, 1, 0]}), partitioner_availability_timeout_ms=100, batch_size=200
    )
    for partition in range(3):
        fixture.append(VALUE, partition=partition)
    fixture.accumulator.update_node_latency(0, fixture.now_ms, True)
    fixture.accumulator.update_node_latency(1, fixture.now_ms, True)
    fixture.clock.advance(101)
    fixture.accumulator.update_node_latency(0, fixture.now_ms, True)
    fixture.accumulator.update_node_latency(1, fixture.now_ms, False)
    fixture.ready()
    partitions = {
        fixture.append(b"x" * 300, partition=UNKNOWN_PARTITION).topic_partition.partition
        for _ in range(60)
    }
    assert partitions == {0, 2}
    fixture.accumulator.update_node_latency(1, fixture.now_ms, True)
    fixture.deliver_all()
    fixture.append(VALUE, partition=1)
    fixture.ready()
    partitions = {
        fixture.append(b"x" * 300, partition=UNKNOWN_PARTITION).topic_partition.partition
        for _ in range(100)
    }
    assert partitions == {0, 1, 2}


def test_partitions_with_longer_queues_are_chosen_less_often() -> None:
    """P1: adaptive partitioning, unless it is switched off."""
    for enabled in (True, False):
        fixture = AccumulatorFixture(
            cluster_of({"t": 2}),
            batch_size=100,
            partitioner_adaptive_partitioning_enable=enabled,
        )
        for _ in range(30):
            fixture.append(VALUE, partition=0)
        fixture.append(VALUE, partition=1)
        fixture.ready()
        partitions = Counter(
            fixture.append(VALUE, partition=UNKNOWN_PARTITION).topic_partition.partition
            for _ in range(200)
        )
        assert (partitions[0] < 40) is enabled


# What is ready


def test_a_batch_lingers_until_it_is_full() -> None:
    """P5: linger_ms."""
    fixture = AccumulatorFixture(linger_ms=10)
    assert fixture.ready() == (set(), NEVER, set())
    fixture.append(VALUE)
    fixture.clock.advance(3)
    assert fixture.ready() == (set(), 7, set())
    fixture.clock.advance(7)
    assert fixture.ready() == ({0}, NEVER, set())


def test_full_batches_are_ready_at_once() -> None:
    fixture = AccumulatorFixture(cluster_of({"t": [0, 1]}), linger_ms=10_000)
    for _ in range(PER_BATCH + 1):
        fixture.append(VALUE, partition=1)
    fixture.append(VALUE, partition=0)
    assert fixture.ready() == ({1}, 10_000, set())


def test_all_batches_are_ready_in_a_flush_and_at_the_end_of_a_transaction() -> None:
    """P4, P5."""
    sequences = Sequences()
    fixture = AccumulatorFixture(linger_ms=10_000, sequences=sequences)
    fixture.append(VALUE)
    fixture.accumulator.begin_flush()
    assert fixture.ready()[0] == {0}
    fixture.accumulator.end_flush()
    assert fixture.ready()[0] == set()
    sequences.is_completing = True
    assert fixture.ready()[0] == {0}


def test_topics_with_unknown_leaders_are_returned() -> None:
    fixture = AccumulatorFixture(cluster_of({"t": [0, -1], "u": 1}), linger_ms=0)
    fixture.append(VALUE, partition=0)
    fixture.append(VALUE, partition=1)
    assert fixture.ready() == ({0}, NEVER, {"t"})
    fixture.cluster = cluster_of({"u": 1})
    assert fixture.ready() == (set(), NEVER, {"t"})
    assert fixture.drain() == []


def test_muted_partitions_are_not_drained() -> None:
    """P5: order with one request in flight."""
    fixture = AccumulatorFixture(linger_ms=0)
    fixture.append(VALUE)
    fixture.accumulator.mute(TP)
    assert fixture.ready()[0] == set()
    assert fixture.drain() == []
    fixture.accumulator.unmute(TP)
    assert fixture.ready()[0] == {0}
    assert len(fixture.drain()) == 1


def test_a_retry_waits_for_the_backoff() -> None:
    """P5: retry_backoff_ms doubles, with jitter; a new leader gets the batch at once."""
    fixture = AccumulatorFixture(retry_backoff_ms=100, retry_backoff_max_ms=1000, linger_ms=0)
    fixture.append(VALUE)
    [(batch, _)] = fixture.drain()
    fixture.accumulator.reenqueue(batch, fixture.now_ms)
    assert fixture.drain() == []
    nodes, delay, _ = fixture.ready()
    assert nodes == set()
    assert 80 <= delay <= 120
    fixture.clock.advance(121)
    assert fixture.ready()[0] == {0}
    assert len(fixture.drain()) == 1
    fixture.accumulator.reenqueue(batch, fixture.now_ms)
    fixture.clock.advance(121)
    assert fixture.ready()[0] == set()
    fixture.cluster = cluster_of({"t": 1}, epochs={("t", 0): 5})
    assert fixture.ready()[0] == {0}
    assert len(fixture.drain()) == 1


# Draining


def test_drain_takes_one_batch_of_each_partition_of_a_node() -> None:
    fixture = AccumulatorFixture(cluster_of({"t": [0, 1, 0], "u": [1]}))
    for partition in (0, 1, 2):
        for _ in range(PER_BATCH + 1):
            fixture.append(VALUE, partition=partition)
    fixture.append(VALUE, topic="u")
    drained = fixture.accumulator.drain(fixture.cluster, {0, 1}, 1 << 20, fixture.now_ms)
    assert {
        node: [batch.topic_partition for batch in batches] for node, batches in drained.items()
    } == {0: [("t", 0), ("t", 2)], 1: [("t", 1), ("u", 0)]}
    assert {batch.topic_partition for batch, _ in fixture.drain(nodes={1})} == {("t", 1)}
    assert fixture.drain(nodes={7}) == []


def test_a_partition_that_did_not_fit_is_drained_first_next_time() -> None:
    """P5: max_request_size."""
    fixture = AccumulatorFixture(cluster_of({"t": 4}))
    for partition in range(4):
        for _ in range(3 * PER_BATCH):
            fixture.append(VALUE, partition=partition)
    order = []
    for _ in range(4):
        drained = [batch.topic_partition.partition for batch, _ in fixture.drain(max_size=50_000)]
        assert len(drained) == 3
        order += drained
    assert order == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3]
    assert len(fixture.drain(max_size=1)) == 0
    fixture.append(VALUE)
    assert len(fixture.drain(max_size=1)) == 1, "a single batch is drained whatever its size"


def test_sequences_are_assigned_in_the_order_of_draining() -> None:
    """P3: a partition that must wait does not delay others."""
    sequences = Sequences()
    fixture = AccumulatorFixture(cluster_of({"t": 2}), sequences=sequences)
    for _ in range(2 * PER_BATCH):
        fixture.append(VALUE, partition=0)
        fixture.append(VALUE, partition=1)
    sequences.blocked = {TP}
    [(second, _)] = fixture.drain()
    assert second.topic_partition.partition == 1
    sequences.blocked = set()
    first, _ = fixture.drain()
    assert (first.batch.base_sequence, first.batch.last_sequence) == (0, PER_BATCH - 1)
    header = read_header(first.batch.close())
    assert (header.producer_id, header.base_sequence) == (9, 0)
    fixture.accumulator.reenqueue(first.batch, fixture.now_ms)
    fixture.clock.advance(200)
    [(again, _)] = fixture.drain()
    assert again is first.batch
    assert again.base_sequence == 0, "a batch keeps its sequence"
    [(second, _)] = fixture.drain()
    assert second.base_sequence == PER_BATCH


@pytest.mark.parametrize("start", [0, 2**31 - PER_BATCH])
def test_batches_are_reenqueued_in_the_order_of_their_sequences(start: int) -> None:
    """P3, P5: whatever the order of the failures, also when sequences wrap."""
    sequences = Sequences()
    sequences.next[TP] = start
    fixture = AccumulatorFixture(sequences=sequences, retry_backoff_ms=0, retry_backoff_max_ms=0)
    for _ in range(4 * PER_BATCH):
        fixture.append(VALUE)
    batches = [fixture.drain()[0].batch for _ in range(3)]
    for index in (1, 2, 0):
        fixture.accumulator.reenqueue(batches[index], fixture.now_ms)
    drained = [fixture.drain()[0].batch for _ in range(4)]
    assert drained[:3] == batches
    expected = [(start + n * PER_BATCH) & 0x7FFFFFFF for n in range(4)]
    assert [batch.base_sequence for batch in drained] == expected
    fixture.append(VALUE)
    unsent = next(iter(fixture.drain())).batch
    unsent.base_sequence = -1
    with pytest.raises(ValueError, match="without the sequence"):
        fixture.accumulator.reenqueue(unsent, fixture.now_ms)


def test_without_sequences_a_batch_is_reenqueued_at_the_front() -> None:
    fixture = AccumulatorFixture(retry_backoff_ms=0, retry_backoff_max_ms=0)
    for _ in range(2 * PER_BATCH):
        fixture.append(VALUE)
    [(first, _)] = fixture.drain()
    fixture.accumulator.reenqueue(first, fixture.now_ms)
    assert fixture.drain()[0].batch is first


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_batch_that_is_too_large_is_split(idempotent: bool) -> None:
    """P7: the parts are sent instead, in order, and flush waits for them."""
    sequences = Sequences()
    fixture = AccumulatorFixture(
        batch_size=400,
        sequences=sequences if idempotent else None,
        retry_backoff_ms=0,
        retry_backoff_max_ms=0,
    )
    many = fixture.appender.append_many(
        "t",
        0,
        BulkRecords(
            [b"%03d" % number * 30 for number in range(20)], None, None, 5, batch_size=10_000
        ),
        fixture.cluster,
        0,
        fixture.now_ms,
    )
    later = fixture.append(b"later")
    [(big, values)] = fixture.drain()
    assert len(values) == 21
    results = fixture.accumulator.incomplete_results()
    count = fixture.accumulator.split_and_reenqueue(big)
    fixture.accumulator.complete_and_deallocate(big)
    assert count > 5
    assert fixture.pool.available_memory == fixture.pool.total_memory
    assert not results[0].done
    delivered = fixture.deliver_all()
    assert len(delivered) == count
    assert [value for _, values in delivered for value in values] == values
    assert len(sequences.tracked) == (1 + count if idempotent else 0)
    assert results[0].done
    assert [metadata.offset for metadata in many.result(0)] == list(range(20))
    assert later.result(0).offset == 20
    assert not fixture.accumulator.has_incomplete()
    assert fixture.pool.available_memory == fixture.pool.total_memory


def test_a_part_that_is_still_too_large_is_halved() -> None:
    """P7: down to single records."""
    fixture = AccumulatorFixture(batch_size=2000, retry_backoff_ms=0, retry_backoff_max_ms=0)
    for _ in range(10):
        fixture.append(VALUE)
    [(big, _)] = fixture.drain()
    sizes = []
    while big.records_count > 1:
        sizes.append(fixture.accumulator.split_and_reenqueue(big))
        fixture.accumulator.complete_and_deallocate(big)
        [(big, _), *_] = fixture.drain()
    assert sizes[0] == 1
    assert len(sizes) < 8
    assert big.records_count == 1


# Ends


def test_batches_expire_in_the_queue() -> None:
    """P5: delivery_timeout_ms."""
    fixture = AccumulatorFixture(
        cluster_of({"t": 2}), delivery_timeout_ms=31_000, linger_ms=0, request_timeout_ms=30_000
    )
    accumulator = fixture.accumulator
    assert accumulator.next_expiry_ms == NEVER
    began = fixture.now_ms
    fixture.append(VALUE)
    fixture.clock.advance(10)
    fixture.append(VALUE, partition=1)
    assert accumulator.next_expiry_ms == began + 31_000
    fixture.clock.advance(30_989)
    assert accumulator.expired_batches(fixture.now_ms) == []
    fixture.clock.advance(1)
    [expired] = accumulator.expired_batches(fixture.now_ms)
    assert expired.topic_partition == TP
    assert accumulator.next_expiry_ms == began + 31_010
    expired.fail(ClientError("expired"))
    accumulator.complete_and_deallocate(expired)
    fixture.clock.advance(10)
    assert len(accumulator.expired_batches(fixture.now_ms)) == 1
    assert accumulator.next_expiry_ms == NEVER


def test_incomplete_batches_include_those_in_flight() -> None:
    fixture = AccumulatorFixture()
    assert not fixture.accumulator.has_incomplete()
    future = fixture.append(VALUE)
    assert fixture.accumulator.has_incomplete()
    assert fixture.has_undrained()
    assert fixture.accumulator.incomplete_results() == [future.batch_result]
    [(batch, _)] = fixture.drain()
    assert not fixture.has_undrained()
    assert fixture.accumulator.has_incomplete()
    batch.complete(0)
    fixture.accumulator.complete_batch(batch)
    assert not fixture.accumulator.has_incomplete()
    assert fixture.pool.available_memory < fixture.pool.total_memory
    for _ in range(2):
        fixture.accumulator.deallocate(batch)
        assert fixture.pool.available_memory == fixture.pool.total_memory


@pytest.mark.parametrize("idempotent", [True, False])
def test_abort_undrained(idempotent: bool) -> None:
    """P4: batches that were sent are not aborted."""
    fixture = AccumulatorFixture(sequences=Sequences() if idempotent else None)
    sent = fixture.append(VALUE)
    [(batch, _)] = fixture.drain()
    errors: list[KafkaError | None] = []
    waiting = fixture.append(VALUE, callback=lambda _, error: errors.append(error))
    error = ClientError("aborted")
    fixture.accumulator.abort_undrained(error)
    assert waiting.exception(0) is error
    assert errors == [error]
    assert not sent.done()
    assert not fixture.has_undrained()
    batch.complete(3)
    fixture.accumulator.complete_and_deallocate(batch)
    assert fixture.pool.available_memory == fixture.pool.total_memory


def test_abort_incomplete() -> None:
    """P5: memory that a request still reads is returned with its response."""
    fixture = AccumulatorFixture()
    futures = [fixture.append(VALUE)]
    [(batch, _)] = fixture.drain()
    batch.is_in_flight = True
    futures.append(fixture.append(VALUE))
    error = ClientError("closed")
    fixture.accumulator.abort_incomplete(error)
    assert [future.exception(0) for future in futures] == [error, error]
    assert not fixture.accumulator.has_incomplete()
    assert fixture.pool.available_memory == fixture.pool.total_memory - 16384
    batch.is_in_flight = False
    assert not batch.complete(0)
    fixture.accumulator.deallocate(batch)
    assert fixture.pool.available_memory == fixture.pool.total_memory


# Compression


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_approach_the_batch_size(codec: str) -> None:
    """P6: the compression ratio of a topic is estimated from its batches."""
    fixture = AccumulatorFixture(compression_type=codec, batch_size=2000, linger_ms=10_000)
    counts: list[int] = []
    for _ in range(6000):
        fixture.append(b"the same text again and again, the same text, again and again")
        if fixture.ready()[0]:
            [(batch, values)] = fixture.drain()
            counts.append(len(values))
            header = read_header(batch.close())
            verify(batch.close(), 0, header)
            assert header.compression.codec_name == codec
            batch.complete(0)
            fixture.accumulator.complete_and_deallocate(batch)
    assert (counts[-1] > 1.5 * counts[0]) is (codec != "none")
    fixture.deliver_all()
    assert fixture.pool.available_memory == fixture.pool.total_memory


def test_compression_levels() -> None:
    """P6."""
    sizes = []
    text = b"".join(b"%d, " % (number * 7919) for number in range(3000))
    for level in (1, 22):
        fixture = AccumulatorFixture(compression_type="zstd", compression_zstd_level=level)
        fixture.append(text)
        [(batch, _)] = fixture.drain()
        sizes.append(len(batch.close()))
    assert sizes[0] > sizes[1]


# Threads


def test_many_threads_and_one_sender() -> None:
    """P5: no record is lost, and each thread's records keep their order in a partition."""
    fixture = AccumulatorFixture(cluster_of({"t": 3}), buffer_memory=20 * 1000, batch_size=1000)
    stop = Event()
    futures: list[list[RecordFuture]] = [[] for _ in range(8)]
    per_thread = 1500

    def produce(thread: int) -> None:
        for number in range(per_thread):
            partition = number % 3 if thread % 2 else UNKNOWN_PARTITION
            value = b"%d %d" % (thread, number)
            futures[thread].append(fixture.append(value, partition=partition, max_block_ms=20_000))

    logs: defaultdict[int, list[bytes]] = defaultdict(list)

    def send() -> None:
        while not stop.is_set() or fixture.accumulator.has_incomplete():
            for batch, values in fixture.drain():
                log = logs[batch.topic_partition.partition]
                batch.complete(len(log))
                log += [value for value in values if value is not None]
                fixture.accumulator.complete_and_deallocate(batch)

    sender = Thread(target=send)
    threads = [Thread(target=produce, args=(number,)) for number in range(8)]
    for worker in [sender, *threads]:
        worker.start()
    for worker in threads:
        worker.join(60)
    stop.set()
    sender.join(60)
    assert not sender.is_alive()
    assert sum(map(len, logs.values())) == 8 * per_thread
    for log in logs.values():
        last_numbers: defaultdict[int, int] = defaultdict(lambda: -1)
        for value in log:
            thread, number = map(int, value.split())
            assert number > last_numbers[thread]
            last_numbers[thread] = number
    for thread, own_futures in enumerate(futures):
        assert len(own_futures) == per_thread
        for number, future in enumerate(own_futures):
            metadata = future.result(0)
            assert logs[metadata.partition][metadata.offset] == b"%d %d" % (thread, number)
    assert fixture.pool.available_memory == fixture.pool.total_memory
