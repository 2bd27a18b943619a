"""Metadata and ApiVersions in all their versions (E4, E5)."""

from collections.abc import Iterator, Mapping
from uuid import UUID

import pytest

from penstock.broker.handlers.table import CLUSTER_APIS, HANDLERS
from penstock.broker.metadata.features import SUPPORTED_FEATURES
from penstock.core.errors import ErrorCode
from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import ZERO_UUID
from penstock.protocol.frames import decode_response
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.broker.in_process import RunningBroker, WireClient, running_broker
from tests.support.protocol.requests import make_topic

VERSIONS = range(14)
NOT_REQUESTED = -(2**31)


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {"node.id": "3", "broker.rack": "r1", "num.partitions": "2"}


@pytest.fixture(scope="module")
def strict_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker that does not create topics automatically."""
    settings = {"auto.create.topics.enable": "false"}
    with running_broker(tmp_path_factory.mktemp("strict"), settings) as running:
        yield running


def topics_named(*names: str) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=name) for name in names]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_is_described_in_every_version(
    broker: RunningBroker, client: WireClient, version: int
) -> None:
    topic_id = make_topic(client, f"every-{version}", 3)
    response = client.request(MetadataRequest(topics_named(f"every-{version}")), version)
    (node,) = response.brokers
    assert (node.node_id, node.host, node.port) == (3, *broker.address)
    assert node.rack == ("r1" if version >= 1 else None)
    assert response.controller_id == (3 if version >= 1 else -1)
    assert bool(response.cluster_id) == (version >= 2)
    (topic,) = response.topics
    assert (topic.error_code, topic.name, topic.is_internal) == (0, f"every-{version}", False)
    assert topic.topic_id == (topic_id if version >= 10 else ZERO_UUID)
    assert [partition.partition_index for partition in topic.partitions] == [0, 1, 2]
    for partition in topic.partitions:
        assert (partition.error_code, partition.leader_id) == (0, 3)
        assert partition.replica_nodes == partition.isr_nodes == [3]
        assert partition.offline_replicas == []
        assert partition.leader_epoch == (0 if version >= 7 else -1)
    assert topic.topic_authorized_operations == NOT_REQUESTED
    assert response.cluster_authorized_operations == NOT_REQUESTED


@pytest.mark.parametrize("version", VERSIONS)
def test_all_topics_or_none_are_described(client: WireClient, version: int) -> None:
    """Null means all topics; an empty list means all in version 0 and none later."""
    make_topic(client, f"all-{version}")
    request = MetadataRequest([] if version == 0 else None)
    names = {topic.name for topic in client.request(request, version).topics}
    assert f"all-{version}" in names
    if version > 0:
        response = client.request(MetadataRequest([]), version)
        assert (response.topics, len(response.brokers)) == ([], 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_metadata_creates_missing_topics(client: WireClient, version: int) -> None:
    """E5: the topic has num.partitions partitions."""
    name = f"auto-created-{version}"
    (topic,) = client.request(MetadataRequest(topics_named(name)), version).topics
    assert (topic.error_code, topic.name) == (0, name)
    assert len(topic.partitions) == 2
    assert {partition.leader_id for partition in topic.partitions} == {3}


@pytest.mark.parametrize("version", [4, 9, 13])
def test_the_client_can_disable_topic_creation(client: WireClient, version: int) -> None:
    request = MetadataRequest(topics_named(f"forbidden-{version}"), allow_auto_topic_creation=False)
    (topic,) = client.request(request, version).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert topic.partitions == []


@pytest.mark.parametrize("version", VERSIONS)
def test_the_broker_can_disable_topic_creation(strict_broker: RunningBroker, version: int) -> None:
    """E5."""
    with strict_broker.connect() as client:
        make_topic(client, f"there-{version}")
        topics = client.request(
            MetadataRequest(topics_named("nowhere", f"there-{version}")), version
        ).topics
        codes = {topic.name: topic.error_code for topic in topics}
        assert codes == {
            "nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"there-{version}": ErrorCode.NONE,
        }


@pytest.mark.parametrize("version", [0, 6, 13])
@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "é", "x" * 250])
def test_invalid_names_are_rejected(
    client: WireClient, strict_broker: RunningBroker, version: int, name: str
) -> None:
    (topic,) = client.request(MetadataRequest(topics_named(name)), version).topics
    assert (topic.error_code, topic.name) == (ErrorCode.INVALID_TOPIC_EXCEPTION, name)
    with strict_broker.connect() as second_client:
        (topic,) = second_client.request(MetadataRequest(topics_named(name)), version).topics
        assert topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("version", [12, 13])
def test_topics_are_described_by_id(client: WireClient, version: int) -> None:
    topic_id = make_topic(client, f"id-{version}")
    request = MetadataRequest(
        [MetadataRequestTopic(topic_id, None), MetadataRequestTopic(UUID(int=5), None)]
    )
    result, unknown = client.request(request, version).topics
    assert (result.error_code, result.name, result.topic_id) == (0, f"id-{version}", topic_id)
    assert (unknown.error_code, unknown.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)
    assert unknown.topic_id == UUID(int=5)


@pytest.mark.parametrize("version", [10, 11])
def test_topic_ids_need_version_12(client: WireClient, version: int) -> None:
    """Versions 10 and 11 have a field for ids, but Kafka never supported it."""
    topic_id = make_topic(client, f"early-{version}")
    for topic_request in (
        MetadataRequestTopic(topic_id, None),
        MetadataRequestTopic(topic_id, "x"),
    ):
        (topic,) = client.request(MetadataRequest([topic_request]), version).topics
        assert (topic.error_code, topic.topic_id) == (ErrorCode.INVALID_REQUEST, topic_id)


@pytest.mark.parametrize("version", [8, 10, 13])
def test_authorized_operations_are_returned_on_request(client: WireClient, version: int) -> None:
    """Without an authorizer, every operation of the resource type is allowed."""
    make_topic(client, f"operations-{version}")
    request = MetadataRequest(
        topics_named(f"operations-{version}"), include_topic_authorized_operations=True
    )
    if version <= 10:
        request.include_cluster_authorized_operations = True
    response = client.request(request, version)
    topic_operations = {3, 4, 5, 6, 7, 8, 10, 11}
    assert bits(response.topics[0].topic_authorized_operations) == topic_operations
    if version <= 10:
        cluster_operations = {5, 7, 8, 9, 10, 11, 12}
        assert bits(response.cluster_authorized_operations) == cluster_operations


def supported_versions() -> dict[int, tuple[int, int]]:
    """Returns the versions of all handlers of a single node without telemetry subscriptions."""
    unserved = CLUSTER_APIS | {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
    return {
        key: (item.min_version, item.max_version)
        for key, item in HANDLERS.items()
        if key not in unserved
    }


def bits(value: int) -> set[int]:
    return {bit for bit in range(31) if value >> bit & 1}


def test_duplicate_names_are_merged(client: WireClient) -> None:
    topics = client.request(MetadataRequest(topics_named("twice", "twice")), 9).topics
    assert {(topic.name, topic.error_code) for topic in topics} == {("twice", 0)}


# --- ApiVersions


@pytest.mark.parametrize("version", range(6))
def test_api_versions_returns_the_supported_versions(client: WireClient, version: int) -> None:
    response = client.request(ApiVersionsRequest("test", "1.0"), version)
    assert response.error_code == 0
    versions = {
        api_key.api_key: (api_key.min_version, api_key.max_version) for api_key in response.api_keys
    }
    assert versions == supported_versions()
    features = {
        feature.name: (feature.min_version, feature.max_version)
        for feature in response.supported_features
    }
    if version < 3:
        assert features == {}
    elif version == 3:
        assert features == {name: span for name, span in SUPPORTED_FEATURES.items() if span[0] > 0}
    else:
        assert features == SUPPORTED_FEATURES


@pytest.mark.parametrize("version", [6, 99, 32767])
def test_an_unsupported_api_versions_version_gets_version_0(
    client: WireClient, version: int
) -> None:
    """E4: the response has the format of version 0, error 35 and the supported versions."""
    client.sock.sendall(bytes.fromhex("0000000a0012") + version.to_bytes(2) + b"\0\0\0\x07\xff\xff")
    header, response = decode_response(ApiVersionsResponse, 0, client.receive_frame())
    assert header.correlation_id == 7
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert {api_key.api_key for api_key in response.api_keys} == set(supported_versions())
    # The client retries on the same connection.
    assert client.request(ApiVersionsRequest("test", "1.0"), 3).error_code == 0


@pytest.mark.parametrize(
    ("name", "version"),
    [("", "1"), ("a", ""), ("-a", "1"), ("a b", "1"), ("a", "1.0-"), ("é", "1")],
)
def test_invalid_client_software_names_are_rejected(
    client: WireClient, name: str, version: str
) -> None:
    response = client.request(ApiVersionsRequest(name, version), 3)
    assert response.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("name", ["apache-kafka-java", "a", "librdkafka.2", "A1"])
def test_valid_client_software_names_are_accepted(
    broker: RunningBroker, client: WireClient, name: str
) -> None:
    assert client.request(ApiVersionsRequest(name, "4.0"), 4).error_code == 0


@pytest.mark.parametrize(("key", "version"), [(0, 14), (1, 19), (3, 14), (64, 0), (999, 0)])
def test_an_unsupported_request_closes_the_connection(
    broker: RunningBroker, client: WireClient, key: int, version: int
) -> None:
    """E4: the client could not read any response."""
    body = key.to_bytes(2) + version.to_bytes(2) + b"\0\0\0\x07\xff\xff" + bytes(20)
    client.sock.sendall(len(body).to_bytes(4) + body)
    assert client.is_closed()
    with broker.connect() as second_client:
        assert second_client.request(ApiVersionsRequest(), 0).error_code == 0
