"""Client quotas over the wire: set, described and applied at once (X4)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.core.errors import ErrorCode
from penstock.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from penstock.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from penstock.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from penstock.records.build import build_batch
from penstock.records.record import Record
from penstock.security.scram_credential import ScramMechanism
from tests.support.broker.in_process import RunningBroker, WireClient, running_broker
from tests.support.broker.logins import set_password
from tests.support.protocol.admin import BROKER, alter, create_topic, produce

Entity = dict[str, str | None]
EXACT, DEFAULT, ANY = 0, 1, 2


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with running_broker(tmp_path) as running:
        yield running


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[WireClient]:
    with broker.connect(client_id="app") as first:
        yield first


def set_quota(
    client: WireClient,
    entity: Entity,
    quotas: dict[str, float | None],
    *,
    version: int = 1,
    validate_only: bool = False,
) -> ErrorCode:
    ops = [OpData(key, value or 0.0, value is None) for key, value in quotas.items()]
    identity = [AlterClientQuotasRequestEntityData(*part) for part in entity.items()]
    entry = AlterClientQuotasRequestEntryData(identity, ops)
    response = client.request(AlterClientQuotasRequest([entry], validate_only), version)
    (result,) = response.entries
    assert {part.entity_type: part.entity_name for part in result.entity} == entity
    return ErrorCode(result.error_code)


def quotas_of(
    client: WireClient, *components: ComponentData, strict: bool = False, version: int = 1
) -> list[tuple[Entity, dict[str, float]]]:
    response = client.request(DescribeClientQuotasRequest(list(components), strict), version)
    assert response.error_code == 0, response.error_message
    return [
        (
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in response.entries
    ]


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_set_described_and_removed(client: WireClient, version: int) -> None:
    user_and_client: Entity = {"user": "ann", "client-id": None}
    rates: dict[str, float | None] = {"producer_byte_rate": 1000.0, "request_percentage": 12.5}
    assert set_quota(client, user_and_client, rates, version=version) is ErrorCode.NONE
    assert set_quota(client, {"user": "ann"}, {"consumer_byte_rate": 5.0}) is ErrorCode.NONE
    users = ComponentData("user", EXACT, "ann")
    results = quotas_of(client, users, version=version)
    assert (user_and_client, rates) in results
    assert ({"user": "ann"}, {"consumer_byte_rate": 5.0}) in results
    assert quotas_of(client, users, strict=True) == [({"user": "ann"}, {"consumer_byte_rate": 5.0})]
    assert quotas_of(client, users, ComponentData("client-id", DEFAULT, None)) == [
        (user_and_client, rates)
    ]
    assert quotas_of(client, ComponentData("user", ANY, None), strict=True) == [
        ({"user": "ann"}, {"consumer_byte_rate": 5.0})
    ]
    assert set_quota(client, user_and_client, {"producer_byte_rate": None}) is ErrorCode.NONE
    assert (user_and_client, {"request_percentage": 12.5}) in quotas_of(client)
    assert set_quota(client, user_and_client, {"request_percentage": None}) is ErrorCode.NONE
    assert quotas_of(client) == [({"user": "ann"}, {"consumer_byte_rate": 5.0})]


@pytest.mark.parametrize(
    ("entity", "quotas"),
    [
        ({"user": "ann"}, {"no_such_rate": 1.0}),
        ({"user": "ann"}, {"producer_byte_rate": -1.0}),
        ({"user": "ann"}, {"producer_byte_rate": 1.5}),
        ({"user": "ann"}, {"connection_creation_rate": 1.0}),
        ({"ip": "127.0.0.1"}, {"producer_byte_rate": 1.0}),
        ({"ip": "no address"}, {"connection_creation_rate": 1.0}),
        ({"nobody": "x"}, {"producer_byte_rate": 1.0}),
        ({}, {"producer_byte_rate": 1.0}),
    ],
)
def test_invalid_quotas_are_rejected(
    client: WireClient, entity: Entity, quotas: dict[str, float | None]
) -> None:
    assert set_quota(client, entity, quotas) is ErrorCode.INVALID_REQUEST
    assert quotas_of(client) == []


def test_validate_only_changes_nothing(client: WireClient) -> None:
    quota: dict[str, float | None] = {"producer_byte_rate": 1.0}
    assert set_quota(client, {"user": "ann"}, quota, validate_only=True) is ErrorCode.NONE
    assert quotas_of(client) == []


def test_an_invalid_filter_is_rejected(client: WireClient) -> None:
    request = DescribeClientQuotasRequest([ComponentData("user", EXACT, None)])
    response = client.request(request, 1)
    assert (response.error_code, response.entries) == (ErrorCode.INVALID_REQUEST, None)
    request = DescribeClientQuotasRequest([ComponentData("colour", ANY, None)])
    assert client.request(request, 1).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_a_password_is_independent_of_quotas(client: WireClient) -> None:
    assert set_password(client, ScramMechanism.SCRAM_SHA_256, "ann", "pw").error_code == 0
    assert quotas_of(client) == []
    set_quota(client, {"user": "ann"}, {"producer_byte_rate": 1.0})
    set_quota(client, {"user": "ann"}, {"producer_byte_rate": None})
    assert quotas_of(client) == []
    password = set_password(client, ScramMechanism.SCRAM_SHA_256, "ann", "pw")
    assert password.error_code == 0


# --- effects


def produce_throttle(client: WireClient, size: int) -> int:
    batch = build_batch([Record(0, 1_700_000_000_000, None, b"x" * size)])
    data = [TopicProduceData("t", partition_data=[PartitionProduceData(0, bytes(batch))])]
    response = client.request(ProduceRequest(acks=1, timeout_ms=1000, topic_data=data), 9)
    assert response.responses[0].partition_responses[0].error_code == 0
    throttle_ms: int = response.throttle_time_ms
    return throttle_ms


def test_a_producer_above_its_quota_is_throttled(broker: RunningBroker, client: WireClient) -> None:
    create_topic(client, "t")
    assert produce_throttle(client, 50_000) == 0
    set_quota(client, {"client-id": "slow"}, {"producer_byte_rate": 1000.0})
    assert produce_throttle(client, 50_000) == 0
    with broker.connect(client_id="slow") as slow:
        # 50,000 bytes at 1,000 a second, over windows of 10 to 11 seconds in all
        assert 30_000 < produce_throttle(slow, 50_000) < 50_000


def test_a_consumer_above_its_quota_gets_an_empty_response(
    broker: RunningBroker, client: WireClient
) -> None:
    create_topic(client, "t")
    for _ in range(4):
        produce(client, "t", b"x" * 9000)
    set_quota(client, {"user": None}, {"consumer_byte_rate": 1000.0})
    topics = [
        FetchTopic("t", partitions=[FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)])
    ]
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=topics)
    with broker.connect() as reader:
        first: Any = reader.request(request, 11)
        # The fetch is limited to the bytes that the quota allows at once.
        assert 9000 < len(first.responses[0].partitions[0].records) < 20_000
        second: Any = reader.request(request, 11)
        assert second.throttle_time_ms > 0
        assert second.responses == []


def test_requests_above_the_quota_are_throttled(broker: RunningBroker, client: WireClient) -> None:
    set_quota(client, {"client-id": "busy"}, {"request_percentage": 0.000001})
    with broker.connect(client_id="busy") as busy:
        # The quota delays a client by at most one second.
        assert busy.request(ApiVersionsRequest("x", "1"), 3).throttle_time_ms == 1000


def test_the_rate_of_topic_creations_is_limited(broker: RunningBroker, client: WireClient) -> None:
    set_quota(client, {"client-id": "maker"}, {"controller_mutation_rate": 0.1})
    with broker.connect(client_id="maker") as maker:
        codes = []
        for number in range(2):
            request = CreateTopicsRequest([CreatableTopic(f"made-{number}", 5, 1)], 1000)
            response = maker.request(request, 6)
            codes.append(response.topics[0].error_code)
            if codes[-1]:
                assert response.throttle_time_ms > 0
        assert codes == [0, ErrorCode.THROTTLING_QUOTA_EXCEEDED]


def test_connections_of_an_address_above_its_rate_are_closed(
    broker: RunningBroker, client: WireClient
) -> None:
    set_quota(client, {"ip": "127.0.0.1"}, {"connection_creation_rate": 1.0})
    opened = [broker.connect() for _ in range(12)]
    try:
        assert opened[0].request(ApiVersionsRequest("x", "1"), 3).error_code == 0
        opened[-1].send(ApiVersionsRequest("x", "1"), 3)
        assert opened[-1].is_closed()
    finally:
        for item in opened:
            item.close()
    set_quota(client, {"ip": "127.0.0.1"}, {"connection_creation_rate": None})
    with broker.connect() as new_connection:
        assert new_connection.request(ApiVersionsRequest("x", "1"), 3).error_code == 0


def test_the_connection_rate_of_a_broker_is_limited(
    broker: RunningBroker, client: WireClient
) -> None:
    alter(client, BROKER, "", {"max.connection.creation.rate": "1"})
    opened = [broker.connect() for _ in range(13)]
    try:
        late = opened[-1]
        late.send(ApiVersionsRequest("x", "1"), 3)
        late.sock.settimeout(0.3)
        with pytest.raises(TimeoutError):
            late.receive_frame()
        late.sock.settimeout(20)
        assert late.receive_frame()
    finally:
        for item in opened:
            item.close()


def test_quotas_survive_a_restart(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker, broker.connect() as client:
        create_topic(client, "t")
        set_quota(client, {"user": None}, {"producer_byte_rate": 1000.0})
    with running_broker(tmp_path) as broker, broker.connect() as client:
        assert quotas_of(client) == [({"user": None}, {"producer_byte_rate": 1000.0})]
        assert produce_throttle(client, 50_000) > 0


def test_a_throttled_full_fetch_opens_no_fetch_session(
    broker: RunningBroker, client: WireClient
) -> None:
    """Otherwise each retry would leave a session behind, until the cache is full (X5)."""
    create_topic(client, "slow")
    for _ in range(3):
        produce(client, "slow", b"x" * 1000)
    assert set_quota(client, {"client-id": "app"}, {"consumer_byte_rate": 1000.0}) is ErrorCode.NONE
    partition = FetchPartition(0, fetch_offset=0, partition_max_bytes=2000)
    full_fetch = FetchRequest(
        max_wait_ms=0,
        max_bytes=1 << 20,
        session_id=0,
        session_epoch=0,
        topics=[FetchTopic("slow", partitions=[partition])],
    )
    opened: set[int] = set()
    throttled = 0
    for _ in range(30):
        with broker.connect(client_id="app") as consumer:
            response = consumer.request(full_fetch, 11)
        if response.throttle_time_ms:
            throttled += 1
            assert (response.session_id, response.responses) == (0, [])
        else:
            opened.add(response.session_id)
    assert throttled
    assert broker.call(lambda inside: len(inside.fetch_sessions)) == len(opened)
