"""P4: transactions of our producer, of both versions of the protocol, read back as committed."""

import asyncio
from collections.abc import Iterator

import pytest

from penstock.client import aio
from penstock.client.consumer.record import ConsumerGroupMetadata, OffsetAndMetadata
from penstock.client.errors import (
    CommitFailedError,
    IllegalStateError,
    KafkaTimeoutError,
    ProducerFencedError,
    RecordTooLargeError,
    TransactionAbortedError,
)
from penstock.client.producer.producer import Producer
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.protocol.api_key import ApiKey
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from penstock.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from penstock.testing.broker import Broker
from tests.support.broker.in_process import WireClient
from tests.support.coordinator.transaction_client import committed, uncommitted

WAIT_S = 20.0
TP = TopicPartition("t", 0)


@pytest.fixture(scope="module", params=[1, 2], ids=["v1", "v2"])
def txn_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker whose `transaction.version` is 1 or 2."""
    with Broker({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}) as broker:
        update = FeatureUpdateKey("transaction.version", request.param, upgrade_type=2)
        with connected(broker) as client:
            response = client.request(UpdateFeaturesRequest(5000, [update]), 1)
            assert response.error_code == 0, response.error_message
        yield broker


def connected(broker: Broker) -> WireClient:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return WireClient((host, int(port)))


@pytest.fixture
def topic(txn_broker: Broker, request: pytest.FixtureRequest) -> str:
    name: str = request.function.__name__
    txn_broker.create_topic(name, 2)
    return name


def producer_of(broker: Broker, name: str) -> Producer:
    return Producer(
        bootstrap_servers=broker.bootstrap_servers,
        transactional_id=name,
        retry_backoff_ms=5,
        retry_backoff_max_ms=50,
        reconnect_backoff_ms=5,
    )


def read(broker: Broker, topic: str, partition: int = 0) -> list[bytes | None]:
    with connected(broker) as client:
        return committed(client, topic, partition)


def group_offset(broker: Broker, group: str, partition: TopicPartition) -> int:
    topic = OffsetFetchRequestTopics(name=partition.topic, partition_indexes=[partition.partition])
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=[topic])], require_stable=True
    )
    with connected(broker) as client:
        while True:
            response = client.request(request, 8).groups[0].topics[0].partitions[0]
            if response.error_code != ErrorCode.UNSTABLE_OFFSET_COMMIT:
                assert response.error_code == 0
                offset: int = response.committed_offset
                return offset


def test_commits_and_aborts(txn_broker: Broker, topic: str) -> None:
    with producer_of(txn_broker, topic) as producer:
        producer.init_transactions()
        for number in range(4):
            producer.begin_transaction()
            for partition in (0, 1):
                producer.send(topic, b"%d" % number, partition=partition)
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
        producer.begin_transaction()
        producer.commit_transaction()
        producer.begin_transaction()
        many = producer.send_many(topic, [b"m"] * 100, partition=1)
        producer.commit_transaction()
        assert many.done()
    assert read(txn_broker, topic) == [b"0", b"2"]
    assert read(txn_broker, topic, 1) == [b"0", b"2", *[b"m"] * 100]


def test_an_abort_fails_records_that_were_not_sent(txn_broker: Broker, topic: str) -> None:
    with Producer(
        bootstrap_servers=txn_broker.bootstrap_servers, transactional_id=topic, linger_ms=60_000
    ) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        future = producer.send(topic, b"v", partition=0)
        producer.abort_transaction()
        assert isinstance(future.exception(0), TransactionAbortedError)
        producer.begin_transaction()
        producer.send(topic, b"w", partition=0)
        producer.commit_transaction()
    assert read(txn_broker, topic) == [b"w"]


def test_a_newer_producer_fences_the_older(txn_broker: Broker, topic: str) -> None:
    with producer_of(txn_broker, topic) as old, producer_of(txn_broker, topic) as new:
        old.init_transactions()
        old.begin_transaction()
        old.send(topic, b"old", partition=0).result(WAIT_S)
        new.init_transactions()
        new.begin_transaction()
        new.send(topic, b"new", partition=0)
        new.commit_transaction()
        old.send(topic, b"late", partition=0)
        with pytest.raises(ProducerFencedError, match="fenced"):
            _end_at_last(old)
        with pytest.raises(ProducerFencedError):
            old.begin_transaction()
        with pytest.raises(ProducerFencedError):
            old.send(topic, b"v", partition=0)
    assert read(txn_broker, topic) == [b"new"]


def _end_at_last(producer: Producer) -> None:
    """The broker of a partition says INVALID_PRODUCER_EPOCH, which could be anything: the
    coordinator knows more."""
    try:
        producer.commit_transaction()
    except KafkaError as error:
        if error.code is not ErrorCode.INVALID_PRODUCER_EPOCH:
            raise
        producer.abort_transaction()


def test_offsets_in_a_transaction(txn_broker: Broker, topic: str) -> None:
    """Consume, change, produce: offsets count when the transaction does."""
    group = f"group-{topic}"
    source = TopicPartition(topic, 1)
    with producer_of(txn_broker, topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"v", partition=0)
        producer.send_offsets_to_transaction(
            {source: OffsetAndMetadata(7, "note")}, ConsumerGroupMetadata(group)
        )
        producer.commit_transaction()
        assert group_offset(txn_broker, group, source) == 7
        producer.begin_transaction()
        producer.send_offsets_to_transaction({source: 9}, group)
        producer.abort_transaction()
        assert group_offset(txn_broker, group, source) == 7
        producer.begin_transaction()
        with pytest.raises(CommitFailedError, match=r"no longer a member.*abort"):
            producer.send_offsets_to_transaction(
                {source: 9}, ConsumerGroupMetadata(group, 5, "nobody")
            )
        with pytest.raises(CommitFailedError):
            producer.commit_transaction()
        producer.abort_transaction()


def test_a_rejected_record_makes_its_transaction_abortable(txn_broker: Broker, topic: str) -> None:
    """The rest must not be committed as if it were all."""
    with producer_of(txn_broker, topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"first", partition=0)
        with pytest.raises(RecordTooLargeError):
            producer.send(topic, b"x" * 2_000_000, partition=0)
        with pytest.raises(RecordTooLargeError, match="abort_transaction"):
            producer.commit_transaction()
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send(topic, b"second", partition=0)
        producer.commit_transaction()
    assert read(txn_broker, topic) == [b"second"]


def test_lost_responses_of_coordinators(txn_broker: Broker, topic: str) -> None:
    """Every request to a coordinator is sent twice, and takes effect once."""
    group = f"group-{topic}"
    with producer_of(txn_broker, topic) as producer:
        with txn_broker.losing_replies(
            ApiKey.FIND_COORDINATOR, ApiKey.INIT_PRODUCER_ID, times=1
        ) as lost:
            producer.init_transactions()
        assert lost.count == 2
        for number in range(3):
            producer.begin_transaction()
            with txn_broker.losing_replies(
                ApiKey.ADD_PARTITIONS_TO_TXN,
                ApiKey.ADD_OFFSETS_TO_TXN,
                ApiKey.TXN_OFFSET_COMMIT,
                ApiKey.PRODUCE,
                ApiKey.END_TXN,
                times=1,
            ) as lost:
                producer.send(topic, b"%d" % number, partition=0)
                producer.send_offsets_to_transaction({TopicPartition(topic, 1): number}, group)
                producer.commit_transaction()
            assert lost.count >= 3
    assert read(txn_broker, topic) == [b"0", b"1", b"2"]
    assert group_offset(txn_broker, group, TopicPartition(topic, 1)) == 2


def test_a_commit_that_timed_out_can_be_repeated(txn_broker: Broker, topic: str) -> None:
    with producer_of(txn_broker, topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"v", partition=0).result(WAIT_S)
        with txn_broker.refused():
            with pytest.raises(KafkaTimeoutError, match="call it again"):
                producer.commit_transaction(0.05)
            with pytest.raises(IllegalStateError, match="commit_transaction timed out"):
                producer.begin_transaction()
        producer.commit_transaction()
        producer.begin_transaction()
    assert read(txn_broker, topic) == [b"v"]


def test_a_broker_that_is_killed_in_the_middle_of_transactions(
    txn_broker: Broker, topic: str
) -> None:
    """Nothing of what is committed is missing, nothing of it is there twice."""
    with producer_of(txn_broker, topic) as producer:
        producer.init_transactions()
        for number in range(5):
            producer.begin_transaction()
            for part in range(20):
                producer.send(topic, b"%d.%d" % (number, part), partition=0)
            if number == 2:
                txn_broker.kill()
                txn_broker.start()
            producer.commit_transaction()
    assert read(txn_broker, topic) == [
        b"%d.%d" % (number, part) for number in range(5) for part in range(20)
    ]


def test_close_aborts_an_open_transaction(txn_broker: Broker, topic: str) -> None:
    with producer_of(txn_broker, topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"v", partition=0).result(WAIT_S)
    assert read(txn_broker, topic) == []
    with connected(txn_broker) as client:
        assert uncommitted(client, topic) == [b"v"]


def test_transactions_of_the_asyncio_producer(txn_broker: Broker, topic: str) -> None:
    async def work() -> None:
        async with aio.Producer(
            bootstrap_servers=txn_broker.bootstrap_servers, transactional_id=topic
        ) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            await producer.send(topic, b"v", partition=0)
            await producer.send_offsets_to_transaction({TopicPartition(topic, 1): 3}, f"g-{topic}")
            await producer.commit_transaction()
            await producer.begin_transaction()
            await producer.send(topic, b"w", partition=0)
            await producer.abort_transaction()

    asyncio.run(work())
    assert read(txn_broker, topic) == [b"v"]
