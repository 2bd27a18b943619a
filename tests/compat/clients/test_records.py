"""M4, P6: records of every shape, with every codec, through every client."""

from collections.abc import Callable, Iterable

import pytest

from tests.support.broker.process import PenstockBroker
from tests.support.kafka_clients.confluent_client import ConfluentClient
from tests.support.kafka_clients.model import CODECS, Client, Record
from tests.support.kafka_clients.samples import (
    PARTITIONS,
    as_stored,
    briefly,
    comparable,
    samples,
    writable,
)
from tests.support.kafka_clients.stored import stored_batches


@pytest.fixture(scope="session")
def records() -> list[Record]:
    return samples()


@pytest.fixture(scope="session")
def written_by_librdkafka(
    bootstrap: str, witness: ConfluentClient, records: list[Record]
) -> Callable[[str], str]:
    """Returns the topic to which librdkafka wrote all records with the codec."""
    topics: dict[str, str] = {}

    def find(codec: str) -> str:
        if codec not in topics:
            topics[codec] = f"written-by-librdkafka-{codec}"
            witness.create_topic(bootstrap, topics[codec], len(PARTITIONS), {})
            witness.produce(bootstrap, topics[codec], records, codec=codec)
        return topics[codec]

    return find


def same(consumed: Iterable[Record], sent: Iterable[Record], *clients: Client) -> bool:
    """Compares received with sent records, as exactly as the clients allow."""
    timestamps = all(client.sets_timestamps for client in clients)
    header_order = all(client.keeps_header_order for client in clients)
    actual, expected = (
        comparable(group, timestamps=timestamps, header_order=header_order)
        for group in (consumed, as_stored(sent))
    )
    assert briefly(actual) == briefly(expected)
    return actual == expected


@pytest.mark.parametrize("codec", CODECS)
def test_a_client_reads_what_it_wrote(
    client: Client,
    codec: str,
    broker_under_test: PenstockBroker,
    new_topic: Callable[..., str],
    records: list[Record],
    witness: ConfluentClient,
) -> None:
    """P6, M4: librdkafka reads the same records. Batches stay as the client compressed them.

    Two of the records have one megabyte. A client may send a batch uncompressed if compression does
    not shrink it.
    """
    bootstrap = broker_under_test.bootstrap
    topic = new_topic()
    sent = writable(client, records)
    idempotent = client.idempotent_by_default
    offsets = client.produce(bootstrap, topic, sent, codec=codec, idempotent=idempotent)
    consumed = client.consume(bootstrap, topic, PARTITIONS, len(sent))
    stored = witness.consume(bootstrap, topic, PARTITIONS, len(sent))
    assert same(consumed, sent, client)
    assert same(stored, sent, client)
    codecs: set[str] = set()
    for partition in PARTITIONS:
        if client.returns_offsets:
            mine = [
                offset
                for offset, item in zip(offsets, sent, strict=True)
                if item.partition == partition
            ]
            assert mine == list(range(len(mine)))
        directory = broker_under_test.partition_directory(topic, partition)
        codecs.update(batch.codec for batch in stored_batches(directory))
    assert codec in codecs <= {codec, "none"}


@pytest.mark.parametrize("codec", CODECS)
def test_a_client_reads_what_librdkafka_wrote(
    client: Client,
    codec: str,
    bootstrap: str,
    written_by_librdkafka: Callable[[str], str],
    records: list[Record],
) -> None:
    """M4: including records that the client itself cannot send."""
    consumed = client.consume(bootstrap, written_by_librdkafka(codec), PARTITIONS, len(records))
    assert same(consumed, records, client)
    assert sorted(item.timestamp for item in consumed) == [record.timestamp for record in records]
