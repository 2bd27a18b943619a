"""P4: transactions of every client that supports them, verified with other clients."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack

import pytest

from penstock.protocol.api_key import ApiKey
from penstock.testing.network import Network
from tests.support.kafka.broker import MissingPartError, wait_until
from tests.support.kafka_clients.confluent_client import ConfluentClient
from tests.support.kafka_clients.kcat import KcatClient
from tests.support.kafka_clients.model import NO_OFFSET, ClientError, Record
from tests.support.kafka_clients.program_transactions import JavaTransactions
from tests.support.kafka_clients.transactional import (
    COPY,
    TransactionalClient,
    TransactionalProducer,
)
from tests.support.kafka_clients.transactional_clients import JAVA, TRANSACTIONAL

INVALID_PRODUCER_EPOCH = 47
INVALID_TXN_STATE = 48
PRODUCER_FENCED = 90
FENCED = (INVALID_PRODUCER_EPOCH, PRODUCER_FENCED)
"""Newer request versions have a separate error code for fenced producers."""
TRANSACTIONAL_ID_NOT_FOUND = 105
PARTITIONS = (0, 1)

Started = Callable[[str], TransactionalClient]


@pytest.fixture(scope="module")
def started() -> Iterator[Started]:
    """Returns the client of a name, which runs from its first use to the end of the module."""
    running: dict[str, TransactionalClient] = {}

    def start(name: str) -> TransactionalClient:
        if name not in running:
            try:
                running[name] = TRANSACTIONAL[name]()
            except MissingPartError as missing:
                pytest.fail(str(missing), pytrace=False)
        return running[name]

    yield start
    for client in running.values():
        client.close()


@pytest.fixture(params=TRANSACTIONAL)
def client(request: pytest.FixtureRequest, started: Started) -> TransactionalClient:
    return started(request.param)


@pytest.fixture(params=JAVA)
def admin(request: pytest.FixtureRequest, started: Started) -> JavaTransactions:
    java = started(request.param)
    assert isinstance(java, JavaTransactions)
    return java


def records(what: str, count: int = 2, partition: int = 0) -> list[Record]:
    return [
        Record(b"key", b"%s %d" % (what.encode(), number), partition=partition)
        for number in range(count)
    ]


def values(result: list[Record]) -> list[bytes]:
    return [record.value or b"" for record in result]


def test_committed_records_are_read_and_aborted_ones_are_not(
    client: TransactionalClient,
    bootstrap: str,
    new_topic: Callable[..., str],
    started: Started,
) -> None:
    """P4: by the client itself and by librdkafka; an empty transaction writes nothing."""
    topic = new_topic(1)
    with client.producer(bootstrap, topic) as producer:
        producer.begin()
        producer.send(topic, records("aborted"))
        producer.abort()
        producer.begin()
        producer.commit()
        producer.begin()
        producer.send(topic, records("committed"))
        producer.commit()
        producer.begin()
        producer.abort()
    for reader in (client, started("confluent-kafka")):
        with reader.reader(bootstrap, topic, [0], committed=True) as committed:
            assert values(committed.read(2)) == values(records("committed"))
        with reader.reader(bootstrap, topic, [0], committed=False) as everything:
            result = everything.read(4)
            assert values(result) == values(records("aborted") + records("committed"))
            assert [record.offset for record in result] == [0, 1, 3, 4]


def test_a_transaction_spans_partitions_and_topics(
    client: TransactionalClient,
    bootstrap: str,
    topic: str,
    witness: ConfluentClient,
    started: Started,
) -> None:
    """P4: the markers reach every partition of each topic."""
    topics = [f"{topic}-{number}" for number in range(2)]
    for name in topics:
        witness.create_topic(bootstrap, name, len(PARTITIONS), {})
    aiokafka = started("aiokafka")
    with client.producer(bootstrap, topic) as producer:
        for end in (producer.abort, producer.commit):
            producer.begin()
            for name in topics:
                for partition in PARTITIONS:
                    producer.send(name, records(end.__name__, 2, partition))
            end()
    for name in topics:
        with aiokafka.reader(bootstrap, name, PARTITIONS) as reader:
            result = reader.read(4)
            for partition in PARTITIONS:
                mine = [item for item in result if item.partition == partition]
                assert values(mine) == values(records("commit"))


def test_a_reader_waits_for_the_end_of_a_transaction(
    client: TransactionalClient,
    bootstrap: str,
    new_topic: Callable[..., str],
    witness: ConfluentClient,
) -> None:
    """P4: read_committed stops at the last stable offset, even before committed records."""
    topic = new_topic(len(PARTITIONS))
    with (
        client.producer(bootstrap, topic) as producer,
        client.reader(bootstrap, topic, PARTITIONS) as reader,
    ):
        producer.begin()
        producer.send(topic, records("open"))
        witness.produce(bootstrap, topic, records("behind it"))
        witness.produce(bootstrap, topic, records("beside it", 1, partition=1))
        assert values(reader.read(1)) == [b"beside it 0"]
        assert reader.ahead == []
        producer.commit()
        assert values(reader.read(4)) == values(records("open") + records("behind it"))


def test_consecutive_transactions_do_not_wait_for_markers(
    client: TransactionalClient, bootstrap: str, new_topic: Callable[..., str]
) -> None:
    """P4: the next one begins at once, even if markers of the previous one are missing."""
    topic = new_topic(1)
    with client.producer(bootstrap, topic) as producer:
        for number in range(50):
            producer.begin()
            producer.send(topic, [Record(None, b"%d" % number)])
            if number % 5 == 4:
                producer.abort()
            else:
                producer.commit()
    with client.reader(bootstrap, topic, [0]) as reader:
        expected = [b"%d" % number for number in range(50) if number % 5 != 4]
        assert values(reader.read(len(expected))) == expected


def test_offsets_are_committed_with_the_transaction(
    client: TransactionalClient,
    bootstrap: str,
    new_topic: Callable[..., str],
    witness: ConfluentClient,
    started: Started,
) -> None:
    """P4: consume, transform, produce: the output holds every record exactly once."""
    source = new_topic(len(PARTITIONS))
    target, group = f"{source}-out", f"{source}-group"
    witness.create_topic(bootstrap, target, len(PARTITIONS), {})
    first = records("first", 3, 0) + records("first", 3, 1)
    witness.produce(bootstrap, source, first)
    client.transform(bootstrap, group, source, target, len(first), commit=False)
    assert witness.committed(bootstrap, source, group, len(PARTITIONS)) == {}
    client.transform(bootstrap, group, source, target, len(first), commit=True)
    assert witness.committed(bootstrap, source, group, len(PARTITIONS)) == {0: 3, 1: 3}
    second = records("second", 1, 1)
    witness.produce(bootstrap, source, second)
    client.transform(bootstrap, group, source, target, len(second), commit=True)
    assert witness.committed(bootstrap, source, group, len(PARTITIONS)) == {0: 3, 1: 4}
    with started("confluent-kafka").reader(bootstrap, target, PARTITIONS) as reader:
        copies = values(reader.read(len(first + second)))
    assert sorted(copies) == sorted(COPY + value for value in values(first + second))


def test_offsets_of_an_open_transaction_are_not_visible(
    admin: JavaTransactions, bootstrap: str, new_topic: Callable[..., str]
) -> None:
    """P4: a fetch that requires stable offsets fails until the transaction ends."""
    topic = new_topic(1)
    group = f"group-of-{topic}"

    def committed(stable: bool) -> int | None:
        return admin.group_offset(bootstrap, group, topic, 0, stable=stable)

    with admin.producer(bootstrap, topic) as producer:
        for offset, end, expected in ((5, producer.commit, 5), (9, producer.abort, 5)):
            before = committed(stable=True)
            producer.begin()
            producer.send_offset(group, topic, 0, offset)
            assert committed(stable=False) == before
            assert committed(stable=True) is None
            end()
            wait_until(lambda: committed(stable=True) is not None, "a stable offset")
            assert committed(stable=True) == expected


def test_offsets_of_a_removed_member_are_rejected(
    admin: JavaTransactions, bootstrap: str, new_topic: Callable[..., str]
) -> None:
    """P4: a zombie member is rejected, and can continue once it has aborted."""
    topic = new_topic(1)
    group = f"group-of-{topic}"
    with admin.producer(bootstrap, topic) as producer:
        producer.begin()
        producer.send(topic, records("of the zombie"))
        with pytest.raises(ClientError, match="CommitFailedException"):
            producer.send_offset(group, topic, 0, 7, member="nobody")
        producer.abort()
        producer.begin()
        producer.send(topic, records("of a member"))
        producer.commit()
    assert admin.group_offset(bootstrap, group, topic, 0, stable=True) == NO_OFFSET
    with admin.reader(bootstrap, topic, [0]) as reader:
        assert values(reader.read(2)) == values(records("of a member"))


def test_a_second_producer_fences_the_first(
    client: TransactionalClient, bootstrap: str, new_topic: Callable[..., str], started: Started
) -> None:
    """P4: the open transaction of the first is aborted."""
    topic = new_topic(1)
    with client.producer(bootstrap, topic) as first:
        first.begin()
        first.send(topic, records("of the zombie"))
        with client.producer(bootstrap, topic) as second:
            second.begin()
            second.send(topic, records("of the second"))
            second.commit()
            with pytest.raises(ClientError) as fenced:
                first.commit()
            assert fenced.value.code in FENCED
            second.begin()
            second.send(topic, records("later"))
            second.commit()
    with started("confluent-kafka").reader(bootstrap, topic, [0]) as reader:
        assert values(reader.read(4)) == values(records("of the second") + records("later"))


@pytest.fixture(scope="module")
def overdue(
    bootstrap: str, witness: ConfluentClient, started: Started
) -> Iterator[Mapping[str, TransactionalProducer]]:
    """Opens a transaction with every client and exceeds its timeout.

    The topic and the transactional.id are "overdue-" and the client's name. All transactions time
    out concurrently.
    """
    with ExitStack() as opened:
        producers: dict[str, TransactionalProducer] = {}
        for name in TRANSACTIONAL:
            topic = f"overdue-{name}"
            witness.create_topic(bootstrap, topic, 1, {})
            producer = opened.enter_context(started(name).producer(bootstrap, topic, timeout=1))
            producer.begin()
            producer.send(topic, records("too late"))
            witness.produce(bootstrap, topic, records("behind it"))
            producers[name] = producer
        yield producers


def test_a_transaction_is_aborted_after_its_timeout(
    client: TransactionalClient, bootstrap: str, overdue: Mapping[str, TransactionalProducer]
) -> None:
    """P4: the coordinator aborts it, and the producer's next request fails."""
    topic = f"overdue-{client.name}"
    with client.reader(bootstrap, topic, [0]) as reader:
        assert values(reader.read(2)) == values(records("behind it"))
        with pytest.raises(ClientError) as refused:
            overdue[client.name].commit()
        assert refused.value.code in ((INVALID_TXN_STATE,) if client.ends_by_version_2 else FENCED)
        with client.producer(bootstrap, topic) as successor:
            successor.begin()
            successor.send(topic, records("again"))
            successor.commit()
        assert values(reader.read(2)) == values(records("again"))


def test_a_retry_after_a_lost_response_has_no_second_effect(
    client: TransactionalClient, bootstrap: str, network: Network, new_topic: Callable[..., str]
) -> None:
    """P3, P4: the client sends the request again, and it takes effect once."""
    topic = new_topic(1)
    retried_apis = [ApiKey.PRODUCE] + [ApiKey.END_TXN] * client.retries_the_end
    with client.producer(bootstrap, topic) as producer:
        for what, end in (("committed", producer.commit), ("aborted", producer.abort)):
            with network.losing_replies(*retried_apis, times=1) as lost:
                producer.begin()
                producer.send(topic, records(what))
                end()
            assert lost.count == len(retried_apis)
        producer.begin()
        producer.send(topic, records("more"))
        producer.commit()
    with client.reader(bootstrap, topic, [0]) as committed:
        result = committed.read(4)
    assert values(result) == values(records("committed") + records("more"))
    assert [record.offset for record in result] == [0, 1, 6, 7]


@pytest.mark.parametrize("writer", ["confluent-kafka", "kafkajs", *JAVA])
def test_all_clients_skip_the_same_aborted_records(
    writer: str, bootstrap: str, new_topic: Callable[..., str], started: Started
) -> None:
    """P4, M4: every client skips the same records."""
    topic = new_topic(1)
    with started(writer).producer(bootstrap, topic) as producer:
        for number in range(3):
            producer.begin()
            producer.send(topic, records(f"aborted {number}"))
            producer.abort()
            producer.begin()
            producer.send(topic, records(f"committed {number}"))
            producer.commit()
    expected = [value for number in range(3) for value in values(records(f"committed {number}"))]
    for name in TRANSACTIONAL:
        with started(name).reader(bootstrap, topic, [0]) as reader:
            assert (name, values(reader.read(6))) == (name, expected)
    assert values(KcatClient().consume(bootstrap, topic, [0], 6)) == expected


def test_transactions_and_producers_are_described(
    admin: JavaTransactions, bootstrap: str, new_topic: Callable[..., str]
) -> None:
    """P4: each transaction's state, producer, partitions and last stable offset."""
    topic = new_topic(1)
    with admin.producer(bootstrap, topic) as producer:
        assert admin.describe(bootstrap, topic).state == "Empty"
        producer.begin()
        producer.send(topic, records("open"))
        ongoing = admin.describe(bootstrap, topic)
        assert ongoing.state == "Ongoing"
        assert ongoing.started
        assert ongoing.timeout_ms == 60_000
        assert ongoing.partitions == {(topic, 0)}
        [active] = admin.producers(bootstrap, topic, 0)
        assert active.producer_id == ongoing.producer_id
        assert active.producer_epoch == ongoing.producer_epoch
        assert (active.last_sequence, active.transaction_start) == (1, 0)
        assert admin.states(bootstrap, states=["Ongoing"])[topic] == "Ongoing"
        assert topic not in admin.states(bootstrap, states=["CompleteCommit"])
        mine = admin.states(bootstrap, producer_ids=[ongoing.producer_id])
        assert mine == {topic: "Ongoing"}
        assert topic not in admin.states(bootstrap, min_duration_ms=3_600_000)
        assert admin.end_offset(bootstrap, topic, 0, committed=False) == 2
        assert admin.end_offset(bootstrap, topic, 0, committed=True) == 0
        producer.commit()
        # The response to a commit may precede the markers.
        wait_until(lambda: admin.describe(bootstrap, topic).state == "CompleteCommit", "the end")
        assert admin.describe(bootstrap, topic).partitions == set()
        assert admin.end_offset(bootstrap, topic, 0, committed=True) == 3
        [idle] = admin.producers(bootstrap, topic, 0)
        assert idle.transaction_start == NO_OFFSET


def test_an_unknown_transactional_id_is_an_error(
    admin: JavaTransactions, bootstrap: str, topic: str
) -> None:
    """P4."""
    with pytest.raises(ClientError) as unknown:
        admin.describe(bootstrap, topic)
    assert unknown.value.code == TRANSACTIONAL_ID_NOT_FOUND


def test_an_administrator_ends_a_transaction_in_a_partition(
    admin: JavaTransactions, bootstrap: str, new_topic: Callable[..., str], witness: ConfluentClient
) -> None:
    """P4: readers continue past a hanging transaction."""
    topic = new_topic(1)
    with (
        admin.producer(bootstrap, topic) as producer,
        admin.reader(bootstrap, topic, [0]) as reader,
    ):
        producer.begin()
        producer.send(topic, records("hanging"))
        witness.produce(bootstrap, topic, records("behind it"))
        [hanging] = admin.producers(bootstrap, topic, 0)
        admin.abort(bootstrap, topic, 0, hanging)
        assert values(reader.read(2)) == values(records("behind it"))
        assert admin.end_offset(bootstrap, topic, 0, committed=True) == 5


def test_an_administrator_fences_a_producer(
    admin: JavaTransactions, bootstrap: str, new_topic: Callable[..., str]
) -> None:
    """P4: its transaction is aborted, and its next request fails."""
    topic = new_topic(1)
    with admin.producer(bootstrap, topic) as producer:
        producer.begin()
        producer.send(topic, records("of the fenced"))
        admin.fence(bootstrap, topic)
        with pytest.raises(ClientError) as fenced:
            producer.commit()
        assert fenced.value.code in FENCED
        assert admin.describe(bootstrap, topic).state == "Empty"
        assert admin.end_offset(bootstrap, topic, 0, committed=True) == 3
