"""Metrics that clients push, over the wire (KIP-714)."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from confluent_kafka import Producer

from penstock.broker.client_telemetry import (
    ClientTelemetry,
    LatestPushes,
    Push,
)
from penstock.controller.image import ClusterImage
from penstock.core.errors import ErrorCode
from penstock.protocol.enums import ConfigResourceType
from penstock.protocol.fields import ZERO_UUID
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from penstock.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
)
from penstock.protocol.messages.push_telemetry import PushTelemetryRequest
from penstock.records.compress import Compression, compress
from penstock.storage.checkpoint.checkpoint_files import uuid_text
from tests.support.broker.in_process import RunningBroker, WireClient, running_broker
from tests.support.protocol.admin import alter

METRICS = ConfigResourceType.CLIENT_METRICS
MAX_BYTES = 4000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with running_broker(tmp_path, {"telemetry.max.bytes": str(MAX_BYTES)}) as running:
        yield running


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[WireClient]:
    with broker.connect(client_id="app-1") as wire_client:
        yield wire_client


def subscription(client: WireClient, instance_id: UUID = ZERO_UUID) -> Any:
    return client.request(GetTelemetrySubscriptionsRequest(instance_id), 0)


def push(
    client: WireClient,
    subscribed: Any,
    metrics: bytes = b"metrics",
    codec: int = Compression.NONE,
    *,
    subscription_id: int | None = None,
    terminating: bool = False,
) -> ErrorCode:
    request = PushTelemetryRequest(
        subscribed.client_instance_id,
        subscribed.subscription_id if subscription_id is None else subscription_id,
        terminating,
        codec,
        metrics,
    )
    return ErrorCode(client.request(request, 0).error_code)


def pushed(broker: RunningBroker) -> dict[UUID, Push]:
    def read(running: Any) -> dict[UUID, Push]:
        receiver = running.telemetry.receiver
        assert isinstance(receiver, LatestPushes)
        return dict(receiver.pushes)

    return broker.call(read)


def test_without_subscriptions_no_metrics_are_requested(client: WireClient) -> None:
    subscribed = subscription(client)
    assert subscribed.error_code == 0
    assert subscribed.client_instance_id != ZERO_UUID
    assert subscribed.requested_metrics == []
    assert subscribed.push_interval_ms == 300_000
    assert subscribed.telemetry_max_bytes == MAX_BYTES
    assert subscribed.delta_temporality
    assert subscribed.accepted_compression_types == [4, 3, 1, 2]


def test_a_client_gets_the_metrics_of_all_matching_subscriptions(client: WireClient) -> None:
    alter(client, METRICS, "a", {"metrics": "x.,y.", "interval.ms": "5000", "match": ""})
    alter(
        client,
        METRICS,
        "b",
        {"metrics": "z.,x.", "interval.ms": "1000", "match": "client_id=app-.*"},
    )
    alter(client, METRICS, "c", {"metrics": "*", "match": "client_source_address=10.*"})
    client.request(ApiVersionsRequest("my-client", "1.2.3"), 3)
    subscribed = subscription(client)
    assert sorted(subscribed.requested_metrics) == ["x.", "y.", "z."]
    assert subscribed.push_interval_ms == 1000
    match = "client_software_name=my-client,client_software_version=1\\..*,client_id=app-1"
    alter(client, METRICS, "d", {"metrics": "*", "match": match})
    renewed = subscription(client, subscribed.client_instance_id)
    assert renewed.requested_metrics == ["*"]
    assert renewed.subscription_id != subscribed.subscription_id
    alter(client, METRICS, "d", {"match": f"client_instance_id={uuid_text(uuid4())}"})
    renewed = subscription(client, subscribed.client_instance_id)
    assert sorted(renewed.requested_metrics) == ["x.", "y.", "z."]
    assert renewed.subscription_id == subscribed.subscription_id


@pytest.mark.parametrize("codec", list(Compression))
def test_pushed_metrics_reach_the_receiver(
    broker: RunningBroker, client: WireClient, codec: Compression
) -> None:
    subscribed = subscription(client)
    assert push(client, subscribed, compress(codec, b"metrics" * 50), codec) is ErrorCode.NONE
    (result,) = pushed(broker).values()
    assert result.client_instance_id == subscribed.client_instance_id
    assert result.metrics == b"metrics" * 50
    assert result.client["client_id"] == "app-1"
    assert result.client["client_source_address"] == "127.0.0.1"


def test_requests_before_the_push_interval_are_throttled(client: WireClient) -> None:
    subscribed = subscription(client)
    assert subscription(client, subscribed.client_instance_id).error_code == (
        ErrorCode.THROTTLING_QUOTA_EXCEEDED
    )
    assert push(client, subscribed) is ErrorCode.NONE
    assert push(client, subscribed) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert push(client, subscribed, terminating=True) is ErrorCode.NONE
    assert push(client, subscribed, terminating=True) is ErrorCode.INVALID_REQUEST


def test_an_outdated_subscription_is_rejected_and_can_be_renewed_at_once(
    client: WireClient,
) -> None:
    subscribed = subscription(client)
    alter(client, METRICS, "new", {"metrics": "*"})
    assert push(client, subscribed) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    renewed = subscription(client, subscribed.client_instance_id)
    assert (renewed.error_code, renewed.requested_metrics) == (0, ["*"])
    assert push(client, renewed) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("metrics", "codec", "code"),
    [
        (b"x" * (MAX_BYTES + 1), Compression.NONE, ErrorCode.TELEMETRY_TOO_LARGE),
        (
            compress(Compression.ZSTD, b"x" * (10 * MAX_BYTES + 1)),
            Compression.ZSTD,
            ErrorCode.TELEMETRY_TOO_LARGE,
        ),
        (b"x", 9, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (b"no gzip", Compression.GZIP, ErrorCode.INVALID_RECORD),
    ],
)
def test_an_invalid_push_is_rejected(
    broker: RunningBroker, client: WireClient, metrics: bytes, codec: int, code: ErrorCode
) -> None:
    assert push(client, subscription(client), metrics, codec) is code
    assert pushed(broker) == {}


def test_a_push_without_an_instance_id_is_rejected(client: WireClient) -> None:
    request = PushTelemetryRequest(ZERO_UUID, 1, False, 0, b"x")
    assert client.request(request, 0).error_code == ErrorCode.INVALID_REQUEST


def test_librdkafka_pushes_its_metrics(broker: RunningBroker, client: WireClient) -> None:
    """M4: librdkafka fetches its subscription and pushes the requested metrics until it ends."""
    alter(client, METRICS, "all", {"metrics": "*", "interval.ms": "100", "match": "client_id=real"})
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "real"})
    deadline = time.monotonic() + 15
    while not pushed(broker):
        assert time.monotonic() < deadline, "nothing was pushed"
        producer.poll(0.05)
    (result,) = pushed(broker).values()
    assert result.client["client_software_name"] == "confluent-kafka-python"
    assert b"org.apache.kafka.producer." in result.metrics


def test_the_receiver_limits_clients_and_bytes() -> None:
    latest = LatestPushes(max_clients=2, max_bytes=10)
    ids = [UUID(int=number) for number in range(2, 6)]
    for number, instance_id in enumerate(ids[:3]):
        latest.export(Push(instance_id, {}, b"abc", number, False))
    assert list(latest.pushes) == ids[1:3]
    latest.export(Push(ids[1], {}, b"12345678", 9, False))
    assert list(latest.pushes) == [ids[1]]
    latest.export(Push(ids[3], {}, b"x" * 11, 9, False))
    assert list(latest.pushes) == []


def test_every_client_gets_a_unique_instance_id() -> None:
    random_ids = iter([UUID(int=1), UUID(int=7), UUID(int=7), UUID(int=8)])
    telemetry = ClientTelemetry(ClusterImage(), MAX_BYTES, lambda: next(random_ids))
    first, _ = telemetry.subscribe(ZERO_UUID, {}, 0)
    second, _ = telemetry.subscribe(ZERO_UUID, {}, 0)
    assert (first, second) == (UUID(int=7), UUID(int=8))
