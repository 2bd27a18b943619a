"""Topics are created, described and deleted by every client that has an admin API."""

import pytest

from tests.support.kafka_clients import ALL
from tests.support.kafka_clients.confluent_client import ConfluentClient
from tests.support.kafka_clients.model import AdminClient, ClientError

TOPIC_ALREADY_EXISTS = 36
UNKNOWN_TOPIC_OR_PARTITION = 3

pytestmark = pytest.mark.parametrize(
    "client", [name for name in ALL if name != "kcat"], indirect=True
)


def test_a_topic_is_created_described_and_deleted(
    admin_client: AdminClient, bootstrap: str, topic: str, witness: ConfluentClient
) -> None:
    """M1, M4."""
    configs = {"retention.ms": "3600000", "cleanup.policy": "compact"}
    admin_client.create_topic(bootstrap, topic, 3, configs)
    assert witness.partitions(bootstrap, topic) == 3
    described = admin_client.topic_configs(bootstrap, topic)
    assert {name: described[name] for name in configs} == configs
    assert described["compression.type"] == "producer"
    admin_client.delete_topic(bootstrap, topic)
    assert topic not in witness.topics(bootstrap)


def test_failed_operations_raise_kafkas_error(
    admin_client: AdminClient, bootstrap: str, topic: str
) -> None:
    """M4: the client receives Kafka's error code and recognizes it."""
    admin_client.create_topic(bootstrap, topic, 1, {})
    with pytest.raises(ClientError) as twice:
        admin_client.create_topic(bootstrap, topic, 1, {})
    assert twice.value.code == TOPIC_ALREADY_EXISTS
    admin_client.delete_topic(bootstrap, topic)
    with pytest.raises(ClientError) as missing_topic:
        admin_client.delete_topic(bootstrap, topic)
    assert missing_topic.value.code == UNKNOWN_TOPIC_OR_PARTITION
