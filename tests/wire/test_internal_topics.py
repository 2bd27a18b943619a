"""Internal topics: clients can read them, but not write, truncate or create them."""

import time
from collections.abc import Iterator, Mapping
from uuid import UUID

import pytest

from penstock.core.errors import ErrorCode
from penstock.core.internal_topics import ADMIN_CLIENT_ID
from penstock.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.broker.in_process import RunningBroker, WireClient, running_broker
from tests.support.protocol.admin import TOPIC, describe
from tests.support.protocol.requests import batch_of, fetch_partition, produce_request, send_batch

OFFSETS = "__consumer_offsets"


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {"offsets.topic.num.partitions": "4", "num.partitions": "1"}


@pytest.fixture(scope="module")
def topic_id(broker: RunningBroker) -> Iterator[UUID]:
    """The id of the topic of group metadata, which is created when it is first requested."""
    with broker.connect() as client:
        (topic,) = client.request(MetadataRequest([MetadataRequestTopic(name=OFFSETS)]), 12).topics
        assert (topic.error_code, topic.is_internal) == (0, True)
        yield topic.topic_id


def test_requesting_the_offsets_topic_creates_it_with_its_settings(
    client: WireClient, topic_id: UUID
) -> None:
    (topic,) = client.request(MetadataRequest([MetadataRequestTopic(topic_id, None)]), 12).topics
    assert len(topic.partitions) == 4
    assert describe(client, TOPIC, OFFSETS, ["cleanup.policy"])["cleanup.policy"].value == "compact"


@pytest.mark.parametrize("name", ["__transaction_state", "__share_group_state"])
def test_other_internal_topics_are_not_created(client: WireClient, name: str) -> None:
    (topic,) = client.request(MetadataRequest([MetadataRequestTopic(name=name)]), 9).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", [3, 9, 12, 13])
def test_clients_cannot_write_to_internal_topics(
    client: WireClient, topic_id: UUID, version: int
) -> None:
    """The coordinator could not read a foreign record when it loads its log."""
    topic = topic_id if version >= 13 else OFFSETS
    for _ in range(3):
        response = send_batch(client, topic, batch_of(b"v", key=b"k"), version=version)
        assert response.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert fetch_partition(client, OFFSETS).high_watermark == 0


def test_a_write_without_acks_closes_the_connection(broker: RunningBroker, topic_id: UUID) -> None:
    with broker.connect() as client:
        client.send(produce_request(OFFSETS, batch_of(b"v", key=b"k"), acks=0), 9)
        assert client.is_closed()


@pytest.mark.parametrize("version", [0, 1, 2])
def test_clients_cannot_delete_records_of_internal_topics(
    client: WireClient, topic_id: UUID, version: int
) -> None:
    deletion = DeleteRecordsTopic(OFFSETS, [DeleteRecordsPartition(0, -1)])
    (topic,) = client.request(DeleteRecordsRequest([deletion], 1000), version).topics
    assert topic.partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_the_admin_client_id_may_write_to_internal_topics(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Kafka's own tools use this client id."""
    with (
        running_broker(tmp_path_factory.mktemp("admin")) as broker,
        broker.connect(client_id=ADMIN_CLIENT_ID) as client,
    ):
        client.request(MetadataRequest([MetadataRequestTopic(name=OFFSETS)]), 9)
        now_ms = time.time_ns() // 1_000_000
        response = send_batch(client, OFFSETS, batch_of(None, key=b"\0\x63", timestamp=now_ms))
        assert response.error_code == 0
