"""P1, P4, P5: our producer on Apache Kafka and on our broker; others look at what it did."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from penstock.client.consumer.record import ConsumerGroupMetadata
from penstock.client.errors import ProducerFencedError, RecordTooLargeError
from penstock.client.producer.producer import Producer
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.protocol.api_key import ApiKey
from penstock.testing.addresses import Listener, Ports, Route
from penstock.testing.network import Network
from tests.support.broker.in_process import WireClient
from tests.support.broker.process import PenstockBroker
from tests.support.coordinator.transaction_client import committed
from tests.support.kafka.broker import KafkaBroker, KafkaParts
from tests.support.kafka_clients.brokers import SETTINGS
from tests.support.kafka_clients.confluent_client import ConfluentClient

WAIT_S = 30.0
NewTopic = Callable[..., str]


class Place(NamedTuple):
    network: Network
    bootstrap: str


@pytest.fixture(scope="module", params=["penstock", "kafka"])
def place(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    ports: Ports,
    kafka_parts: KafkaParts,
) -> Iterator[Place]:
    """A broker behind a network that fails on demand."""
    entrance, inside = (ports.reserve(Listener("PLAINTEXT", "127.0.0.1", 0)) for _ in range(2))
    settings = {**SETTINGS, "advertised.listeners": str(entrance)}
    directory = tmp_path_factory.mktemp("own-producer")
    broker: PenstockBroker | KafkaBroker
    if request.param == "kafka":
        broker = KafkaBroker(kafka_parts, directory, settings)
    else:
        broker = PenstockBroker(directory, {**settings, "listeners": str(inside)})
    with broker:
        port = broker.port if isinstance(broker, KafkaBroker) else inside.port
        route = Route(entrance.host, entrance.port, inside.host, port, readable=True)
        network = Network([route], directory / "relay.log")
        network.set_up(True)
        yield Place(network, entrance.address)
        network.close()


@pytest.fixture
def network(place: Place) -> Network:
    return place.network


@pytest.fixture
def bootstrap(place: Place) -> str:
    return place.bootstrap


def producer_of(bootstrap: str, transactional_id: str | None = None) -> Producer:
    return Producer(
        bootstrap_servers=bootstrap,
        transactional_id=transactional_id,
        retry_backoff_ms=10,
        reconnect_backoff_ms=10,
        linger_ms=0,
    )


def read(bootstrap: str, topic: str, partition: int = 0) -> list[bytes | None]:
    host, _, port = bootstrap.rpartition(":")
    with WireClient((host, int(port))) as client:
        return committed(client, topic, partition)


@pytest.mark.parametrize("acks", [0, 1, "all"])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_acks_and_codecs(
    bootstrap: str, new_topic: NewTopic, witness: ConfluentClient, acks: int | str, codec: str
) -> None:
    """P1, P6."""
    topic = new_topic(1)
    values = [b"%d " % number * 20 for number in range(200)]
    with Producer(bootstrap_servers=bootstrap, acks=acks, compression_type=codec) as one:
        futures = [
            one.send(topic, value, key=b"k", headers={"h": b"1"}, timestamp=1_700_000_000_000)
            for value in values
        ]
        one.flush(WAIT_S)
        offsets = [future.result(0).offset for future in futures]
    assert offsets == ([-1] * 200 if acks == 0 else list(range(200)))
    result = witness.consume(bootstrap, topic, [0], 200)
    assert [item.value for item in result] == values
    assert {item.key for item in result} == {b"k"}
    assert {item.timestamp for item in result} == {1_700_000_000_000}
    assert {tuple(item.headers) for item in result} == {(("h", b"1"),)}


def test_many_at_once_and_large_ones(bootstrap: str, new_topic: NewTopic) -> None:
    """E2: a topic with a small limit has batches split, and says so of a single record."""
    topic = new_topic(1, **{"max.message.bytes": "20000"})
    with producer_of(bootstrap) as one:
        result = one.send_many(topic, [b"%d" % number for number in range(30_000)])
        assert result.result(WAIT_S)[29_999].offset == 29_999
        error = one.send(topic, b"x" * 30_000).exception(WAIT_S)
        assert isinstance(error, RecordTooLargeError)
        assert "max.message.bytes" in error.message
        assert one.send(topic, b"last").result(WAIT_S).offset == 30_000
    assert read(bootstrap, topic) == [*(b"%d" % number for number in range(30_000)), b"last"]


def test_lost_answers_and_broken_connections(
    bootstrap: str, network: Network, new_topic: NewTopic
) -> None:
    """P3: each record once and in order."""
    topic = new_topic(1)
    with producer_of(bootstrap) as one:
        with network.losing_replies(ApiKey.PRODUCE, times=3) as lost:
            for number in range(2000):
                one.send(topic, b"%d" % number)
                if number in (700, 1400):
                    network.cut()
            one.flush(WAIT_S)
        assert lost.count == 3
    assert read(bootstrap, topic) == [b"%d" % number for number in range(2000)]


def test_transactions(bootstrap: str, new_topic: NewTopic, witness: ConfluentClient) -> None:
    """P4: committed, aborted, with offsets, fenced."""
    topic = new_topic(2)
    group = f"group-{topic}"
    with producer_of(bootstrap, topic) as one:
        one.init_transactions()
        for number in range(4):
            one.begin_transaction()
            for partition in (0, 1):
                one.send(topic, b"%d" % number, partition=partition)
            one.send_offsets_to_transaction(
                {TopicPartition(topic, 1): number}, ConsumerGroupMetadata(group)
            )
            if number % 2:
                one.abort_transaction()
            else:
                one.commit_transaction()
        with producer_of(bootstrap, topic) as newer:
            newer.init_transactions()
            newer.begin_transaction()
            newer.send(topic, b"newer", partition=0)
            newer.commit_transaction()
        one.begin_transaction()
        one.send(topic, b"older", partition=0)
        with pytest.raises(ProducerFencedError):
            _end(one)
    assert read(bootstrap, topic) == [b"0", b"2", b"newer"]
    assert read(bootstrap, topic, 1) == [b"0", b"2"]


def _end(producer: Producer) -> None:
    """A partition's leader says INVALID_PRODUCER_EPOCH, the coordinator that it is fenced."""
    try:
        producer.commit_transaction()
    except KafkaError as error:
        if error.code is not ErrorCode.INVALID_PRODUCER_EPOCH:
            raise
        producer.abort_transaction()


def test_lost_answers_of_coordinators(
    bootstrap: str, network: Network, new_topic: NewTopic
) -> None:
    """P4: each request has its effect once, however often it is sent."""
    topic = new_topic(1)
    with producer_of(bootstrap, topic) as one:
        with network.losing_replies(
            ApiKey.FIND_COORDINATOR, ApiKey.INIT_PRODUCER_ID, times=1
        ) as lost:
            one.init_transactions()
        assert lost.count == 2
        for number in range(2):
            one.begin_transaction()
            with network.losing_replies(ApiKey.PRODUCE, ApiKey.END_TXN, times=1) as lost:
                one.send(topic, b"%d" % number, partition=0)
                one.commit_transaction()
            assert lost.count == 2
    assert read(bootstrap, topic) == [b"0", b"1"]
