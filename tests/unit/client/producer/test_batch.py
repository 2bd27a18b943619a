"""A producer's batch, from its first record to its end (P5, P6)."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.errors import ClientError, RecordTooLargeError
from penstock.client.producer.batch import ProducerBatch
from penstock.client.producer.compression_ratios import CompressionRatioEstimator
from penstock.client.producer.future import RecordFuture, RecordMetadata
from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition
from penstock.records.batch import HEADER_SIZE, read_header, verify
from penstock.records.compress import Compression
from penstock.records.read import read_records
from tests.support.storage.batch_builder import BatchBuilder
from tests.support.storage.batches import golden, golden_records, header_lists, payloads

TP = TopicPartition("t", 0)
T = 1_700_000_000_000
V2 = golden("v2")

codecs = st.sampled_from(Compression)


def batch_of(size: int = 16384, **options: object) -> ProducerBatch:
    compression = options.get("compression", Compression.NONE)
    assert isinstance(compression, Compression)
    return ProducerBatch(TP, bytearray(size), 1000, compression=compression)


def add(batch: ProducerBatch, value: bytes, number: int = 0) -> RecordFuture:
    future = batch.append(T + number, None, value, (), None, 1000)
    assert future is not None
    return future


def values(batch: ProducerBatch) -> list[bytes | None]:
    return [record.value for record in read_records(batch.close())]


@pytest.mark.parametrize("codec", ["plain", "snappy"])
def test_the_bytes_of_kafka(codec: str) -> None:
    """P6: byte for byte the same as Kafka's builder."""
    compression = Compression.NONE if codec == "plain" else Compression.from_name(codec)
    batch = batch_of(compression=compression)
    for record in golden_records(range(5)):
        assert batch.append(record.timestamp, record.key, record.value, record.headers, None, 1)
    assert batch.close() == V2[codec]


rows = st.lists(
    st.tuples(st.integers(-1, 2**45), payloads, payloads, header_lists), min_size=1, max_size=8
)
producers = st.none() | st.tuples(
    st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1), st.booleans()
)


@given(rows, codecs, st.integers(0, 2000), st.sampled_from([0.2, 1.0]), producers)
def test_the_same_bytes_as_the_builder(
    records: list[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]],
    codec: Compression,
    limit: int,
    ratio: float,
    producer: tuple[int, int, int, bool] | None,
) -> None:
    """P6: also when the records are larger than the block, compressed or not."""
    builder = BatchBuilder(write_limit=limit, compression=codec, compression_ratio=ratio)
    batch = ProducerBatch(TP, bytearray(limit), 1, compression=codec, estimated_ratio=ratio)
    for record in records:
        fits = builder.append(*record)
        future = batch.append(*record, None, 1)
        assert (future is not None) == fits
        assert batch.is_full == builder.is_full
        assert batch.size_in_bytes == builder.estimated_size
    if producer is None:
        expected = builder.close()
    else:
        batch.set_producer_state(*producer)
        producer_id, epoch, sequence, transactional = producer
        expected = builder.close(
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=transactional,
        )
    assert batch.close() == expected
    assert batch.close() == expected
    assert batch.size_in_bytes == len(expected)
    assert batch.is_closed
    assert batch.append(1, None, b"", (), None, 1) is None
    packed = len(expected) - HEADER_SIZE
    if codec is not Compression.NONE:
        assert batch.compression_ratio == packed / (builder.uncompressed_size - HEADER_SIZE)
    assert batch.take_block() is not None


def test_uncompressed_bytes_are_the_block_itself() -> None:
    """P5: nothing is copied."""
    block = bytearray(16384)
    batch = ProducerBatch(TP, block, 1)
    add(batch, b"value")
    finished = batch.close()
    assert finished.obj is block
    assert batch.take_block() is block
    assert batch.take_block() is None


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
def test_new_producer_state(compression: Compression) -> None:
    """P3: id, epoch, sequence and CRC are written again; the records stay."""
    batch = batch_of(compression=compression)
    for number in range(3):
        add(batch, b"v" * 50, number)
    assert not batch.has_sequence
    batch.set_producer_state(5, 1, 2**31 - 2, True)
    assert batch.last_sequence == 0
    before = bytes(batch.close())
    with pytest.raises(ValueError, match="can only be reset"):
        batch.set_producer_state(5, 1, 7, True)
    batch.reset_producer_state(6, 0, 40)
    assert batch.reopened
    after = batch.close()
    assert not batch.reopened
    header = read_header(after)
    verify(after, 0, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (6, 0, 40)
    assert header.is_transactional
    assert after[HEADER_SIZE:] == before[HEADER_SIZE:]


def test_an_empty_batch_cannot_be_closed() -> None:
    with pytest.raises(ValueError, match="needs a record"):
        batch_of().close()


Delivery = tuple[int, RecordMetadata | None, KafkaError | None]


def with_callbacks(batch: ProducerBatch, count: int) -> tuple[list[RecordFuture], list[Delivery]]:
    """Records of ten bytes; callbacks of all but every fourth."""
    deliveries: list[Delivery] = []
    futures: list[RecordFuture] = []
    for number in range(count):

        def note(
            metadata: RecordMetadata | None, error: KafkaError | None, number: int = number
        ) -> None:
            deliveries.append((number, metadata, error))

        callback = None if number % 4 == 3 else note
        future = batch.append(T + number, b"k", b"%010d" % number, (), callback, 1)
        assert future is not None
        futures.append(future)
    return futures, deliveries


def test_callbacks_in_order_before_the_futures() -> None:
    """P5: callbacks can use futures, and run before waiters are notified."""
    batch = batch_of()
    futures, deliveries = with_callbacks(batch, 5)
    order: list[int] = []
    last = batch.append(
        T, None, b"", (), lambda metadata, error: order.append(futures[0].result(0).offset), 1
    )
    assert last is not None
    last.add_done_callback(lambda future: order.append(len(deliveries)))
    assert batch.complete(100, -1)
    assert [number for number, _, _ in deliveries] == [0, 1, 2, 4]
    assert deliveries[2] == (2, RecordMetadata("t", 0, 102, T + 2, 1, 10), None)
    assert order == [100, 4]
    assert batch.is_done


def test_an_exception_in_a_callback_has_no_other_effect(caplog: pytest.LogCaptureFixture) -> None:
    """P5."""
    batch = batch_of()

    def fails(metadata: RecordMetadata | None, error: KafkaError | None) -> None:
        raise RuntimeError("mine")

    batch.append(T, None, b"x", (), fails, 1)
    futures, deliveries = with_callbacks(batch, 2)
    with caplog.at_level(logging.ERROR):
        assert batch.complete(7, 99)
    assert "on_delivery of a record for t-0 failed" in caplog.text
    assert [metadata and metadata.offset for _, metadata, _ in deliveries] == [8, 9]
    assert futures[1].result(0).timestamp == 99


def test_failing() -> None:
    batch = batch_of()
    futures, deliveries = with_callbacks(batch, 3)
    error, own = ClientError("batch"), ClientError("own")
    assert batch.fail(error, {1: own})
    assert [(number, failure) for number, _, failure in deliveries] == [
        (0, error),
        (1, own),
        (2, error),
    ]
    assert futures[1].exception(0) is own
    assert not batch.complete(5), "it failed before the response arrived"
    assert not batch.fail(own)
    assert not batch.abort(own)
    assert futures[0].exception(0) is error


def test_an_acknowledged_batch_cannot_fail() -> None:
    batch = batch_of()
    add(batch, b"v")
    batch.complete(5)
    with pytest.raises(ValueError, match="was acknowledged"):
        batch.fail(ClientError("late"))
    with pytest.raises(ValueError, match="was acknowledged"):
        batch.complete(5)


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
def test_split(compression: Compression) -> None:
    """P7: a batch that is too large for the broker is split as in Kafka."""
    batch = batch_of(compression=compression)
    futures, deliveries = with_callbacks(batch, 20)
    large = batch.append(T, None, b"x" * 500, (("h", b"1"),), None, 1)
    assert large is not None
    batch.set_producer_state(5, 1, 2**31 - 3, False)
    batch.close()
    parts = batch.split(150)
    assert batch.is_done
    assert len(parts) > 3
    assert [value for part in parts for value in values(part)] == [
        *(b"%010d" % number for number in range(20)),
        b"x" * 500,
    ]
    sequence = 2**31 - 3
    offset = 1000
    for part in parts:
        assert part.is_split
        assert part.created_ms == batch.created_ms
        assert (part.producer_id, part.producer_epoch) == (5, 1)
        assert part.base_sequence == sequence & 0x7FFFFFFF
        sequence += part.records_count
        verify(part.close(), 0, read_header(part.close()))
        assert part.complete(offset)
        offset += part.records_count + 100
    assert batch.result.done
    assert [number for number, _, _ in deliveries] == [n for n in range(20) if n % 4 != 3]
    for number, metadata, _ in deliveries:
        assert metadata == futures[number].result(0)
    assert large.result(0).offset == offset - 101
    assert parts[0].records_count > 1


def test_a_batch_can_be_split_down_to_one_record() -> None:
    """P7: then a single record fails."""
    batch = batch_of()
    futures, deliveries = with_callbacks(batch, 3)
    halves = batch.split(0)
    assert [part.records_count for part in halves] == [1, 1, 1]
    again = halves[1].split(0)
    assert [part.records_count for part in again] == [1]
    error = RecordTooLargeError("still")
    again[0].fail(error)
    halves[2].complete(6)
    halves[0].complete(4)
    assert [future.exception(0) for future in futures] == [None, error, None]
    assert [(number, failure) for number, _, failure in deliveries] == [
        (1, error),
        (2, None),
        (0, None),
    ]
    assert batch.largest_record() >= 61 + 10


def test_times() -> None:
    batch = batch_of()
    assert batch.waited_time_ms(1500) == 500
    assert batch.waited_time_ms(900) == 0
    assert not batch.has_reached_delivery_timeout(500, 1499)
    assert batch.has_reached_delivery_timeout(500, 1500)
    batch.drained(1600)
    assert batch.queue_time_ms() == 600
    batch.reenqueued(2000)
    assert (batch.attempts, batch.in_retry, batch.waited_time_ms(2100)) == (1, True, 100)


def test_a_new_leader_needs_no_backoff() -> None:
    batch = batch_of()
    batch.update_leader_epoch(3)
    assert not batch.has_new_leader
    batch.reenqueued(1)
    batch.update_leader_epoch(3)
    batch.update_leader_epoch(-1)
    assert not batch.has_new_leader
    batch.update_leader_epoch(4)
    assert batch.has_new_leader
    batch.reenqueued(2)
    assert not batch.has_new_leader


def test_a_block_that_is_in_flight_is_not_reused() -> None:
    batch = batch_of()
    add(batch, b"v")
    finished = batch.close()
    batch.is_in_flight = True
    assert batch.take_block() is None
    assert values(batch) == [b"v"]
    assert bytes(finished[-2:]) == b"v\x00"


def test_compression_ratios() -> None:
    """P6: estimated per topic, as in Kafka."""
    ratios = CompressionRatioEstimator()
    assert ratios.estimate("t") == 1.0
    ratios.observe("t", 0.3)
    assert ratios.estimate("t") == pytest.approx(0.995)
    for _ in range(300):
        ratios.observe("t", 0.3)
    assert ratios.estimate("t") == pytest.approx(0.3)
    ratios.observe("t", 0.31)
    assert ratios.estimate("t") == pytest.approx(0.35)
    ratios.observe("t", 0.9)
    assert ratios.estimate("t") == 0.9
    ratios.observe("t", 0.9)
    assert ratios.estimate("t") == 0.9
    ratios.reset("t", 1.2)
    assert ratios.estimate("t") == 1.2
    ratios.reset("t", 0.5)
    assert ratios.estimate("t") == 1.0
    assert ratios.estimate("other") == 1.0
