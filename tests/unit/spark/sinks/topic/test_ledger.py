"""The ledger: the progress of pipelines in `_penstock_pipelines`."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client import Admin, Producer
from penstock.client.admin import ConfigResource, ConfigResourceType
from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition
from penstock.spark.errors import PipelineError, ProgressError
from penstock.spark.progress import SourceOffsets, StoredProgress
from penstock.spark.sinks.topic.ledger import PARTITIONS, TOPIC, Ledger, LedgerEntry, partition_of
from penstock.testing import Broker

NOW = datetime(2026, 1, 2, tzinfo=UTC)

partitions = st.builds(TopicPartition, st.sampled_from(["a", "b.c", "ü"]), st.integers(0, 20))
offsets = st.dictionaries(partitions, st.integers(0, 2**63 - 1), max_size=4)
sources = st.builds(SourceOffsets, offsets, st.dictionaries(st.text(min_size=1), st.text()))
entries = st.builds(
    LedgerEntry,
    st.none()
    | st.builds(StoredProgress, st.dictionaries(st.text(), sources), st.text(), st.integers(-1)),
    st.text(),
    st.just(0),
    offsets,
    st.text(),
)


@pytest.fixture
def ledger(client: dict[str, str]) -> Iterator[Ledger]:
    with Ledger(client) as ledger:
        ledger.ensure()
        yield ledger


@pytest.fixture
def producer(broker: Broker) -> Iterator[Producer]:
    with Producer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id="writer"
    ) as producer:
        producer.init_transactions()
        yield producer


def entry(batch_id: int, owner: str = "me") -> LedgerEntry:
    progress = {"s": SourceOffsets({TopicPartition("in", 0): batch_id * 10})}
    return LedgerEntry(StoredProgress(progress, "q", batch_id), owner, 10)


def put(producer: Producer, ledger: Ledger, key: str, *entries: LedgerEntry | None) -> None:
    for entry in entries:
        producer.begin_transaction()
        ledger.put(producer, key, entry)
        producer.commit_transaction()


@given(entries)
def test_an_entry_is_read_as_it_was_written(entry: LedgerEntry) -> None:
    """D3: progress is read back unchanged."""
    assert LedgerEntry.from_bytes("k", entry.to_bytes(NOW)) == entry


@pytest.mark.parametrize("data", [b"", b"[]", b'{"progress": 1}', b'{"progress": {}}', b"\xff"])
def test_invalid_entries_are_refused(data: bytes) -> None:
    with pytest.raises(ProgressError, match=r"record of p\.s in topic _penstock_pipelines"):
        LedgerEntry.from_bytes("p.s", data)


def test_the_topic_is_created_once(broker: Broker) -> None:
    """Several drivers may start at the same time."""
    client = {"bootstrap.servers": broker.bootstrap_servers}

    def ensure(_: int) -> None:
        with Ledger(client) as ledger:
            ledger.ensure()
            assert ledger.read("no.entry") is None

    broker.delete_topic(TOPIC, missing_ok=True)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(ensure, range(4)))
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert len(admin.describe_topics([TOPIC])[TOPIC].partitions) == PARTITIONS
        topic = ConfigResource(ConfigResourceType.TOPIC, TOPIC)
        assert admin.describe_configs([topic])[topic]["cleanup.policy"].value == "compact"


def test_reading_creates_no_topic(broker: Broker, client: dict[str, str]) -> None:
    broker.delete_topic(TOPIC, missing_ok=True)
    with Ledger(client) as ledger:
        assert ledger.read("p.s") is None
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert TOPIC not in admin.list_topics()


def test_an_unknown_topic_that_existed_is_an_error(
    broker: Broker, client: dict[str, str], ledger: Ledger
) -> None:
    """D3: a broker that does not know the topic yet must not restart a pipeline from scratch."""
    with Ledger(client) as second:
        second.ensure()
        broker.delete_topic(TOPIC)
        with pytest.raises(KafkaError, match="UNKNOWN_TOPIC"):
            second.read("p.s")


@pytest.mark.parametrize(
    ("partitions", "config", "problem"),
    [
        (PARTITIONS, {"cleanup.policy": "delete"}, "progress would be deleted"),
        (1, {"cleanup.policy": "compact"}, "has 1 partitions, and 8 are needed"),
    ],
)
def test_a_topic_of_another_kind_is_refused(
    broker: Broker, client: dict[str, str], partitions: int, config: dict[str, str], problem: str
) -> None:
    broker.delete_topic(TOPIC, missing_ok=True)
    broker.create_topic(TOPIC, partitions, config)
    try:
        with Ledger(client) as ledger, pytest.raises(PipelineError, match=problem):
            ledger.ensure()
    finally:
        broker.delete_topic(TOPIC)


def test_the_last_committed_record_counts(producer: Producer, ledger: Ledger) -> None:
    """P4: aborted records do not count."""
    put(producer, ledger, "last.committed", entry(1), entry(2))
    producer.begin_transaction()
    ledger.put(producer, "last.committed", entry(3))
    producer.flush()
    producer.abort_transaction()
    assert ledger.read("last.committed") == entry(2)


def test_a_removed_key_has_no_entry(producer: Producer, ledger: Ledger) -> None:
    put(producer, ledger, "removed.key", entry(1), None)
    assert ledger.read("removed.key") is None


def test_an_entry_is_found_before_many_records_of_other_keys(
    producer: Producer, ledger: Ledger
) -> None:
    key = "far.back"
    other_key = next(
        name
        for name in map("other.{}".format, range(100))
        if partition_of(name) == partition_of(key)
    )
    put(producer, ledger, key, entry(1))
    producer.begin_transaction()
    for number in range(2500):
        ledger.put(producer, other_key, entry(number))
    producer.commit_transaction()
    assert ledger.read(key) == entry(1)
    assert ledger.read(other_key) == entry(2499)


def test_open_transactions_of_other_pipelines_are_waited_for(
    broker: Broker, producer: Producer, ledger: Ledger
) -> None:
    """D3: a record after another pipeline's open transaction is committed, too.

    Reading up to the last stable offset would return an older record, and write a batch twice.
    """
    key = "behind.open"
    put(producer, ledger, key, entry(1))
    with Producer(
        bootstrap_servers=broker.bootstrap_servers,
        transactional_id="killed-in-the-middle",
        transaction_timeout_ms=1000,
    ) as killed:
        killed.init_transactions()
        killed.begin_transaction()
        partition = partition_of(key)
        killed.send(partition.topic, b"{}", key=b"x", partition=partition.partition).result()
        put(producer, ledger, key, entry(2))
        assert ledger.read(key) == entry(2)
        killed.close(0)
