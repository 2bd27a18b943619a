"""The consumer with manually assigned partitions (C1, C2, C5)."""

import threading
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

from penstock.client.consumer.deserializers import StringDeserializer
from penstock.client.consumer.interceptors import ConsumerInterceptor
from penstock.client.consumer.record import ConsumerRecord, OffsetAndMetadata, OffsetAndTimestamp
from penstock.client.errors import (
    ConcurrentUseError,
    ConfigError,
    IllegalStateError,
    NoOffsetForPartitionError,
    SerializationError,
    UnknownTopicError,
    WakeupError,
)
from penstock.core.errors import OffsetOutOfRangeError
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest
from penstock.records.compress import Compression
from tests.support.broker.in_process import RunningBroker, WireClient
from tests.support.client.own_consumer import at, consumer_of, polled, until, values
from tests.support.protocol.requests import NOW, batch_of, make_topic, produce_values, send_batch


@pytest.fixture
def topic(client: WireClient, request: pytest.FixtureRequest) -> str:
    """A topic with two partitions; the first has the values a to d, the second e and f."""
    name = request.node.name.replace("[", "-").replace("]", "")
    make_topic(client, name, 2)
    produce_values(client, name, b"a", b"b")
    produce_values(client, name, b"c", b"d")
    produce_values(client, name, b"e", b"f", partition=1)
    return str(name)


def delete_before(client: WireClient, topic: str, offset: int) -> None:
    deletion = DeleteRecordsTopic(topic, [DeleteRecordsPartition(0, offset)])
    response = client.request(DeleteRecordsRequest([deletion], 5000), 2)
    assert response.topics[0].partitions[0].error_code == 0


# --- reading


def test_all_records_of_all_partitions_are_polled(broker: RunningBroker, topic: str) -> None:
    with consumer_of(broker) as consumer:
        consumer.assign([at(topic), at(topic, 1)])
        records = polled(consumer, 6)
        assert sorted(values(records)) == [b"a", b"b", b"c", b"d", b"e", b"f"]
        assert values([record for record in records if record.partition == 0]) == [
            b"a",
            b"b",
            b"c",
            b"d",
        ]
        assert records[0].timestamp == NOW
        assert {record.topic for record in records} == {topic}
        assert consumer.assignment() == {at(topic), at(topic, 1)}
        assert consumer.subscription() == set()


def test_max_poll_records_limits_a_poll(broker: RunningBroker, topic: str) -> None:
    with consumer_of(broker, max_poll_records=3) as consumer:
        consumer.assign([at(topic)])
        sizes: list[int] = []
        until(lambda: sum(sizes) == 4, lambda: sizes.append(len(consumer.poll(1.0))))
        assert [size for size in sizes if size] == [3, 1]
        consumer.seek(at(topic), 0)
        assert values(polled(consumer, 4, at_once=1)) == [b"a", b"b", b"c", b"d"]


def test_polling_an_empty_topic_sends_few_requests(
    broker: RunningBroker, client: WireClient, topic: str
) -> None:
    """C1: a fetch waits at the broker, so few requests are sent while there is no data."""
    with consumer_of(broker, fetch_max_wait_ms=200, auto_offset_reset="latest") as consumer:
        consumer.assign([at(topic)])
        consumer.position(at(topic))
        previous = fetches(consumer.metrics())
        start = time.process_time()
        assert consumer.poll(0.6) == []
        assert fetches(consumer.metrics()) - previous <= 5
        assert time.process_time() - start < 0.3
        timer = threading.Timer(0.05, lambda: produce_values(client, topic, b"late"))
        timer.start()
        started = time.monotonic()
        assert values(consumer.poll(5.0)) == [b"late"]
        assert time.monotonic() - started < 2.0
        timer.join()


def fetches(metrics: object) -> float:
    assert isinstance(metrics, dict)
    return float(sum(value for name, value in metrics.items() if name.name == "fetch-total"))


def test_a_fetch_without_a_wait_causes_no_busy_loop(broker: RunningBroker, topic: str) -> None:
    """C1."""
    with consumer_of(broker, fetch_max_wait_ms=0, auto_offset_reset="latest") as consumer:
        consumer.assign([at(topic)])
        consumer.position(at(topic))
        previous = fetches(consumer.metrics())
        consumer.poll(0.3)
        assert fetches(consumer.metrics()) - previous <= 35


def test_iteration_advances_the_position_per_record(broker: RunningBroker, topic: str) -> None:
    with consumer_of(broker) as consumer:
        consumer.assign([at(topic)])
        observed = []
        for record in consumer:
            observed.append(record.value)
            if record.value == b"b":
                break
        assert observed == [b"a", b"b"]
        assert consumer.position(at(topic)) == 2
        assert values(polled(consumer, 2)) == [b"c", b"d"]


def test_a_seek_during_iteration(broker: RunningBroker, topic: str) -> None:
    with consumer_of(broker) as consumer:
        consumer.assign([at(topic)])
        observed: list[bytes] = []
        for record in consumer:
            observed.append(record.value)
            if len(observed) == 2:
                consumer.seek(at(topic), 0)
            if len(observed) == 5:
                break
        assert observed == [b"a", b"b", b"a", b"b", b"c"]


@pytest.mark.parametrize("codec", list(Compression))
def test_compressed_batches_are_read(
    broker: RunningBroker, client: WireClient, topic: str, codec: Compression
) -> None:
    assert send_batch(client, topic, batch_of(b"x" * 500, b"y", codec=codec)).error_code == 0
    with consumer_of(broker) as consumer:
        consumer.assign([at(topic)])
        assert values(polled(consumer, 6))[4:] == [b"x" * 500, b"y"]


def test_a_batch_larger_than_the_fetch_size_is_read(
    broker: RunningBroker, client: WireClient, topic: str
) -> None:
    produce_values(client, topic, b"z" * 50_000)
    with consumer_of(broker, max_partition_fetch_bytes=100, fetch_max_bytes=200) as consumer:
        consumer.assign([at(topic), at(topic, 1)])
        assert sorted(map(len, values(polled(consumer, 7)))) == [1] * 6 + [50_000]


def test_records_are_polled_as_arrow(broker: RunningBroker, topic: str) -> None:
    with consumer_of(broker) as consumer:
        consumer.assign([at(topic), at(topic, 1)])
        batches: list[pa.RecordBatch] = []

        def poll() -> None:
            batches.append(consumer.poll_arrow(1.0))

        until(lambda: sum(batch.num_rows for batch in batches) >= 6, poll)
        table = pa.Table.from_batches([batch.select(range(6)) for batch in batches])
        rows = sorted(table.to_pylist(), key=lambda row: (row["partition"], row["offset"]))
        assert [row["value"] for row in rows] == [b"a", b"b", b"c", b"d", b"e", b"f"]
        assert {row["topic"] for row in rows} == {topic}
        assert [row["offset"] for row in rows] == [0, 1, 2, 3, 0, 1]
        assert consumer.position(at(topic)) == 4
        empty = consumer.poll_arrow(0.0)
        assert (empty.num_rows, empty.schema.names[:6]) == (0, table.schema.names)


def test_deserializers_and_interceptors(broker: RunningBroker, topic: str) -> None:
    class UpperCase(ConsumerInterceptor):
        def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
            return [record._replace(value=record.value.upper()) for record in records]

    with consumer_of(
        broker, value_deserializer=StringDeserializer, interceptors=[UpperCase]
    ) as consumer:
        consumer.assign([at(topic)])
        assert [item.value for item in polled(consumer, 4)] == ["A", "B", "C", "D"]
    with consumer_of(broker, value_deserializer=int) as consumer:
        consumer.assign([at(topic)])
        for _ in range(2):
            with pytest.raises(SerializationError, match=f"offset 0 of {topic}-0"):
                polled(consumer, 1)
        consumer.seek(at(topic), 4)
        assert consumer.poll(0.0) == []


# --- positions


def test_seek_pause_and_resume(broker: RunningBroker, client: WireClient, topic: str) -> None:
    """C5."""
    with consumer_of(broker) as consumer:
        consumer.assign([at(topic), at(topic, 1)])
        polled(consumer, 6)
        consumer.seek(at(topic), 1)
        assert values(polled(consumer, 3)) == [b"b", b"c", b"d"]
        consumer.seek_to_beginning([at(topic)])
        consumer.pause([at(topic)])
        assert consumer.paused() == {at(topic)}
        produce_values(client, topic, b"g", partition=1)
        assert values(polled(consumer, 1)) == [b"g"]
        consumer.resume([at(topic)])
        assert values(polled(consumer, 4)) == [b"a", b"b", b"c", b"d"]
        consumer.seek_to_end()
        assert consumer.position(at(topic)) == 4
        assert consumer.position(at(topic, 1)) == 3
        consumer.seek(at(topic), OffsetAndMetadata(2, leader_epoch=0))
        assert values(polled(consumer, 2)) == [b"c", b"d"]


def test_positions_offsets_and_lag_of_a_partition(broker: RunningBroker, topic: str) -> None:
    """C2: position, high watermark, beginning and end offsets, lag."""
    with consumer_of(broker) as consumer:
        consumer.assign([at(topic)])
        assert consumer.position(at(topic)) == 0
        assert consumer.beginning_offsets([at(topic), at(topic, 1)]) == {
            at(topic): 0,
            at(topic, 1): 0,
        }
        assert consumer.end_offsets([at(topic), at(topic, 1)]) == {at(topic): 4, at(topic, 1): 2}
        polled(consumer, 3, at_once=3)
        assert consumer.position(at(topic)) == 3
        assert consumer.current_lag(at(topic)) == 1
        assert tuple(consumer.watermarks(at(topic))) == (0, 4, 4)
        with pytest.raises(IllegalStateError, match="not assigned"):
            consumer.position(at(topic, 1))


def test_the_lag_of_a_partition_before_its_first_fetch(broker: RunningBroker, topic: str) -> None:
    """C2."""
    with consumer_of(broker) as consumer:
        consumer.assign([at(topic)])
        consumer.pause([at(topic)])
        consumer.position(at(topic))
        until(lambda: consumer.current_lag(at(topic)) == 4, lambda: consumer.poll(0.01))


def test_offsets_for_times(broker: RunningBroker, client: WireClient, topic: str) -> None:
    """C5."""
    send_batch(client, topic, batch_of(b"g", b"h", timestamp=NOW + 5000))
    with consumer_of(broker) as consumer:
        results = consumer.offsets_for_times({at(topic): NOW + 1000, at(topic, 1): NOW + 1000})
        assert results == {at(topic): OffsetAndTimestamp(4, NOW + 5000, 0), at(topic, 1): None}
        with pytest.raises(ValueError, match="negative"):
            consumer.offsets_for_times({at(topic): -1})


def test_auto_offset_reset_policies(broker: RunningBroker, client: WireClient, topic: str) -> None:
    with consumer_of(broker, auto_offset_reset="latest") as consumer:
        consumer.assign([at(topic)])
        assert consumer.position(at(topic)) == 4
    with consumer_of(broker, auto_offset_reset="by_duration:P1D") as consumer:
        # All records are older, so the position is the log end.
        consumer.assign([at(topic)])
        assert consumer.position(at(topic)) == 4
    with consumer_of(broker, auto_offset_reset="by_duration:P36500D") as consumer:
        consumer.assign([at(topic)])
        assert consumer.position(at(topic)) == 0
    with consumer_of(broker, auto_offset_reset="none") as consumer:
        consumer.assign([at(topic)])
        for _ in range(2):
            with pytest.raises(NoOffsetForPartitionError, match="auto_offset_reset is none"):
                polled(consumer, 1)
        consumer.seek(at(topic), 2)
        assert values(polled(consumer, 2)) == [b"c", b"d"]


def test_a_seek_clears_an_earlier_missing_offset_error(broker: RunningBroker, topic: str) -> None:
    """`assign` looks up the position at once, and its error may arrive before the seek."""
    with consumer_of(broker, auto_offset_reset="none") as consumer:
        consumer.assign([at(topic)])
        deadline = time.monotonic() + 20
        while not consumer._driver.errors and time.monotonic() < deadline:
            time.sleep(0.001)
        assert consumer._driver.errors
        consumer.seek(at(topic), 2)
        assert values(polled(consumer, 2)) == [b"c", b"d"]


def test_deleted_records_reset_the_position(
    broker: RunningBroker, client: WireClient, topic: str
) -> None:
    delete_before(client, topic, 3)
    with consumer_of(broker) as consumer:
        consumer.assign([at(topic)])
        consumer.seek(at(topic), 1)
        assert values(polled(consumer, 1)) == [b"d"]
        assert consumer.beginning_offsets([at(topic)]) == {at(topic): 3}
    with consumer_of(broker, auto_offset_reset="none") as consumer:
        consumer.assign([at(topic)])
        consumer.seek(at(topic), 1)
        for _ in range(2):
            with pytest.raises(OffsetOutOfRangeError, match=f"offset 1 of {topic}-0"):
                polled(consumer, 1)
        assert consumer.position(at(topic)) == 1


def test_offset_lookups_do_not_wait_for_a_fetch(broker: RunningBroker, topic: str) -> None:
    """Responses on a connection are in order, and a fetch at the log end waits for records."""
    with consumer_of(broker, fetch_max_wait_ms=60_000) as consumer:
        consumer.assign([at(topic)])
        assert len(polled(consumer, 4)) == 4
        assert consumer.poll(0.05) == []
        assert consumer.end_offsets([at(topic)], timeout=20.0) == {at(topic): 4}


# --- topics


def test_topics_and_partitions(broker: RunningBroker, topic: str) -> None:
    with consumer_of(broker) as consumer:
        results = consumer.partitions_for(topic)
        assert [(partition.partition, partition.leader) for partition in results] == [
            (0, 0),
            (1, 0),
        ]
        topics = consumer.list_topics()
        assert [info.partition for info in topics[topic]] == [0, 1]


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    return {"auto.create.topics.enable": "false"}


def test_unknown_topics_raise_errors(broker: RunningBroker, topic: str) -> None:
    """E5."""
    with consumer_of(broker) as consumer:
        with pytest.raises(UnknownTopicError, match="nowhere"):
            consumer.partitions_for("nowhere", timeout=0.3)
        with pytest.raises(UnknownTopicError, match="has 2 partitions"):
            consumer.end_offsets([at(topic, 7)], timeout=5.0)
        consumer.assign([at("nowhere"), at(topic)])
        with pytest.raises(UnknownTopicError, match=r"nowhere-0.*create the topic"):
            until(lambda: False, lambda: consumer.poll(1.0))
        assert consumer.position(at(topic)) == 4


def test_a_topic_that_is_created_later_is_read(
    broker: RunningBroker, client: WireClient, topic: str
) -> None:
    with consumer_of(broker, metadata_max_age_ms=100) as consumer:
        late = f"{topic}-late"
        consumer.assign([at(late)])
        assert consumer.poll(0.05) == []
        make_topic(client, late)
        produce_values(client, late, b"at last")
        assert values(polled(consumer, 1)) == [b"at last"]


def test_a_recreated_topic_is_read_from_its_start(
    broker: RunningBroker, client: WireClient, topic: str
) -> None:
    """The new topic has another id, so the fetch position is reset."""
    with consumer_of(broker) as consumer:
        consumer.assign([at(topic)])
        polled(consumer, 4)
        client.request(DeleteTopicsRequest(topic_names=[topic], timeout_ms=5000), 5)
        make_topic(client, topic, 1)
        produce_values(client, topic, b"new")
        assert values(polled(consumer, 1)) == [b"new"]


# --- threads and close


def test_concurrent_use_raises_an_error(broker: RunningBroker, topic: str) -> None:
    """C5."""
    with consumer_of(broker, auto_offset_reset="latest") as consumer:
        consumer.assign([at(topic)])
        started = threading.Event()
        woken: list[BaseException] = []

        def poll() -> None:
            started.set()
            try:
                consumer.poll(30.0)
            except WakeupError as error:
                woken.append(error)

        thread = threading.Thread(target=poll)
        thread.start()
        started.wait(60)
        errors: list[ConcurrentUseError] = []

        def use() -> None:
            try:
                consumer.seek(at(topic), 0)
            except ConcurrentUseError as error:
                errors.append(error)

        until(lambda: bool(errors), use)
        assert "a consumer of its own" in errors[0].message
        consumer.wakeup()
        thread.join(10)
        assert len(woken) == 1
        consumer.seek(at(topic), 0)
        assert len(polled(consumer, 4)) == 4


def test_a_wakeup_before_the_poll_interrupts_it(broker: RunningBroker, topic: str) -> None:
    with consumer_of(broker) as consumer:
        consumer.assign([at(topic)])
        consumer.wakeup()
        with pytest.raises(WakeupError):
            consumer.poll(1.0)
        assert len(polled(consumer, 4)) == 4


def test_calls_that_need_a_group_or_a_subscription(broker: RunningBroker, topic: str) -> None:
    with consumer_of(broker) as consumer:
        with pytest.raises(IllegalStateError, match="nothing to poll"):
            consumer.poll()
        with pytest.raises(IllegalStateError, match="give it a group_id"):
            consumer.subscribe([topic])
        with pytest.raises(IllegalStateError, match="give it a group_id"):
            consumer.commit()
        with pytest.raises(ValueError, match="offsets start at 0"):
            consumer.seek(at(topic), -5)
    consumer.close()
    with pytest.raises(IllegalStateError, match="closed"):
        consumer.poll()


def test_invalid_settings_raise_config_errors(broker: RunningBroker) -> None:
    with pytest.raises(ConfigError, match="auto_offset_reset"):
        consumer_of(broker, auto_offset_reset="sometimes")
    with pytest.raises(ConfigError, match="value_deserializer"):
        consumer_of(broker, value_deserializer=7)


def test_unsubscribe_removes_the_assignment(broker: RunningBroker, topic: str) -> None:
    with consumer_of(broker) as consumer:
        consumer.assign([at(topic)])
        polled(consumer, 4)
        consumer.unsubscribe()
        assert consumer.assignment() == set()
        consumer.assign([at(topic, 1)])
        assert values(polled(consumer, 2)) == [b"e", b"f"]


@pytest.fixture(autouse=True)
def no_threads_left() -> Iterator[None]:
    yield
    assert not [item for item in threading.enumerate() if item.name.startswith("penstock-consumer")]


def test_partitions_can_be_given_as_tuples(broker: RunningBroker, topic: str) -> None:
    with consumer_of(broker) as consumer:
        consumer.assign([(topic, 1)])
        assert consumer.assignment() == {TopicPartition(topic, 1)}
        assert values(polled(consumer, 2)) == [b"e", b"f"]
