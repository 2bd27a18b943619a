"""Fetches of a broker without a replica here: every partition has an error (R1, X3)."""

from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

import pytest

from penstock.core.errors import ErrorCode
from penstock.protocol.messages.fetch import FetchRequest
from penstock.security.acl import AclOperation, ResourceType
from tests.support.broker.in_process import RunningBroker, WireClient
from tests.support.broker.logins import AUTHORIZER, SASL_SETTINGS, logged_in
from tests.support.protocol.admin import allow
from tests.support.protocol.requests import fetch_request, make_topic, partitions_of, produce_values

VERSIONS = [0, 3, 4, 9, 12, 13, 14, 15, 18]
FIRST_WITH_EPOCHS = 9
FIRST_WITH_IDS = 13


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {
        **SASL_SETTINGS,
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:admin;User:ANONYMOUS",
    }


@pytest.fixture
def ann(broker: RunningBroker) -> Iterator[WireClient]:
    with logged_in(broker, "ann") as client:
        yield client


def from_broker(broker_id: int, request: FetchRequest, version: int) -> FetchRequest:
    if version >= 15:
        request.replica_state.replica_id = broker_id
    else:
        request.replica_id = broker_id
    return request


def codes(response: Any) -> list[int]:
    assert response.error_code == 0
    return [data.error_code for data in partitions_of(response).values()]


@pytest.mark.parametrize("broker_id", [0, 3])
@pytest.mark.parametrize("version", VERSIONS)
def test_every_partition_rejects_an_unknown_follower(
    client: WireClient, version: int, broker_id: int
) -> None:
    """R1: applies even to the id of this broker itself, and does not wait."""
    name = f"followed-{version}-{broker_id}"
    topic_id = make_topic(client, name)
    produce_values(client, name, b"a")
    by_id = version >= FIRST_WITH_IDS
    offsets: dict[str | UUID, dict[int, int]] = (
        {topic_id: {0: 0, 5: 0}, UUID(int=7): {0: 0}}
        if by_id
        else {name: {0: 0, 5: 0}, "unknown": {0: 0}}
    )
    request = fetch_request(offsets, max_wait_ms=15_000, min_bytes=1)
    response = client.request(from_broker(broker_id, request, version), version)
    assert codes(response) == [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert all(not data.records for data in partitions_of(response).values())


@pytest.mark.parametrize("version", [item for item in VERSIONS if item >= FIRST_WITH_EPOCHS])
def test_an_unknown_follower_with_a_leader_epoch_must_retry(
    client: WireClient, version: int
) -> None:
    """R4: a follower with the current epoch may know of a newer change, so it must retry."""
    name = f"epoch-{version}"
    topic_id = make_topic(client, name)
    topic = topic_id if version >= FIRST_WITH_IDS else name
    for epoch in (0, 1):
        request = from_broker(3, fetch_request({topic: {0: 0}}, leader_epoch=epoch), version)
        assert codes(client.request(request, version)) == [ErrorCode.UNKNOWN_LEADER_EPOCH]


@pytest.mark.parametrize("version", [2, 12, 18])
def test_followers_need_cluster_action(client: WireClient, ann: WireClient, version: int) -> None:
    """X3: READ on the topic is sufficient for consumers only."""
    name = f"rights-{version}"
    topic_id = make_topic(client, name)
    allow(client, "User:ann", AclOperation.READ, ResourceType.TOPIC, name)
    topic = topic_id if version >= FIRST_WITH_IDS else name
    request = fetch_request({topic: {0: 0, 5: 0}})
    assert codes(ann.request(request, version)) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    request = from_broker(3, request, version)
    assert codes(ann.request(request, version)) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2


def test_an_unknown_topic_id_needs_no_permission(ann: WireClient) -> None:
    """E3: an unknown id has no name that an ACL could apply to."""
    response = ann.request(fetch_request({UUID(int=9): {0: 0}}), 13)
    assert codes(response) == [ErrorCode.UNKNOWN_TOPIC_ID]
