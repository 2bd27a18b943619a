"""Visibility of the offsets of a group (C3, X3)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.core.errors import ErrorCode
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from penstock.security.acl import AclOperation, ResourceType
from tests.support.broker.in_process import WireClient, running_broker
from tests.support.broker.logins import AUTHORIZER, SASL_SETTINGS, logged_in
from tests.support.protocol.admin import allow, create_topic

SETTINGS = {**SASL_SETTINGS, "authorizer.class.name": AUTHORIZER, "super.users": "User:admin"}
TOPICS = ("open", "secret")
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture
def ann(tmp_path: Path) -> Iterator[WireClient]:
    """A client that may describe the group and one of the two topics with committed offsets."""
    with running_broker(tmp_path, SETTINGS) as broker:
        with logged_in(broker, "admin") as admin:
            for topic in TOPICS:
                create_topic(admin, topic)
            assert admin.request(FindCoordinatorRequest(key="g"), 2).error_code == 0
            offsets = [
                OffsetCommitRequestTopic(name, partitions=[OffsetCommitRequestPartition(0, 7, 3)])
                for name in TOPICS
            ]
            admin.request(OffsetCommitRequest("g", topics=offsets), 8)
            allow(admin, "User:ann", AclOperation.DESCRIBE, ResourceType.GROUP, "g")
            allow(admin, "User:ann", AclOperation.DESCRIBE, ResourceType.TOPIC, "open")
        with logged_in(broker, "ann") as client:
            yield client


def fetched(client: WireClient, version: int, topics: list[str] | None) -> dict[str, Any]:
    if version < 8:
        old = None if topics is None else [OffsetFetchRequestTopic(name, [0]) for name in topics]
        result = client.request(OffsetFetchRequest("g", old), version).topics
    else:
        new = (
            None
            if topics is None
            else [OffsetFetchRequestTopics(n, partition_indexes=[0]) for n in topics]
        )
        group = OffsetFetchRequestGroup("g", topics=new)
        result = client.request(OffsetFetchRequest(groups=[group]), version).groups[0].topics
    return {topic.name: topic.partitions[0] for topic in result}


@pytest.mark.parametrize("version", [5, 8])
def test_a_requested_topic_without_permission_has_an_error(ann: WireClient, version: int) -> None:
    result = fetched(ann, version, list(TOPICS))
    assert (result["open"].error_code, result["open"].committed_offset) == (0, 7)
    secret = result["secret"]
    assert (secret.error_code, secret.committed_offset) == (DENIED, -1)
    assert secret.committed_leader_epoch == -1


@pytest.mark.parametrize("version", [5, 8])
def test_topics_without_permission_are_omitted_from_all_topics(
    ann: WireClient, version: int
) -> None:
    assert list(fetched(ann, version, None)) == ["open"]
