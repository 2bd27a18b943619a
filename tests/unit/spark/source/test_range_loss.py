"""Ranges whose records are lost, late, or of another topic (D1)."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from penstock.client import Admin, Producer
from penstock.client.admin import NewTopic
from penstock.client.errors import DisconnectError, KafkaTimeoutError
from penstock.core.errors import CorruptRecordError, ErrorCode
from penstock.core.ids import TopicPartition
from penstock.net.client.backoff import Backoff
from penstock.net.client.cluster import TopicInfo
from penstock.net.client.network_client import NetworkClient
from penstock.protocol.messages.fetch import FetchPartitionData
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from penstock.spark.errors import DataLossError
from penstock.spark.source import range_fetch
from penstock.spark.source.clients import close_clients
from penstock.spark.source.range_fetch import RangeFetch
from penstock.spark.source.ranges import OffsetRange
from penstock.spark.source.topic_ids import to_text
from penstock.testing import Broker
from tests.support.spark.ranges import range_of, read, settings

COUNT = 20


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker
        close_clients()


@pytest.fixture(scope="module")
def admin(broker: Broker) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        yield admin


@pytest.fixture
def topic(broker: Broker, admin: Admin) -> str:
    """A topic with 20 records in separate batches."""
    name = f"t-{uuid4()}"
    admin.create_topics([NewTopic(name, 1)])
    fill(broker, name)
    return name


def fill(broker: Broker, topic: str) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(COUNT):
            producer.send(topic, b"%d" % number).result()


def test_records_deleted_by_retention_are_a_loss(
    broker: Broker, admin: Admin, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    offset_range = range_of(admin, topic, 0, COUNT)
    admin.delete_records({TopicPartition(topic, 0): 7})
    with pytest.raises(DataLossError, match=r"from offset 0 to 7 are gone.*failOnDataLoss"):
        read(offset_range, settings(broker.bootstrap_servers))
    with caplog.at_level(logging.WARNING, "penstock.spark"):
        rows = read(offset_range, settings(broker.bootstrap_servers, fail_on_data_loss=False))
    assert [row.offset for row in rows] == list(range(7, COUNT))
    assert "from offset 0 to 7 are gone" in caplog.text


def test_the_whole_range_is_lost(broker: Broker, admin: Admin, topic: str) -> None:
    offset_range = range_of(admin, topic, 2, 5)
    admin.delete_records({TopicPartition(topic, 0): 7})
    with pytest.raises(DataLossError, match="from offset 2 to 5 are gone"):
        read(offset_range, settings(broker.bootstrap_servers))
    assert read(offset_range, settings(broker.bootstrap_servers, fail_on_data_loss=False)) == []


def test_records_deleted_during_the_read_are_a_loss(
    broker: Broker, admin: Admin, topic: str
) -> None:
    from penstock.spark.source.range_reader import read_range

    read_settings = settings(broker.bootstrap_servers, max_partition_fetch_bytes="80")
    batches = read_range(range_of(admin, topic, 0, COUNT), read_settings)
    assert next(batches).num_rows == 1
    admin.delete_records({TopicPartition(topic, 0): 15})
    with pytest.raises(DataLossError, match="to 15 are gone"):
        list(batches)


def test_a_truncated_log_is_a_loss(
    broker: Broker, admin: Admin, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    offset_range = range_of(admin, topic, 10, 2 * COUNT)
    # The first empty response uses up the time for further attempts, however slow the machine is.
    monkeypatch.setattr(Backoff, "delay_ms", lambda backoff, attempts: 10**9)
    read_settings = settings(broker.bootstrap_servers, fetch_max_wait_ms="50")
    with pytest.raises(DataLossError, match="ends at offset 20, the range at 40"):
        read(offset_range, read_settings)
    read_settings = settings(
        broker.bootstrap_servers, fetch_max_wait_ms="50", fail_on_data_loss=False
    )
    assert [row.offset for row in read(offset_range, read_settings)] == list(range(10, COUNT))


def test_a_log_that_ends_before_the_range_is_a_loss(
    broker: Broker, admin: Admin, topic: str
) -> None:
    offset_range = range_of(admin, topic, COUNT + 5, COUNT + 9)
    with pytest.raises(DataLossError, match="ends at offset 20, before offset 25"):
        read(offset_range, settings(broker.bootstrap_servers))
    assert read(offset_range, settings(broker.bootstrap_servers, fail_on_data_loss=False)) == []


@pytest.mark.parametrize("is_old_topic_cached", [False, True])
@pytest.mark.parametrize("fail_on_data_loss", [False, True])
def test_a_recreated_topic_is_a_loss(
    broker: Broker, admin: Admin, topic: str, is_old_topic_cached: bool, fail_on_data_loss: bool
) -> None:
    """D3: its offsets belong to other records, so it is an error even without failOnDataLoss."""
    read_settings = settings(broker.bootstrap_servers, fail_on_data_loss=fail_on_data_loss)
    offset_range = range_of(admin, topic, 0, COUNT)
    if is_old_topic_cached:
        assert len(read(offset_range, read_settings)) == COUNT
    else:
        close_clients()
    admin.delete_topics([topic])
    admin.create_topics([NewTopic(topic, 1)])
    fill(broker, topic)
    with pytest.raises(DataLossError, match=r"deleted and created again.*new checkpoint"):
        read(offset_range, read_settings)
    assert len(read(range_of(admin, topic, 0, COUNT), read_settings)) == COUNT


def test_stale_metadata_is_updated_for_a_range_of_a_recreated_topic(
    broker: Broker, admin: Admin, topic: str
) -> None:
    """The client of a worker has cached the deleted topic; the range is of the new one."""
    read_settings = settings(broker.bootstrap_servers)
    assert len(read(range_of(admin, topic, 0, COUNT), read_settings)) == COUNT
    admin.delete_topics([topic])
    admin.create_topics([NewTopic(topic, 1)])
    fill(broker, topic)
    assert len(read(range_of(admin, topic, 0, COUNT), read_settings)) == COUNT


def test_a_deleted_topic_is_a_loss(
    broker: Broker, admin: Admin, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_fetch, "_GONE_AFTER_MS", 300)
    offset_range = range_of(admin, topic, 0, COUNT)
    assert len(read(offset_range, settings(broker.bootstrap_servers))) == COUNT
    admin.delete_topics([topic])
    with pytest.raises(DataLossError, match="no longer exists"):
        read(offset_range, settings(broker.bootstrap_servers))
    assert read(offset_range, settings(broker.bootstrap_servers, fail_on_data_loss=False)) == []


def test_records_after_an_open_transaction_are_a_timeout_and_no_loss(
    broker: Broker, admin: Admin, topic: str
) -> None:
    """P4: they are not readable yet."""
    read_settings = settings(
        broker.bootstrap_servers,
        read_committed=True,
        poll_timeout_ms=300,
        fetch_max_wait_ms="50",
        fail_on_data_loss=False,
    )
    with Producer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id=str(uuid4())
    ) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"open").result()
        with pytest.raises(KafkaTimeoutError, match=r"still open holds back.*offset 20"):
            read(range_of(admin, topic, 0, COUNT + 1), read_settings)
        producer.commit_transaction()
    assert len(read(range_of(admin, topic, 0, COUNT + 1), read_settings)) == COUNT + 1


def test_an_unreachable_broker_is_a_timeout(broker: Broker, admin: Admin, topic: str) -> None:
    """E6: the message has the offset and the time that it waited."""
    offset_range = range_of(admin, topic, 0, COUNT)
    read_settings = settings(
        broker.bootstrap_servers, poll_timeout_ms=300, reconnect_backoff_max_ms="50"
    )
    with (
        broker.refused(),
        pytest.raises(KafkaTimeoutError, match=r"nothing came from offset 0 on within 300 ms"),
    ):
        read(offset_range, read_settings)
    assert len(read(offset_range, settings(broker.bootstrap_servers))) == COUNT


def test_a_topic_unknown_to_a_restarted_broker_is_no_loss(
    broker: Broker, admin: Admin, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers are down when a task starts; the first one to return does not know the topic yet."""
    monkeypatch.setattr(range_fetch, "_GONE_AFTER_MS", 200)
    offset_range = range_of(admin, topic, 0, COUNT)
    close_clients()
    request_metadata = NetworkClient.request_metadata
    responses = ["down"] * 40 + ["unknown"]

    async def respond(
        network: NetworkClient, node_id: int, make: Callable[[int], MetadataRequest]
    ) -> MetadataResponse:
        outcome = responses.pop(0) if responses else "known"
        if outcome == "down":
            raise DisconnectError("the broker is down")
        response = await request_metadata(network, node_id, make)
        if outcome == "unknown":
            for topic_metadata in response.topics:
                topic_metadata.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                topic_metadata.partitions = []
        return response

    monkeypatch.setattr(NetworkClient, "request_metadata", respond)
    read_settings = settings(
        broker.bootstrap_servers,
        poll_timeout_ms=5_000,
        retry_backoff_ms="10",
        retry_backoff_max_ms="10",
    )
    assert len(read(offset_range, read_settings)) == COUNT
    assert not responses


def test_reading_continues_after_lost_connections(broker: Broker, admin: Admin, topic: str) -> None:
    from penstock.spark.source.range_reader import read_range

    read_settings = settings(broker.bootstrap_servers, max_partition_fetch_bytes="80")
    batches = read_range(range_of(admin, topic, 0, COUNT), read_settings)
    offsets = []
    for batch in batches:
        offsets += batch.column("offset").to_pylist()
        if len(offsets) in (3, 11):
            broker.cut()
    assert offsets == list(range(COUNT))


def test_a_partition_that_never_existed_is_a_loss(
    broker: Broker, admin: Admin, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_fetch, "_GONE_AFTER_MS", 300)
    with pytest.raises(DataLossError, match=r"there is no .*-5: topic .* has 1 partitions"):
        read(range_of(admin, topic, 0, 5, partition=5), settings(broker.bootstrap_servers))


@pytest.mark.parametrize("read_committed", [False, True])
def test_records_removed_by_compaction_are_no_loss(
    broker: Broker,
    admin: Admin,
    topic: str,
    read_committed: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The log ends at 20, but has no batch from 12 on."""
    send_fetch = RangeFetch._send_fetch

    async def fetch_with_gap(
        self: RangeFetch, topic: TopicInfo, offset: int, deadline_ms: int
    ) -> FetchPartitionData:
        await asyncio.sleep(0)
        if offset >= 12:
            return FetchPartitionData(high_watermark=COUNT, last_stable_offset=COUNT)
        return await send_fetch(self, topic, offset, deadline_ms)

    monkeypatch.setattr(RangeFetch, "_send_fetch", fetch_with_gap)
    read_settings = settings(
        broker.bootstrap_servers, read_committed=read_committed, max_partition_fetch_bytes="80"
    )
    rows = read(range_of(admin, topic, 5, COUNT), read_settings)
    assert [row.offset for row in rows] == list(range(5, 12))


def test_a_corrupt_batch_is_an_error(
    broker: Broker, admin: Admin, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3: its checksum does not match."""
    send_fetch = RangeFetch._send_fetch

    async def fetch_corrupt(
        self: RangeFetch, topic: TopicInfo, offset: int, deadline_ms: int
    ) -> FetchPartitionData:
        data = await send_fetch(self, topic, offset, deadline_ms)
        assert isinstance(data.records, memoryview)
        records = bytearray(data.records)
        records[65] ^= 1
        data.records = memoryview(records)
        return data

    monkeypatch.setattr(RangeFetch, "_send_fetch", fetch_corrupt)
    with pytest.raises(CorruptRecordError, match="cannot be read from"):
        read(range_of(admin, topic, 0, 1), settings(broker.bootstrap_servers))


def test_a_range_with_an_unknown_topic_id_is_a_loss(broker: Broker, topic: str) -> None:
    offset_range = OffsetRange(topic, 0, 0, COUNT, to_text(uuid4()))
    with pytest.raises(DataLossError, match="deleted and created again"):
        read(offset_range, settings(broker.bootstrap_servers))
