"""P2, P3, P7, E2, E5: how every client produces, and the errors that it gets."""

from collections.abc import Callable

import pytest

from penstock.protocol.api_key import ApiKey
from penstock.testing.network import Network
from tests.support.broker.process import PenstockBroker
from tests.support.kafka_clients import ALL
from tests.support.kafka_clients.confluent_client import ConfluentClient
from tests.support.kafka_clients.model import Acks, Client, ClientError, Record
from tests.support.kafka_clients.samples import START
from tests.support.kafka_clients.stored import stored_batches

MESSAGE_TOO_LARGE = 10
FEW = [Record(b"key", b"value %d" % index, timestamp=START + index) for index in range(5)]


def values(records: list[Record]) -> list[bytes | None]:
    return [record.value for record in records]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_records_are_stored_with_each_acks(
    client: Client, acks: Acks, bootstrap: str, new_topic: Callable[..., str]
) -> None:
    """P2."""
    topic = new_topic(1)
    client.produce(bootstrap, topic, FEW, acks=acks)
    assert values(client.consume(bootstrap, topic, [0], len(FEW))) == values(FEW)


def test_an_idempotent_producer_stores_its_id_and_sequences(
    client: Client,
    bootstrap: str,
    broker_under_test: PenstockBroker,
    new_topic: Callable[..., str],
) -> None:
    """P3: the producer has an id, and the sequences of its batches are contiguous."""
    topic = new_topic(1)
    client.produce(bootstrap, topic, FEW, idempotent=True)
    batches = list(stored_batches(broker_under_test.partition_directory(topic, 0)))
    assert sum(batch.records for batch in batches) == len(FEW)
    next_sequence = 0
    for batch in batches:
        assert batch.producer_id == batches[0].producer_id >= 0
        assert batch.base_sequence == next_sequence
        next_sequence += batch.records


# kcat fails as soon as it loses its connection.
@pytest.mark.parametrize("client", [name for name in ALL if name != "kcat"], indirect=True)
def test_a_retry_after_a_lost_response_stores_records_once(
    client: Client,
    bootstrap: str,
    network: Network,
    new_topic: Callable[..., str],
    witness: ConfluentClient,
) -> None:
    """P3: the producer sends again, and the broker stores the records once."""
    topic = new_topic(1)
    with network.losing_replies(ApiKey.PRODUCE, times=1) as lost:
        client.produce(bootstrap, topic, FEW, idempotent=True)
    assert lost.count == 1
    assert witness.end_offset(bootstrap, topic, 0) == len(FEW)
    assert values(witness.consume(bootstrap, topic, [0], len(FEW))) == values(FEW)


def test_batches_without_idempotence_have_no_producer_id(
    client: Client,
    bootstrap: str,
    broker_under_test: PenstockBroker,
    new_topic: Callable[..., str],
) -> None:
    """P3: no producer id is stored unless idempotence is enabled."""
    topic = new_topic(1)
    client.produce(bootstrap, topic, FEW, idempotent=False)
    batches = list(stored_batches(broker_under_test.partition_directory(topic, 0)))
    assert {batch.producer_id for batch in batches} == {-1}


def test_a_topic_is_created_when_first_written(
    client: Client, bootstrap: str, topic: str, witness: ConfluentClient
) -> None:
    client.produce(bootstrap, topic, FEW, auto_create=True)
    assert topic in witness.topics(bootstrap)
    assert values(client.consume(bootstrap, topic, [0], len(FEW))) == values(FEW)


def test_a_record_too_large_is_refused(
    client: Client, bootstrap: str, new_topic: Callable[..., str], witness: ConfluentClient
) -> None:
    """E2, P7: the client gets the specific error, and nothing is stored."""
    topic = new_topic(1, **{"max.message.bytes": "10000"})
    with pytest.raises(ClientError) as refused:
        client.produce(bootstrap, topic, [Record(b"key", b"x" * 20_000, timestamp=START)])
    assert refused.value.code == MESSAGE_TOO_LARGE
    assert witness.end_offset(bootstrap, topic, 0) == 0
    client.produce(bootstrap, topic, FEW)
    assert witness.end_offset(bootstrap, topic, 0) == len(FEW)


def test_an_unknown_topic_is_refused(
    client: Client,
    broker_that_creates_no_topics: PenstockBroker,
    topic: str,
    witness: ConfluentClient,
) -> None:
    """E5: with auto.create.topics.enable=false, whatever the client requests."""
    bootstrap = broker_that_creates_no_topics.bootstrap
    with pytest.raises(ClientError) as refused:
        client.produce(bootstrap, topic, FEW[:1], auto_create=True, timeout=0.5)
    assert refused.value.code == client.unknown_topic_code
    assert topic not in witness.topics(bootstrap)
