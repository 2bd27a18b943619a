"""Records that wait to be sent (P1, P5)."""

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
from penstock.client.producer.appender import UNKNOWN_PARTITION
from penstock.client.producer.batch import ProducerBatch
from penstock.client.producer.bulk import BulkRecords
from penstock.client.producer.future import RecordFuture
from penstock.core.errors import InvalidRecordError, KafkaError
from penstock.core.ids import TopicPartition
from penstock.records.batch import read_header, verify
from tests.support.client.accumulator import Accumulating, cluster_of, until

VALUE = bytes(range(100))
PER_BATCH = 148
"""Records of VALUE in a batch of 16 KiB."""

TP = TopicPartition("t", 0)


class Sequences:
    """A producer with an id: numbers what is drained."""

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
    """P5: the sender is woken when a batch is begun, not for every record."""
    given = Accumulating()
    futures = [given.append(VALUE) for _ in range(PER_BATCH)]
    assert given.wakes == 1
    assert len({future.batch_result for future in futures}) == 1
    assert [future.relative_offset for future in futures] == list(range(PER_BATCH))
    assert given.append(VALUE).relative_offset == 0
    assert given.wakes == 2
    delivered = given.deliver_all()
    assert [len(values) for _, values in delivered] == [PER_BATCH, 1]
    for batch, _ in delivered:
        assert batch.drained_ms == given.now_ms
    assert futures[7].result(0).offset == 7
    assert given.pool.available_memory == given.pool.total_memory


def test_a_batch_that_is_exactly_full_wakes_the_sender() -> None:
    given = Accumulating(batch_size=61 + 4 * 8, linger_ms=10_000)
    for _ in range(3):
        given.append(b"x")
    assert given.wakes == 1
    assert given.ready()[0] == set()
    given.append(b"x")
    assert given.wakes == 2
    assert given.ready()[0] == {0}


def test_a_large_record_has_memory_of_its_own() -> None:
    """P5, P7: it counts, but the pool does not keep it; what can never fit is refused."""
    given = Accumulating(batch_size=1000, buffer_memory=10_000)
    given.append(b"x" * 5000)
    assert given.pool.available_memory < 5000
    [(_, values)] = given.deliver_all()
    assert values == [b"x" * 5000]
    assert given.pool.available_memory == 10_000
    with pytest.raises(RecordTooLargeError, match="raise buffer_memory"):
        given.append(b"x" * 10_000)


def test_no_memory() -> None:
    """P5: after max_block_ms an error; the sender is told that somebody waits."""
    given = Accumulating(buffer_memory=2 * 16384)
    for _ in range(2 * PER_BATCH):
        given.append(VALUE)
    wakes = given.wakes
    with pytest.raises(BufferExhaustedError, match="max_block_ms"):
        given.append(VALUE, max_block_ms=1)
    assert given.wakes == wakes + 1
    given.deliver_all()
    given.append(VALUE)


def test_who_waits_for_memory_makes_everything_ready() -> None:
    """P5: and goes on when a batch is done."""
    given = Accumulating(buffer_memory=16384, linger_ms=10_000)
    given.append(VALUE)
    assert given.ready()[0] == set()
    futures: list[RecordFuture] = []

    def append() -> None:
        futures.append(given.append(VALUE, partition=1, max_block_ms=20_000))

    given.cluster = cluster_of({"t": 2})
    thread = Thread(target=append)
    thread.start()
    until(lambda: given.pool.waiting == 1)
    assert given.ready()[0] == {0}
    given.deliver_all()
    thread.join(20)
    assert futures[0].topic_partition == ("t", 1)
    assert given.pool.available_memory == 0


def test_memory_that_is_not_needed_in_the_end_goes_back() -> None:
    """P5: another thread began a batch while this one waited."""
    given = Accumulating(buffer_memory=2 * 16384)
    accumulator = given.accumulator
    for _ in range(2):
        accumulator.complete_and_deallocate(_filled_and_drained(given))
    blocks = [given.pool.allocate(16384, 0) for _ in range(2)]
    threads = [Thread(target=lambda: given.append(VALUE, max_block_ms=20_000)) for _ in range(2)]
    for thread in threads:
        thread.start()
    until(lambda: given.pool.waiting == 2)
    for block in blocks:
        given.pool.deallocate(block, len(block))
    for thread in threads:
        thread.join(20)
    assert given.pool.available_memory == 16384
    assert [len(values) for _, values in given.deliver_all()] == [2]


def _filled_and_drained(given: Accumulating) -> ProducerBatch:
    given.append(VALUE)
    [(batch, _)] = given.drain()
    batch.complete(0)
    return batch


@pytest.mark.parametrize("begun", [True, False])
def test_a_record_that_cannot_be_encoded_costs_nothing(begun: bool) -> None:
    given = Accumulating()
    if begun:
        given.append(VALUE)
    free = given.pool.available_memory
    wrong: Any = "text"
    for timestamp, value, kind in (
        (-2, VALUE, InvalidRecordError),
        (2**63, VALUE, OverflowError),
        (1, wrong, TypeError),
    ):
        with pytest.raises(kind):
            given.appender.append(
                "t", 0, timestamp, None, value, (), None, given.cluster, 0, given.now_ms
            )
        with pytest.raises((InvalidRecordError, OverflowError, SerializationError)):
            given.appender.append_many(
                "t", 0, BulkRecords([value], None, None, timestamp), given.cluster, 0, given.now_ms
            )
    assert given.pool.available_memory == free
    assert [len(values) for _, values in given.deliver_all()] == [1] * begun


def test_closed() -> None:
    given = Accumulating(linger_ms=10_000)
    given.append(VALUE)
    given.accumulator.close()
    assert given.ready()[0] == {0}
    with pytest.raises(IllegalStateError, match="closed"):
        given.append(VALUE)
    assert len(given.deliver_all()) == 1


def test_tasks_wait_for_memory() -> None:
    """P5: the aio producer blocks nobody."""
    given = Accumulating(buffer_memory=16384)

    async def append(number: int) -> RecordFuture:
        return await given.appender.append_async(
            "t", 0, 1, None, b"%d" % number * 8000, (), None, given.cluster, 20_000, given.now_ms
        )

    async def scenario() -> None:
        tasks = [asyncio.create_task(append(number)) for number in range(6)]
        offsets = []
        for _ in range(6):
            await asyncio.sleep(0)
        while not all(task.done() for task in tasks):
            given.deliver_all()
            await asyncio.sleep(0)
        given.deliver_all()
        for task in tasks:
            offsets.append((await task.result()).serialized_value_size)
        assert offsets == [8000] * 6

    asyncio.run(scenario())
    assert given.pool.available_memory == 16384


# Sticky partitions


def test_sticky_fills_a_batch_then_moves_on() -> None:
    """P1: all partitions get about the same, in batches that are full."""
    given = Accumulating(cluster_of({"t": 4}), buffer_memory=1 << 26)
    futures = [given.append(VALUE, partition=UNKNOWN_PARTITION) for _ in range(20_000)]
    counts = Counter(future.topic_partition.partition for future in futures)
    assert set(counts) == {0, 1, 2, 3}
    sizes = [len(values) for _, values in given.deliver_all()]
    assert sum(sizes) == 20_000
    assert sizes.count(PER_BATCH) >= len(sizes) - 4
    assert all(future.done() for future in futures)


def test_sticky_waits_for_a_full_batch() -> None:
    """P1: a switch that would leave a small batch behind is made once that one is sent."""
    given = Accumulating(cluster_of({"t": 50}), batch_size=1000)
    first = given.append(b"x" * 800, partition=UNKNOWN_PARTITION).topic_partition
    assert given.append(b"x" * 300, partition=UNKNOWN_PARTITION).topic_partition == first
    given.deliver_all()
    seen = set()
    for _ in range(20):
        seen.add(given.append(b"x" * 1100, partition=UNKNOWN_PARTITION).topic_partition)
    assert len(seen) > 5


def test_a_partition_whose_broker_is_silent_is_left_out() -> None:
    """P1: partitioner_availability_timeout_ms."""
    given = Accumulating(
        cluster_of({"t": [0, 1, 0]}), partitioner_availability_timeout_ms=100, batch_size=200
    )
    for partition in range(3):
        given.append(VALUE, partition=partition)
    given.accumulator.update_node_latency(0, given.now_ms, True)
    given.accumulator.update_node_latency(1, given.now_ms, True)
    given.clock.advance(101)
    given.accumulator.update_node_latency(0, given.now_ms, True)
    given.accumulator.update_node_latency(1, given.now_ms, False)
    given.ready()
    seen = {
        given.append(b"x" * 300, partition=UNKNOWN_PARTITION).topic_partition.partition
        for _ in range(60)
    }
    assert seen == {0, 2}
    given.accumulator.update_node_latency(1, given.now_ms, True)
    given.deliver_all()
    given.append(VALUE, partition=1)
    given.ready()
    seen = {
        given.append(b"x" * 300, partition=UNKNOWN_PARTITION).topic_partition.partition
        for _ in range(100)
    }
    assert seen == {0, 1, 2}


def test_partitions_with_more_in_their_queues_get_less() -> None:
    """P1: adaptive partitioning; none where it is switched off."""
    for enabled in (True, False):
        given = Accumulating(
            cluster_of({"t": 2}),
            batch_size=100,
            partitioner_adaptive_partitioning_enable=enabled,
        )
        for _ in range(30):
            given.append(VALUE, partition=0)
        given.append(VALUE, partition=1)
        given.ready()
        seen = Counter(
            given.append(VALUE, partition=UNKNOWN_PARTITION).topic_partition.partition
            for _ in range(200)
        )
        assert (seen[0] < 40) is enabled


# What is ready


def test_linger() -> None:
    """P5: a batch that is not full waits for linger_ms."""
    given = Accumulating(linger_ms=10)
    assert given.ready() == (set(), NEVER, set())
    given.append(VALUE)
    given.clock.advance(3)
    assert given.ready() == (set(), 7, set())
    given.clock.advance(7)
    assert given.ready() == ({0}, NEVER, set())


def test_full_batches_are_ready_at_once() -> None:
    given = Accumulating(cluster_of({"t": [0, 1]}), linger_ms=10_000)
    for _ in range(PER_BATCH + 1):
        given.append(VALUE, partition=1)
    given.append(VALUE, partition=0)
    assert given.ready() == ({1}, 10_000, set())


def test_flush_and_transactions_send_all() -> None:
    """P4, P5."""
    sequences = Sequences()
    given = Accumulating(linger_ms=10_000, sequences=sequences)
    given.append(VALUE)
    given.accumulator.begin_flush()
    assert given.ready()[0] == {0}
    given.accumulator.end_flush()
    assert given.ready()[0] == set()
    sequences.is_completing = True
    assert given.ready()[0] == {0}


def test_unknown_leaders() -> None:
    given = Accumulating(cluster_of({"t": [0, -1], "u": 1}), linger_ms=0)
    given.append(VALUE, partition=0)
    given.append(VALUE, partition=1)
    assert given.ready() == ({0}, NEVER, {"t"})
    given.cluster = cluster_of({"u": 1})
    assert given.ready() == (set(), NEVER, {"t"})
    assert given.drain() == []


def test_muted_partitions_wait() -> None:
    """P5: order with one request in flight."""
    given = Accumulating(linger_ms=0)
    given.append(VALUE)
    given.accumulator.mute(TP)
    assert given.ready()[0] == set()
    assert given.drain() == []
    given.accumulator.unmute(TP)
    assert given.ready()[0] == {0}
    assert len(given.drain()) == 1


def test_backoff_before_a_retry() -> None:
    """P5: retry_backoff_ms with jitter, doubling; a new leader is tried at once."""
    given = Accumulating(retry_backoff_ms=100, retry_backoff_max_ms=1000, linger_ms=0)
    given.append(VALUE)
    [(batch, _)] = given.drain()
    given.accumulator.reenqueue(batch, given.now_ms)
    assert given.drain() == []
    nodes, delay, _ = given.ready()
    assert nodes == set()
    assert 80 <= delay <= 120
    given.clock.advance(121)
    assert given.ready()[0] == {0}
    assert len(given.drain()) == 1
    given.accumulator.reenqueue(batch, given.now_ms)
    given.clock.advance(121)
    assert given.ready()[0] == set()
    given.cluster = cluster_of({"t": 1}, epochs={("t", 0): 5})
    assert given.ready()[0] == {0}
    assert len(given.drain()) == 1


# Draining


def test_one_batch_for_each_partition_of_a_node() -> None:
    given = Accumulating(cluster_of({"t": [0, 1, 0], "u": [1]}))
    for partition in (0, 1, 2):
        for _ in range(PER_BATCH + 1):
            given.append(VALUE, partition=partition)
    given.append(VALUE, topic="u")
    drained = given.accumulator.drain(given.cluster, {0, 1}, 1 << 20, given.now_ms)
    assert {
        node: [batch.topic_partition for batch in batches] for node, batches in drained.items()
    } == {0: [("t", 0), ("t", 2)], 1: [("t", 1), ("u", 0)]}
    assert {batch.topic_partition for batch, _ in given.drain(nodes={1})} == {("t", 1)}
    assert given.drain(nodes={7}) == []


def test_a_request_has_its_size_and_every_partition_its_turn() -> None:
    """P5: max_request_size; who had no room comes first next time."""
    given = Accumulating(cluster_of({"t": 4}))
    for partition in range(4):
        for _ in range(3 * PER_BATCH):
            given.append(VALUE, partition=partition)
    order = []
    for _ in range(4):
        drained = [batch.topic_partition.partition for batch, _ in given.drain(max_size=50_000)]
        assert len(drained) == 3
        order += drained
    assert order == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3]
    assert len(given.drain(max_size=1)) == 0
    given.append(VALUE)
    assert len(given.drain(max_size=1)) == 1, "a single batch goes whatever its size"


def test_sequences_are_given_in_the_order_of_draining() -> None:
    """P3: and one partition that must wait holds up no other."""
    sequences = Sequences()
    given = Accumulating(cluster_of({"t": 2}), sequences=sequences)
    for _ in range(2 * PER_BATCH):
        given.append(VALUE, partition=0)
        given.append(VALUE, partition=1)
    sequences.blocked = {TP}
    [(other, _)] = given.drain()
    assert other.topic_partition.partition == 1
    sequences.blocked = set()
    first, _ = given.drain()
    assert (first.batch.base_sequence, first.batch.last_sequence) == (0, PER_BATCH - 1)
    header = read_header(first.batch.close())
    assert (header.producer_id, header.base_sequence) == (9, 0)
    given.accumulator.reenqueue(first.batch, given.now_ms)
    given.clock.advance(200)
    [(again, _)] = given.drain()
    assert again is first.batch
    assert again.base_sequence == 0, "a batch keeps its sequence"
    [(second, _)] = given.drain()
    assert second.base_sequence == PER_BATCH


@pytest.mark.parametrize("start", [0, 2**31 - PER_BATCH])
def test_batches_come_back_in_the_order_of_their_sequences(start: int) -> None:
    """P3, P5: order is kept whatever the order of the failures, also where sequences wrap."""
    sequences = Sequences()
    sequences.next[TP] = start
    given = Accumulating(sequences=sequences, retry_backoff_ms=0, retry_backoff_max_ms=0)
    for _ in range(4 * PER_BATCH):
        given.append(VALUE)
    batches = [given.drain()[0].batch for _ in range(3)]
    for index in (1, 2, 0):
        given.accumulator.reenqueue(batches[index], given.now_ms)
    drained = [given.drain()[0].batch for _ in range(4)]
    assert drained[:3] == batches
    expected = [(start + n * PER_BATCH) & 0x7FFFFFFF for n in range(4)]
    assert [batch.base_sequence for batch in drained] == expected
    given.append(VALUE)
    unsent = next(iter(given.drain())).batch
    unsent.base_sequence = -1
    with pytest.raises(ValueError, match="without the sequence"):
        given.accumulator.reenqueue(unsent, given.now_ms)


def test_without_sequences_a_batch_comes_back_to_the_front() -> None:
    given = Accumulating(retry_backoff_ms=0, retry_backoff_max_ms=0)
    for _ in range(2 * PER_BATCH):
        given.append(VALUE)
    [(first, _)] = given.drain()
    given.accumulator.reenqueue(first, given.now_ms)
    assert given.drain()[0].batch is first


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_batch_too_large_is_split(idempotent: bool) -> None:
    """P7: the parts go out instead, in order, and flush waits for them."""
    sequences = Sequences()
    given = Accumulating(
        batch_size=400,
        sequences=sequences if idempotent else None,
        retry_backoff_ms=0,
        retry_backoff_max_ms=0,
    )
    many = given.appender.append_many(
        "t",
        0,
        BulkRecords(
            [b"%03d" % number * 30 for number in range(20)], None, None, 5, batch_size=10_000
        ),
        given.cluster,
        0,
        given.now_ms,
    )
    later = given.append(b"later")
    [(big, values)] = given.drain()
    assert len(values) == 21
    results = given.accumulator.incomplete_results()
    count = given.accumulator.split_and_reenqueue(big)
    given.accumulator.complete_and_deallocate(big)
    assert count > 5
    assert given.pool.available_memory == given.pool.total_memory
    assert not results[0].done
    delivered = given.deliver_all()
    assert len(delivered) == count
    assert [value for _, values in delivered for value in values] == values
    assert len(sequences.tracked) == (1 + count if idempotent else 0)
    assert results[0].done
    assert [each.offset for each in many.result(0)] == list(range(20))
    assert later.result(0).offset == 20
    assert not given.accumulator.has_incomplete()
    assert given.pool.available_memory == given.pool.total_memory


def test_a_part_that_is_still_too_large_is_halved() -> None:
    """P7: until single records are left."""
    given = Accumulating(batch_size=2000, retry_backoff_ms=0, retry_backoff_max_ms=0)
    for _ in range(10):
        given.append(VALUE)
    [(big, _)] = given.drain()
    sizes = []
    while big.records_count > 1:
        sizes.append(given.accumulator.split_and_reenqueue(big))
        given.accumulator.complete_and_deallocate(big)
        [(big, _), *_] = given.drain()
    assert sizes[0] == 1
    assert len(sizes) < 8
    assert big.records_count == 1


# Ends


def test_expiry() -> None:
    """P5: delivery_timeout_ms counts in the queue too."""
    given = Accumulating(
        cluster_of({"t": 2}), delivery_timeout_ms=31_000, linger_ms=0, request_timeout_ms=30_000
    )
    accumulator = given.accumulator
    assert accumulator.next_expiry_ms == NEVER
    began = given.now_ms
    given.append(VALUE)
    given.clock.advance(10)
    given.append(VALUE, partition=1)
    assert accumulator.next_expiry_ms == began + 31_000
    given.clock.advance(30_989)
    assert accumulator.expired_batches(given.now_ms) == []
    given.clock.advance(1)
    [expired] = accumulator.expired_batches(given.now_ms)
    assert expired.topic_partition == TP
    assert accumulator.next_expiry_ms == began + 31_010
    expired.fail(ClientError("expired"))
    accumulator.complete_and_deallocate(expired)
    given.clock.advance(10)
    assert len(accumulator.expired_batches(given.now_ms)) == 1
    assert accumulator.next_expiry_ms == NEVER


def test_incomplete() -> None:
    given = Accumulating()
    assert not given.accumulator.has_incomplete()
    future = given.append(VALUE)
    assert given.accumulator.has_incomplete()
    assert given.accumulator.has_undrained()
    assert given.accumulator.incomplete_results() == [future.batch_result]
    [(batch, _)] = given.drain()
    assert not given.accumulator.has_undrained()
    assert given.accumulator.has_incomplete()
    batch.complete(0)
    given.accumulator.complete_batch(batch)
    assert not given.accumulator.has_incomplete()
    assert given.pool.available_memory < given.pool.total_memory
    for _ in range(2):
        given.accumulator.deallocate(batch)
        assert given.pool.available_memory == given.pool.total_memory


@pytest.mark.parametrize("idempotent", [True, False])
def test_abort_undrained(idempotent: bool) -> None:
    """P4: what was sent goes on."""
    given = Accumulating(sequences=Sequences() if idempotent else None)
    sent = given.append(VALUE)
    [(batch, _)] = given.drain()
    seen: list[KafkaError | None] = []
    waiting = given.appender.append(
        "t", 0, 1, None, VALUE, (), lambda _, error: seen.append(error), given.cluster, 0, 1000
    )
    error = ClientError("aborted")
    given.accumulator.abort_undrained(error)
    assert waiting.exception(0) is error
    assert seen == [error]
    assert not sent.done()
    assert not given.accumulator.has_undrained()
    batch.complete(3)
    given.accumulator.complete_and_deallocate(batch)
    assert given.pool.available_memory == given.pool.total_memory


def test_abort_incomplete() -> None:
    """P5: memory that a request still reads comes back with its answer."""
    given = Accumulating()
    futures = [given.append(VALUE)]
    [(batch, _)] = given.drain()
    batch.is_in_flight = True
    futures.append(given.append(VALUE))
    error = ClientError("closed")
    given.accumulator.abort_incomplete(error)
    assert [future.exception(0) for future in futures] == [error, error]
    assert not given.accumulator.has_incomplete()
    assert given.pool.available_memory == given.pool.total_memory - 16384
    batch.is_in_flight = False
    assert not batch.complete(0)
    given.accumulator.deallocate(batch)
    assert given.pool.available_memory == given.pool.total_memory


# Compression


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_grow_with_experience(codec: str) -> None:
    """P6: how well a topic compresses is learnt, so that batches come near to their size."""
    given = Accumulating(compression_type=codec, batch_size=2000, linger_ms=10_000)
    counts: list[int] = []
    for _ in range(6000):
        given.append(b"the same text again and again, the same text, again and again")
        if given.ready()[0]:
            [(batch, values)] = given.drain()
            counts.append(len(values))
            header = read_header(batch.close())
            verify(batch.close(), 0, header)
            assert header.compression.codec_name == codec
            batch.complete(0)
            given.accumulator.complete_and_deallocate(batch)
    assert (counts[-1] > 1.5 * counts[0]) is (codec != "none")
    given.deliver_all()
    assert given.pool.available_memory == given.pool.total_memory


def test_levels() -> None:
    """P6."""
    sizes = []
    text = b"".join(b"%d, " % (number * 7919) for number in range(3000))
    for level in (1, 22):
        given = Accumulating(compression_type="zstd", compression_zstd_level=level)
        given.append(text)
        [(batch, _)] = given.drain()
        sizes.append(len(batch.close()))
    assert sizes[0] > sizes[1]


# Threads


def test_many_threads_and_one_sender() -> None:
    """P5: nothing is lost, and every thread's records keep their order in a partition."""
    given = Accumulating(cluster_of({"t": 3}), buffer_memory=20 * 1000, batch_size=1000)
    stop = Event()
    futures: list[list[RecordFuture]] = [[] for _ in range(8)]
    per_thread = 1500

    def produce(thread: int) -> None:
        for number in range(per_thread):
            partition = number % 3 if thread % 2 else UNKNOWN_PARTITION
            value = b"%d %d" % (thread, number)
            futures[thread].append(given.append(value, partition=partition, max_block_ms=20_000))

    logs: defaultdict[int, list[bytes]] = defaultdict(list)

    def send() -> None:
        while not stop.is_set() or given.accumulator.has_incomplete():
            for batch, values in given.drain():
                log = logs[batch.topic_partition.partition]
                batch.complete(len(log))
                log += [value for value in values if value is not None]
                given.accumulator.complete_and_deallocate(batch)

    sender = Thread(target=send)
    threads = [Thread(target=produce, args=(number,)) for number in range(8)]
    for each in [sender, *threads]:
        each.start()
    for each in threads:
        each.join(60)
    stop.set()
    sender.join(60)
    assert not sender.is_alive()
    assert sum(map(len, logs.values())) == 8 * per_thread
    for log in logs.values():
        seen: defaultdict[int, int] = defaultdict(lambda: -1)
        for value in log:
            thread, number = map(int, value.split())
            assert number > seen[thread]
            seen[thread] = number
    for thread, made in enumerate(futures):
        assert len(made) == per_thread
        for number, future in enumerate(made):
            metadata = future.result(0)
            assert logs[metadata.partition][metadata.offset] == b"%d %d" % (thread, number)
    assert given.pool.available_memory == given.pool.total_memory
