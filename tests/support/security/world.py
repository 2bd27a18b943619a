"""What the authorization matrix asks for: topics, groups, a transactional id and ACLs."""

import time
from collections.abc import Callable, Container
from dataclasses import dataclass
from functools import partial
from typing import Final
from uuid import UUID

from penstock.core.errors import ErrorCode
from penstock.protocol.api_key import ApiKey
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from penstock.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from penstock.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.protocol.messages.create_acls import CreateAclsRequest
from penstock.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from penstock.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from penstock.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.security.acl import AclOperation
from tests.support.broker.in_process import WireClient
from tests.support.protocol.requests import produce_values
from tests.support.security.principals import PRINCIPALS

NODE_ID: Final = "1"
TOPIC: Final = "allowed-topic"
MISSING: Final = "allowed-missing"
DOOMED: Final = "allowed-doomed"
OTHER_DOOMED: Final = "other-doomed"
"""The topics that DeleteTopics deletes; they are created again then."""
OTHER: Final = "other-topic"
"""Only the super user has rights on it."""
TOPICS: Final = (TOPIC, DOOMED, OTHER, OTHER_DOOMED)

GROUP: Final = "allowed-group"
DOOMED_GROUP: Final = "allowed-doomed-group"
OTHER_GROUP: Final = "other-group"
TXN_GROUP: Final = "allowed-txn-group"
"""A group that has nothing."""
MODERN_GROUP: Final = "allowed-consumers"
"""A group of the consumer protocol (KIP-848) with one member, which reads `TOPIC`."""
MIXED_GROUP: Final = "allowed-mixed"
"""One whose member reads `OTHER` too."""
TXN: Final = "allowed-transactions"
OTHER_TXN: Final = "other-transactions"
OPEN_TXN: Final = "allowed-open"
"""One with an open transaction, which has written to `TOPIC` and `OTHER`."""
SECRET_NAMES: Final = (OTHER, OTHER_DOOMED, OTHER_GROUP, OTHER_TXN)
"""Of what only the super user has rights on."""
MEMBER: Final = "ghost"
"""A member that no group has."""
_TIMEOUT_S: Final = 60.0


@dataclass
class World:
    """What the requests have to know of a broker's resources."""

    topic_ids: dict[str, UUID]
    """By name."""
    token: bytes
    """The HMAC of a delegation token of the super user; empty if the broker has no tokens."""

    @property
    def topics(self) -> dict[UUID, str]:
        return {topic_id: name for name, topic_id in self.topic_ids.items()}


def create_world(admin: WireClient, apis: Container[ApiKey]) -> World:
    """Creates everything that a broker can have that serves these APIs.

    `admin` is a connection of the super user.
    """
    for topic in TOPICS:
        create_topic(admin, topic)
    _wait(lambda: len(_topic_ids(admin)) == len(TOPICS), "the topics")
    for topic in (TOPIC, OTHER):
        produce_values(admin, topic, b"value")
    for kind, name in ((0, GROUP), (1, TXN)):
        _wait(partial(_find_coordinator, admin, kind, name), "a coordinator")
    for group in (GROUP, DOOMED_GROUP, OTHER_GROUP):
        _wait(partial(commit_offset, admin, group), f"the offset of {group}")
    for name in (TXN, OTHER_TXN):
        _wait(partial(_init_transactions, admin, name), "a transactional id")
    begin_transaction(admin)
    if ApiKey.CONSUMER_GROUP_HEARTBEAT in apis:
        join_group(admin, MODERN_GROUP, TOPIC)
        join_group(admin, MIXED_GROUP, TOPIC, OTHER)
    add_scram_user(admin)
    grant_rights(admin)
    has_tokens = ApiKey.CREATE_DELEGATION_TOKEN in apis
    return World(_topic_ids(admin), create_token(admin) if has_tokens else b"")


def grant_rights(admin: WireClient) -> None:
    """Creates the ACLs of all principals."""
    creations = [acl for principal in PRINCIPALS for acl in principal.acls()]
    results = admin.request(CreateAclsRequest(creations), 3).results
    failures = [
        result.error_message
        for acl, result in zip(creations, results, strict=True)
        # Kafka 3.9 does not know this operation.
        if result.error_code and acl.operation != AclOperation.TWO_PHASE_COMMIT
    ]
    assert not failures, failures


def create_topic(admin: WireClient, name: str) -> UUID | None:
    """Creates a topic with one partition; returns its id, or None if the topic exists already."""
    request = CreateTopicsRequest([CreatableTopic(name, 1, 1)], timeout_ms=10_000)
    (result,) = admin.request(request, 7).topics
    assert result.error_code in (0, ErrorCode.TOPIC_ALREADY_EXISTS), result.error_message
    topic_id: UUID = result.topic_id
    return topic_id if result.error_code == 0 else None


def commit_offset(admin: WireClient, group: str) -> bool:
    """Commits an offset of a group that has no members; returns whether that succeeded."""
    topics = [
        OffsetCommitRequestTopic(name, partitions=[OffsetCommitRequestPartition(0, 0)])
        for name in (TOPIC, OTHER)
    ]
    response = admin.request(OffsetCommitRequest(group, topics=topics), 8)
    return {part.error_code for topic in response.topics for part in topic.partitions} == {0}


def restore_topics(admin: WireClient, world: World) -> None:
    """Creates the topics again that were deleted, and waits until the broker knows them."""
    for name in (DOOMED, OTHER_DOOMED):
        if (topic_id := create_topic(admin, name)) is not None:
            world.topic_ids[name] = topic_id
    # A broker may serve the topics of before for a moment.
    _wait(lambda: _topic_ids(admin) == world.topic_ids, "the topics again")


def restore_groups(admin: WireClient, world: World) -> None:
    """Commits the offsets of groups again that were deleted."""
    for group in (DOOMED_GROUP, OTHER_GROUP):
        assert commit_offset(admin, group), group


def begin_transaction(admin: WireClient) -> None:
    """Begins the transaction of `OPEN_TXN`; it stays open while the tests run."""
    producer = admin.request(InitProducerIdRequest(OPEN_TXN, 900_000), 4)
    assert producer.error_code == 0, producer.error_code
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=OPEN_TXN,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name, [0]) for name in (TOPIC, OTHER)],
    )
    for topic in admin.request(request, 3).results_by_topic_v3_and_below:
        assert {part.partition_error_code for part in topic.results_by_partition} == {0}


def join_group(admin: WireClient, group: str, *topics: str) -> None:
    """Joins a group of the consumer protocol; the session does not expire while the tests run."""
    join = ConsumerGroupHeartbeatRequest(
        group,
        "matrix-member",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=list(topics),
        topic_partitions=[],
    )
    response = admin.request(join, 1)
    assert response.error_code == 0, response.error_message


def add_scram_user(admin: WireClient) -> None:
    """Adds a user who can log in with SCRAM; nobody does."""
    upsertion = ScramCredentialUpsertion("scram-user", 1, 4096, b"salt", bytes(32))
    request = AlterUserScramCredentialsRequest(upsertions=[upsertion])
    (result,) = admin.request(request, 0).results
    assert result.error_code == 0, result.error_message


def create_token(admin: WireClient) -> bytes:
    """Creates a delegation token of the super user; returns its HMAC."""
    response = admin.request(CreateDelegationTokenRequest(max_lifetime_ms=3_600_000), 2)
    assert response.error_code == 0, response.error_code
    hmac: bytes = response.hmac
    _wait(lambda: hmac in _tokens(admin), "the delegation token")
    return hmac


def restore_tokens(admin: WireClient, world: World) -> None:
    """Removes the tokens that others have created."""
    # A broker learns of tokens in their order: when it knows this one, it knows the others too.
    create_token(admin)
    for hmac in _tokens(admin) - {world.token}:
        response = admin.request(ExpireDelegationTokenRequest(hmac, -1), 2)
        assert response.error_code == 0, response.error_code
    _wait(lambda: _tokens(admin) == {world.token}, "the end of the other tokens")


def _find_coordinator(admin: WireClient, kind: int, name: str) -> bool:
    """Kafka creates the topic of the coordinator with this request."""
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[name])
    (coordinator,) = admin.request(request, 4).coordinators
    return bool(coordinator.error_code == ErrorCode.NONE)


def _init_transactions(admin: WireClient, name: str) -> bool:
    response = admin.request(InitProducerIdRequest(name, 60_000), 4)
    return bool(response.error_code == ErrorCode.NONE)


def _tokens(admin: WireClient) -> set[bytes]:
    response = admin.request(DescribeDelegationTokenRequest(None), 2)
    assert response.error_code == 0, response.error_code
    return {token.hmac for token in response.tokens}


def _topic_ids(admin: WireClient) -> dict[str, UUID]:
    names = [MetadataRequestTopic(name=name) for name in TOPICS]
    response = admin.request(MetadataRequest(names, allow_auto_topic_creation=False), 12)
    return {
        topic.name: topic.topic_id
        for topic in response.topics
        if not topic.error_code and all(part.leader_id >= 0 for part in topic.partitions)
    }


def _wait(ready: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while not ready():
        assert time.monotonic() < deadline, f"timed out: {what}"
        time.sleep(0.02)
