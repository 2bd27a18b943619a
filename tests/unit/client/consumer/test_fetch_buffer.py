"""Fetched data that waits for poll: seeks, pauses, errors, order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.consumer.completed_fetch import CompletedFetch, FetchConfig
from penstock.client.consumer.fetch_buffer import FetchBuffer
from penstock.client.consumer.fetcher import end_of_chain
from penstock.client.consumer.interceptors import ConsumerInterceptor, Interceptors
from penstock.client.consumer.positions import FetchPosition, parse_offset_reset
from penstock.client.consumer.record import ConsumerRecord, OffsetAndMetadata
from penstock.client.consumer.subscription_state import SubscriptionState
from penstock.client.errors import AuthorizationError, ConfigError
from penstock.core.errors import CorruptRecordError, ErrorCode, KafkaError, OffsetOutOfRangeError
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.fetch import FetchPartitionData
from penstock.records.arrow import ArrowDecoder
from penstock.records.build import build_batch
from penstock.records.record import Record

A, B = TopicPartition("a", 0), TopicPartition("b", 1)


def data(first: int, count: int) -> bytes:
    records = [Record(first + index, 0, None, b"v") for index in range(count)]
    return bytes(build_batch(records, base_offset=first, partition_leader_epoch=4))


def fetch(partition: TopicPartition, first: int, count: int) -> CompletedFetch:
    response = FetchPartitionData(records=data(first, count))
    return CompletedFetch(partition, first, response, FetchConfig())


def failed(partition: TopicPartition, offset: int, code: ErrorCode) -> CompletedFetch:
    return CompletedFetch(partition, offset, FetchPartitionData(error_code=code), FetchConfig())


class Reader:
    """A buffer of two partitions that are assigned and at offset 0."""

    def __init__(self, reset: str = "earliest") -> None:
        self.subscriptions = SubscriptionState(parse_offset_reset(reset))
        self.subscriptions.assign_from_user([A, B])
        for partition in (A, B):
            self.subscriptions.seek_validated(partition, FetchPosition(0))
        self.buffer = FetchBuffer(self.subscriptions)
        self.space_events = 0
        self.buffer.on_space = self.count_space_event

    def count_space_event(self) -> None:
        self.space_events += 1

    def poll(self, limit: int = 100) -> list[tuple[str, int]]:
        return [(item.topic, item.offset) for item in self.buffer.collect(limit)]

    def offset(self, partition: TopicPartition) -> int:
        position = self.subscriptions.valid_position(partition)
        assert position is not None
        return position.offset


def test_limits_and_positions() -> None:
    reader = Reader()
    reader.buffer.add(fetch(A, 0, 3))
    reader.buffer.add(fetch(B, 0, 2))
    reader.buffer.add(fetch(A, 3, 1))
    assert reader.poll(2) == [("a", 0), ("a", 1)]
    assert (reader.offset(A), reader.space_events) == (2, 0)
    assert reader.poll(3) == [("a", 2), ("b", 0), ("b", 1)]
    assert reader.subscriptions.valid_position(A) == FetchPosition(3, 4)
    assert reader.poll() == [("a", 3)]
    assert reader.buffer.size == 0
    assert reader.space_events > 0
    assert reader.poll() == []


def test_a_seek_drops_fetched_data() -> None:
    reader = Reader()
    reader.buffer.add(fetch(A, 0, 3))
    reader.buffer.add(fetch(A, 3, 3))
    reader.poll(1)
    reader.subscriptions.seek_validated(A, FetchPosition(0))
    assert reader.poll() == []
    assert reader.buffer.size == 0
    reader.buffer.add(fetch(A, 0, 2))
    assert reader.poll() == [("a", 0), ("a", 1)]


def test_a_seek_within_fetched_data_uses_it() -> None:
    reader = Reader()
    reader.buffer.add(fetch(A, 0, 3))
    reader.buffer.add(fetch(A, 3, 2))
    reader.subscriptions.seek_validated(A, FetchPosition(3))
    assert reader.poll() == [("a", 3), ("a", 4)]


def test_paused_partitions_keep_fetched_data() -> None:
    reader = Reader()
    reader.buffer.add(fetch(A, 0, 2))
    reader.buffer.add(fetch(B, 0, 1))
    reader.buffer.add(fetch(A, 2, 1))
    reader.subscriptions.pause(A)
    assert reader.poll() == [("b", 0)]
    reader.subscriptions.resume(A)
    assert reader.poll() == [("a", 0), ("a", 1), ("a", 2)]


def test_data_of_removed_partitions_is_dropped() -> None:
    reader = Reader()
    reader.buffer.add(fetch(A, 0, 2))
    reader.subscriptions.assign_from_user([B])
    assert reader.poll() == []
    assert reader.buffer.size == 0


def test_data_of_partitions_that_await_a_reset_is_dropped() -> None:
    reader = Reader()
    reader.buffer.add(fetch(A, 0, 2))
    reader.subscriptions.request_offset_reset(A)
    assert reader.poll() == []
    assert reader.buffer.by_partition() == {}


def test_arrow_collects_complete_fetches() -> None:
    reader = Reader()
    for item in (fetch(A, 0, 3), fetch(B, 0, 2), fetch(A, 3, 2)):
        reader.buffer.add(item)
    decoder = ArrowDecoder()
    assert reader.buffer.collect_arrow(decoder, 4) == [(A, 3), (B, 2)]
    assert decoder.finish().num_rows == 5
    assert (reader.offset(A), reader.offset(B)) == (3, 2)
    assert reader.buffer.collect_arrow(decoder, 100) == [(A, 2)]


# --- errors


def test_an_offset_out_of_range_resets_the_position() -> None:
    reader = Reader()
    reader.buffer.add(failed(A, 0, ErrorCode.OFFSET_OUT_OF_RANGE))
    assert reader.poll() == []
    assert reader.subscriptions.partitions_needing_reset(0) == [A]


def test_an_offset_out_of_range_without_a_policy_is_an_error() -> None:
    """The position stays, so the next poll raises it again."""
    reader = Reader("none")
    for _ in range(2):
        reader.buffer.add(failed(A, 0, ErrorCode.OFFSET_OUT_OF_RANGE))
        with pytest.raises(OffsetOutOfRangeError, match=r"offset 0 of a-0 .*seek\(\)"):
            reader.poll()
    assert reader.offset(A) == 0


def test_an_offset_out_of_range_on_a_follower_returns_to_the_leader() -> None:
    reader = Reader("none")
    reader.subscriptions.set_preferred_replica(A, 7, 1000)
    reader.buffer.add(failed(A, 0, ErrorCode.OFFSET_OUT_OF_RANGE))
    assert reader.poll() == []
    assert reader.offset(A) == 0
    assert reader.subscriptions.preferred_replica(A, 0) == -1


def test_a_seek_drops_the_error_of_the_old_offset() -> None:
    reader = Reader("none")
    reader.buffer.add(failed(A, 0, ErrorCode.OFFSET_OUT_OF_RANGE))
    reader.subscriptions.seek_validated(A, FetchPosition(5))
    assert reader.poll() == []


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, AuthorizationError, "ACL READ"),
        (ErrorCode.CORRUPT_MESSAGE, CorruptRecordError, "offset 0 of a-0 is corrupt"),
        (ErrorCode.INVALID_REQUEST, KafkaError, "offset 0 of a-0"),
    ],
)
def test_errors_of_brokers(code: ErrorCode, kind: type[KafkaError], message: str) -> None:
    """E3."""
    reader = Reader()
    reader.buffer.add(failed(A, 0, code))
    with pytest.raises(kind, match=message):
        reader.poll()


def test_errors_are_raised_after_earlier_records_were_returned() -> None:
    reader = Reader()
    reader.buffer.add(fetch(B, 0, 2))
    reader.buffer.add(failed(A, 0, ErrorCode.CORRUPT_MESSAGE))
    assert reader.poll() == [("b", 0), ("b", 1)]
    with pytest.raises(CorruptRecordError):
        reader.poll()


def test_a_corrupt_batch_is_fetched_again() -> None:
    reader = Reader()
    bytes_ = bytearray(data(0, 2))
    bytes_[-1] ^= 1
    response = FetchPartitionData(records=bytes(bytes_))
    reader.buffer.add(CompletedFetch(A, 0, response, FetchConfig()))
    reader.buffer.add(fetch(A, 2, 2))
    with pytest.raises(CorruptRecordError, match="a-0 cannot be read from offset 0"):
        reader.poll()
    assert reader.poll() == []
    assert reader.offset(A) == 0
    reader.buffer.add(fetch(A, 0, 2))
    assert reader.poll() == [("a", 0), ("a", 1)]


# --- fetching ahead


def test_the_next_fetch_offset_follows_the_buffered_fetches() -> None:
    assert end_of_chain(5, []) == (5, 0)
    assert end_of_chain(0, [fetch(A, 0, 3), fetch(A, 3, 2)]) == (5, 2)
    assert end_of_chain(1, [fetch(A, 0, 3)]) == (3, 1)
    assert end_of_chain(9, [fetch(A, 0, 3), fetch(A, 3, 2)]) == (9, 0)
    assert end_of_chain(3, [fetch(A, 7, 3), fetch(A, 3, 2)]) == (5, 1)
    assert end_of_chain(0, [fetch(A, 0, 3), failed(A, 3, ErrorCode.CORRUPT_MESSAGE)]) == (3, -1)
    assert end_of_chain(0, [failed(A, 9, ErrorCode.CORRUPT_MESSAGE)]) == (0, 0)


@given(
    st.lists(
        st.tuples(st.sampled_from(["fetch", "poll", "seek", "pause"]), st.integers(0, 9)),
        max_size=60,
    )
)
def test_records_are_returned_in_order_in_any_history(history: list[tuple[str, int]]) -> None:
    """A log of 30 records, fetched ahead of a reader that seeks and pauses at random."""
    reader = Reader()
    expected = 0
    for step, number in history:
        if step == "fetch":
            offset, waiting = end_of_chain(
                reader.offset(A), reader.buffer.by_partition().get(A, [])
            )
            if 0 <= waiting < 2 and offset < 30:
                reader.buffer.add(fetch(A, offset, min(3, 30 - offset)))
        elif step == "seek":
            reader.subscriptions.seek_validated(A, FetchPosition(number * 3))
            expected = number * 3
        elif step == "pause":
            (reader.subscriptions.pause if number % 2 else reader.subscriptions.resume)(A)
        else:
            records = reader.poll(number + 1)
            assert records == [("a", expected + index) for index in range(len(records))]
            assert not (records and reader.subscriptions.is_paused(A))
            expected += len(records)
        assert reader.offset(A) == expected
    # All records are returned in the end.
    reader.subscriptions.resume(A)
    for _ in range(100):
        offset, waiting = end_of_chain(reader.offset(A), reader.buffer.by_partition().get(A, []))
        if waiting < 2 and offset < 30:
            reader.buffer.add(fetch(A, offset, min(3, 30 - offset)))
        reader.poll()
    assert reader.offset(A) == 30


# --- interceptors


class Upper(ConsumerInterceptor):
    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        return [record._replace(value=record.value.upper()) for record in records]


class Broken(ConsumerInterceptor):
    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        raise RuntimeError("no good")

    def on_commit(self, offsets: object) -> None:
        raise RuntimeError("no good")


def test_interceptors_change_records_and_their_errors_are_ignored() -> None:
    interceptors = Interceptors([Upper, Broken()])
    record = ConsumerRecord("t", 0, 0, 0, 0, None, b"v")
    assert [item.value for item in interceptors.on_consume([record])] == [b"V"]
    interceptors.on_commit({A: OffsetAndMetadata(1)})
    interceptors.close()
    assert not Interceptors([])
    with pytest.raises(ConfigError, match="no ConsumerInterceptor"):
        Interceptors([object()])
