"""C1, C2, C5: our consumer on Apache Kafka; another client writes the records."""

from collections.abc import Callable, Iterator

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from penstock.client.consumer.consumer import Consumer
from penstock.client.consumer.record import ConsumerRecord, OffsetAndMetadata
from penstock.core.errors import OffsetOutOfRangeError
from penstock.core.ids import TopicPartition
from tests.support.client.own_consumer import at, consumer_of, polled, until, values
from tests.support.kafka.broker import KafkaBroker, KafkaParts
from tests.support.kafka_clients.brokers import SETTINGS
from tests.support.kafka_clients.confluent_client import ConfluentClient
from tests.support.kafka_clients.model import CODECS, Record
from tests.support.kafka_clients.samples import (
    PARTITIONS,
    START,
    as_stored,
    briefly,
    comparable,
    samples,
)

NewTopic = Callable[..., str]


@pytest.fixture(scope="module")
def kafka(
    kafka_parts: KafkaParts, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaBroker]:
    settings = {**SETTINGS, "auto.create.topics.enable": "false"}
    with KafkaBroker(kafka_parts, tmp_path_factory.mktemp("own-consumer"), settings) as broker:
        yield broker


@pytest.fixture
def bootstrap(kafka: KafkaBroker) -> str:
    return kafka.bootstrap


def as_record(record: ConsumerRecord) -> Record:
    return Record(
        record.key,
        record.value,
        record.headers,
        record.partition,
        record.timestamp,
        record.offset,
    )


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_every_shape_are_read(
    bootstrap: str, new_topic: NewTopic, witness: ConfluentClient, codec: str
) -> None:
    topic = new_topic(len(PARTITIONS))
    written = samples()
    witness.produce(bootstrap, topic, written, codec=codec)
    with consumer_of(bootstrap) as consumer:
        consumer.assign([at(topic, partition) for partition in PARTITIONS])
        result = [as_record(record) for record in polled(consumer, len(written), at_once=7)]
        assert briefly(comparable(result)) == briefly(comparable(as_stored(written)))
        consumer.seek_to_beginning()
        rows: list[dict[str, object]] = []

        def poll() -> None:
            rows.extend(consumer.poll_arrow(1.0).to_pylist())

        until(lambda: len(rows) >= len(written), poll)
        assert sorted(len(str(row["value"])) for row in rows) == sorted(
            len(str(record.value)) for record in result
        )


def written(topic: str, bootstrap: str, witness: ConfluentClient, count: int = 10) -> None:
    records = [
        Record(b"k", b"v%d" % index, partition=index % 2, timestamp=START + index * 1000)
        for index in range(count)
    ]
    witness.produce(bootstrap, topic, records)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_resumes_at_its_committed_offsets(
    bootstrap: str, new_topic: NewTopic, witness: ConfluentClient, protocol: str
) -> None:
    topic = new_topic()
    written(topic, bootstrap, witness)
    with consumer_of(bootstrap, group_id=topic, group_protocol=protocol) as consumer:
        consumer.subscribe([topic])
        assert len(polled(consumer, 10)) == 10
        consumer.commit({at(topic): OffsetAndMetadata(3, "a note")})
        result = consumer.committed([at(topic)])[at(topic)]
        assert result is not None
        assert result[:2] == (3, "a note")
    # Closing the consumer committed the remaining offsets.
    assert witness.committed(bootstrap, topic, topic, 2) == {0: 5, 1: 5}
    written(topic, bootstrap, witness, 2)
    with consumer_of(bootstrap, group_id=topic, group_protocol=protocol) as consumer:
        consumer.subscribe([topic])
        assert sorted(values(polled(consumer, 2))) == [b"v0", b"v1"]


def test_offsets_are_looked_up_by_position_and_timestamp(
    bootstrap: str, new_topic: NewTopic, witness: ConfluentClient
) -> None:
    topic = new_topic()
    written(topic, bootstrap, witness)
    partitions = [at(topic), at(topic, 1)]
    with consumer_of(bootstrap) as consumer:
        assert consumer.beginning_offsets(partitions) == dict.fromkeys(partitions, 0)
        assert consumer.end_offsets(partitions) == dict.fromkeys(partitions, 5)
        times = consumer.offsets_for_times({partitions[0]: START + 1, partitions[1]: START + 9001})
        first = times[partitions[0]]
        assert first is not None
        assert first[:2] == (1, START + 2000)
        assert times[partitions[1]] is None
        assert [partition.partition for partition in consumer.partitions_for(topic)] == [0, 1]
        assert topic in consumer.list_topics()
        consumer.assign(partitions)
        consumer.seek(partitions[0], OffsetAndMetadata(4, leader_epoch=0))
        consumer.seek_to_end([partitions[1]])
        assert values(polled(consumer, 1)) == [b"v8"]
        assert consumer.position(partitions[1]) == 5
        assert consumer.watermarks(partitions[0]).high_watermark == 5


def test_read_committed_skips_aborted_records(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": topic, "linger.ms": 0}
    )
    producer.init_transactions(20)
    for number in range(6):
        producer.begin_transaction()
        for index in range(3):
            producer.produce(topic, b"%d %d" % (number, index))
            producer.flush(20)
        (producer.abort_transaction if number % 2 else producer.commit_transaction)(20)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(20)
    with consumer_of(bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign([at(topic)])
        result = values(polled(consumer, 9, at_once=2))
        assert result == [b"%d %d" % (number, index) for number in (0, 2, 4) for index in range(3)]
        assert consumer.poll(0.2) == []
        assert consumer.position(at(topic)) == consumer.end_offsets([at(topic)])[at(topic)] == 24
    with consumer_of(bootstrap) as consumer:
        consumer.assign([at(topic)])
        assert len(polled(consumer, 19)) == 19
    producer.abort_transaction(20)


def test_a_consumer_resets_after_records_were_deleted(
    bootstrap: str, new_topic: NewTopic, witness: ConfluentClient
) -> None:
    topic = new_topic()
    written(topic, bootstrap, witness)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    deletion = confluent_kafka.TopicPartition(topic, 0, 3)
    for future in admin.delete_records([deletion]).values():
        future.result(20)
    with consumer_of(bootstrap) as consumer:
        consumer.assign([at(topic)])
        consumer.seek(at(topic), 1)
        assert values(polled(consumer, 2)) == [b"v6", b"v8"]
    with consumer_of(bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign([at(topic)])
        consumer.seek(at(topic), 1)
        with pytest.raises(OffsetOutOfRangeError, match="offset 1"):
            polled(consumer, 1)


def test_one_fetch_session_serves_many_partitions(
    bootstrap: str, new_topic: NewTopic, witness: ConfluentClient
) -> None:
    """KIP-227: partitions are added and removed without duplicate or missing records."""
    topic = new_topic(20)
    records = [Record(None, b"%d" % index, partition=index % 20) for index in range(100)]
    witness.produce(bootstrap, topic, records)
    everything = [at(topic, index) for index in range(20)]
    with consumer_of(bootstrap) as consumer:
        consumer.assign(everything)
        records_read = sorted(values(polled(consumer, 100)))
        assert records_read == sorted(record.value or b"" for record in records)
        consumer.pause(everything[:10])
        witness.produce(bootstrap, topic, records[:40])
        assert {item.partition for item in polled(consumer, 20)} == set(range(10, 20))
        consumer.resume(everything[:10])
        assert {item.partition for item in polled(consumer, 20)} == set(range(10))
        sessions = consumer_sessions(consumer)
        assert len(sessions) == 1
        assert sessions[0] > 0
        consumer.assign(everything[5:7])
        witness.produce(bootstrap, topic, records[:20])
        assert {item.partition for item in polled(consumer, 2)} == {5, 6}


def consumer_sessions(consumer: Consumer) -> list[int]:
    """Returns the ids of the fetch sessions that brokers have granted."""
    return [session.session_id for session in consumer._driver._fetcher._sessions.values()]


def test_an_unknown_partition_is_an_error(bootstrap: str, new_topic: NewTopic) -> None:
    """E5."""
    topic = new_topic(1)
    with consumer_of(bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 4)])
        with pytest.raises(Exception, match=f"{topic}-4"):
            until(lambda: False, lambda: consumer.poll(0.5))
