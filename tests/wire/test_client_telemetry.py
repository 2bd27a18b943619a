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
    with broker.connect(client_id="app-1") as one:
        yield one


def subscription(client: WireClient, instance_id: UUID = ZERO_UUID) -> Any:
    return client.request(GetTelemetrySubscriptionsRequest(instance_id), 0)


def push(
    client: WireClient,
    given: Any,
    metrics: bytes = b"metrics",
    codec: int = Compression.NONE,
    *,
    subscription_id: int | None = None,
    terminating: bool = False,
) -> ErrorCode:
    request = PushTelemetryRequest(
        given.client_instance_id,
        given.subscription_id if subscription_id is None else subscription_id,
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


def test_without_subscriptions_nothing_is_asked_for(client: WireClient) -> None:
    given = subscription(client)
    assert given.error_code == 0
    assert given.client_instance_id != ZERO_UUID
    assert given.requested_metrics == []
    assert given.push_interval_ms == 300_000
    assert given.telemetry_max_bytes == MAX_BYTES
    assert given.delta_temporality
    assert given.accepted_compression_types == [4, 3, 1, 2]


def test_a_client_gets_what_all_subscriptions_that_match_it_name(client: WireClient) -> None:
    alter(client, METRICS, "a", {"metrics": "x.,y.", "interval.ms": "5000", "match": ""})
    alter(
        client,
        METRICS,
        "b",
        {"metrics": "z.,x.", "interval.ms": "1000", "match": "client_id=app-.*"},
    )
    alter(client, METRICS, "c", {"metrics": "*", "match": "client_source_address=10.*"})
    client.request(ApiVersionsRequest("my-client", "1.2.3"), 3)
    given = subscription(client)
    assert sorted(given.requested_metrics) == ["x.", "y.", "z."]
    assert given.push_interval_ms == 1000
    match = "client_software_name=my-client,client_software_version=1\\..*,client_id=app-1"
    alter(client, METRICS, "d", {"metrics": "*", "match": match})
    again = subscription(client, given.client_instance_id)
    assert again.requested_metrics == ["*"]
    assert again.subscription_id != given.subscription_id
    alter(client, METRICS, "d", {"match": f"client_instance_id={uuid_text(uuid4())}"})
    again = subscription(client, given.client_instance_id)
    assert sorted(again.requested_metrics) == ["x.", "y.", "z."]
    assert again.subscription_id == given.subscription_id


@pytest.mark.parametrize("codec", list(Compression))
def test_what_is_pushed_gets_to_the_receiver(
    broker: RunningBroker, client: WireClient, codec: Compression
) -> None:
    given = subscription(client)
    assert push(client, given, compress(codec, b"metrics" * 50), codec) is ErrorCode.NONE
    (result,) = pushed(broker).values()
    assert result.client_instance_id == given.client_instance_id
    assert result.metrics == b"metrics" * 50
    assert result.client["client_id"] == "app-1"
    assert result.client["client_source_address"] == "127.0.0.1"


def test_who_comes_too_early_is_told_so(client: WireClient) -> None:
    given = subscription(client)
    assert subscription(client, given.client_instance_id).error_code == (
        ErrorCode.THROTTLING_QUOTA_EXCEEDED
    )
    assert push(client, given) is ErrorCode.NONE
    assert push(client, given) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert push(client, given, terminating=True) is ErrorCode.NONE
    assert push(client, given, terminating=True) is ErrorCode.INVALID_REQUEST


def test_an_old_subscription_is_refused_and_a_new_one_given_at_once(client: WireClient) -> None:
    given = subscription(client)
    alter(client, METRICS, "new", {"metrics": "*"})
    assert push(client, given) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    again = subscription(client, given.client_instance_id)
    assert (again.error_code, again.requested_metrics) == (0, ["*"])
    assert push(client, again) is ErrorCode.NONE


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
def test_what_cannot_be_taken(
    broker: RunningBroker, client: WireClient, metrics: bytes, codec: int, code: ErrorCode
) -> None:
    assert push(client, subscription(client), metrics, codec) is code
    assert pushed(broker) == {}


def test_a_push_needs_an_id(client: WireClient) -> None:
    request = PushTelemetryRequest(ZERO_UUID, 1, False, 0, b"x")
    assert client.request(request, 0).error_code == ErrorCode.INVALID_REQUEST


def test_a_real_client_pushes(broker: RunningBroker, client: WireClient) -> None:
    """M4: librdkafka asks, and pushes what was asked for until it ends."""
    alter(client, METRICS, "all", {"metrics": "*", "interval.ms": "100", "match": "client_id=real"})
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "real"})
    deadline = time.monotonic() + 15
    while not pushed(broker):
        assert time.monotonic() < deadline, "nothing was pushed"
        producer.poll(0.05)
    (result,) = pushed(broker).values()
    assert result.client["client_software_name"] == "confluent-kafka-python"
    assert b"org.apache.kafka.producer." in result.metrics


def test_the_receiver_keeps_little() -> None:
    latest = LatestPushes(max_clients=2, max_bytes=10)
    ids = [UUID(int=number) for number in range(2, 6)]
    for number, instance_id in enumerate(ids[:3]):
        latest.export(Push(instance_id, {}, b"abc", number, False))
    assert list(latest.pushes) == ids[1:3]
    latest.export(Push(ids[1], {}, b"12345678", 9, False))
    assert list(latest.pushes) == [ids[1]]
    latest.export(Push(ids[3], {}, b"x" * 11, 9, False))
    assert list(latest.pushes) == []


def test_few_clients_are_remembered_and_each_gets_an_id_of_its_own() -> None:
    drawn = iter([UUID(int=1), UUID(int=7), UUID(int=7), UUID(int=8)])
    telemetry = ClientTelemetry(ClusterImage(), MAX_BYTES, lambda: next(drawn))
    first, _ = telemetry.subscribe(ZERO_UUID, {}, 0)
    second, _ = telemetry.subscribe(ZERO_UUID, {}, 0)
    assert (first, second) == (UUID(int=7), UUID(int=8))
