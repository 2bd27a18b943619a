"""P1, P4, P5: our producer on Apache Kafka and on our broker; other clients verify the results."""

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
from penstock.testing.network import Network, open_network
from tests.support.broker.in_process import WireClient
from tests.support.broker.process import PenstockBroker
from tests.support.coordinator.transaction_client import committed
from tests.support.kafka.broker import KafkaBroker, KafkaParts
from tests.support.kafka_clients.brokers import SETTINGS
from tests.support.kafka_clients.confluent_client import ConfluentClient

WAIT_S = 30.0
NewTopic = Callable[..., str]


class BrokerEndpoint(NamedTuple):
    network: Network
    bootstrap: str


@pytest.fixture(scope="module", params=["penstock", "kafka"])
def endpoint(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    ports: Ports,
    kafka_parts: KafkaParts,
) -> Iterator[BrokerEndpoint]:
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
        network = open_network([route], directory / "relay.log")
        network.set_up(True)
        yield BrokerEndpoint(network, entrance.address)
        network.close()


@pytest.fixture
def network(endpoint: BrokerEndpoint) -> Network:
    return endpoint.network


@pytest.fixture
def bootstrap(endpoint: BrokerEndpoint) -> str:
    return endpoint.bootstrap


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
def test_records_arrive_with_each_acks_and_codec(
    bootstrap: str, new_topic: NewTopic, witness: ConfluentClient, acks: int | str, codec: str
) -> None:
    """P1, P6."""
    topic = new_topic(1)
    values = [b"%d " % number * 20 for number in range(200)]
    with Producer(bootstrap_servers=bootstrap, acks=acks, compression_type=codec) as producer:
        futures = [
            producer.send(topic, value, key=b"k", headers={"h": b"1"}, timestamp=1_700_000_000_000)
            for value in values
        ]
        producer.flush(WAIT_S)
        offsets = [future.result(0).offset for future in futures]
    assert offsets == ([-1] * 200 if acks == 0 else list(range(200)))
    result = witness.consume(bootstrap, topic, [0], 200)
    assert [record.value for record in result] == values
    assert {record.key for record in result} == {b"k"}
    assert {record.timestamp for record in result} == {1_700_000_000_000}
    assert {tuple(item.headers) for item in result} == {(("h", b"1"),)}


def test_large_batches_are_split_and_oversized_records_fail(
    bootstrap: str, new_topic: NewTopic
) -> None:
    """E2: batches above the topic's size limit are split; a single larger record fails."""
    topic = new_topic(1, **{"max.message.bytes": "20000"})
    with producer_of(bootstrap) as producer:
        result = producer.send_many(topic, [b"%d" % number for number in range(30_000)])
        assert result.result(WAIT_S)[29_999].offset == 29_999
        error = producer.send(topic, b"x" * 30_000).exception(WAIT_S)
        assert isinstance(error, RecordTooLargeError)
        assert "max.message.bytes" in error.message
        assert producer.send(topic, b"last").result(WAIT_S).offset == 30_000
    assert read(bootstrap, topic) == [*(b"%d" % number for number in range(30_000)), b"last"]


def test_records_are_stored_once_despite_lost_responses(
    bootstrap: str, network: Network, new_topic: NewTopic
) -> None:
    """P3: each record once and in order."""
    topic = new_topic(1)
    with producer_of(bootstrap) as producer:
        with network.losing_replies(ApiKey.PRODUCE, times=3) as lost:
            for number in range(2000):
                producer.send(topic, b"%d" % number)
                if number in (700, 1400):
                    network.cut()
            producer.flush(WAIT_S)
        assert lost.count == 3
    assert read(bootstrap, topic) == [b"%d" % number for number in range(2000)]


def test_transactions_commit_abort_and_fence(
    bootstrap: str, new_topic: NewTopic, witness: ConfluentClient
) -> None:
    """P4: committed, aborted, with offsets, fenced."""
    topic = new_topic(2)
    group = f"group-{topic}"
    with producer_of(bootstrap, topic) as producer:
        producer.init_transactions()
        for number in range(4):
            producer.begin_transaction()
            for partition in (0, 1):
                producer.send(topic, b"%d" % number, partition=partition)
            producer.send_offsets_to_transaction(
                {TopicPartition(topic, 1): number}, ConsumerGroupMetadata(group)
            )
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
        with producer_of(bootstrap, topic) as newer:
            newer.init_transactions()
            newer.begin_transaction()
            newer.send(topic, b"newer", partition=0)
            newer.commit_transaction()
        producer.begin_transaction()
        producer.send(topic, b"older", partition=0)
        with pytest.raises(ProducerFencedError):
            _end(producer)
    assert read(bootstrap, topic) == [b"0", b"2", b"newer"]
    assert read(bootstrap, topic, 1) == [b"0", b"2"]


def _end(producer: Producer) -> None:
    """Commits; aborts instead if the leader responded with INVALID_PRODUCER_EPOCH."""
    try:
        producer.commit_transaction()
    except KafkaError as error:
        if error.code is not ErrorCode.INVALID_PRODUCER_EPOCH:
            raise
        producer.abort_transaction()


def test_lost_coordinator_responses_are_retried_safely(
    bootstrap: str, network: Network, new_topic: NewTopic
) -> None:
    """P4: each request takes effect once, even if it is sent more than once."""
    topic = new_topic(1)
    with producer_of(bootstrap, topic) as producer:
        with network.losing_replies(
            ApiKey.FIND_COORDINATOR, ApiKey.INIT_PRODUCER_ID, times=1
        ) as lost:
            producer.init_transactions()
        assert lost.count == 2
        for number in range(2):
            producer.begin_transaction()
            with network.losing_replies(ApiKey.PRODUCE, ApiKey.END_TXN, times=1) as lost:
                producer.send(topic, b"%d" % number, partition=0)
                producer.commit_transaction()
            assert lost.count == 2
    assert read(bootstrap, topic) == [b"0", b"1"]
