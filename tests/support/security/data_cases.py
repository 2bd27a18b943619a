"""The matrix's requests of producers and consumers, without groups."""

from typing import Final
from uuid import UUID

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import ZERO_UUID, Message
from penstock.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from penstock.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersTopicRequest,
)
from penstock.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsTopicRequest,
)
from penstock.protocol.messages.describe_transactions import DescribeTransactionsRequest
from penstock.protocol.messages.end_txn import EndTxnRequest
from penstock.protocol.messages.fetch import (
    FetchPartition,
    FetchReplicaState,
    FetchRequest,
    FetchTopic,
)
from penstock.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
)
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.protocol.messages.list_transactions import ListTransactionsRequest
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from penstock.protocol.messages.push_telemetry import PushTelemetryRequest
from penstock.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest
from penstock.records.build import build_batch
from penstock.records.record import Record
from tests.support.protocol.requests import NOW, batch_of
from tests.support.security.case import Case
from tests.support.security.world import (
    MISSING,
    OPEN_TXN,
    OTHER,
    OTHER_GROUP,
    OTHER_TXN,
    TOPIC,
    TXN,
    TXN_GROUP,
    World,
)

_LATEST: Final = -1
_FIRST_PRODUCE_WITH_IDS: Final = 13
_FIRST_FETCH_WITH_IDS: Final = 13
_FIRST_FETCH_WITH_REPLICA_STATE: Final = 15
_FIRST_BATCHED_ADD: Final = 4
_FOLLOWER: Final = 7
_PRODUCER_ID: Final = 123_456
"""No producer has it."""
_NAMES: Final = (TOPIC, MISSING, OTHER)
_TOO_LONG: Final = "allowed-" + "x" * 250
"""A name that no topic can have: asking for it creates nothing."""


def _reference(world: World, name: str) -> UUID:
    return world.topic_ids.get(name, UUID(int=77))


def _produce(world: World, version: int, transactional_id: str | None = None) -> Message:
    data = [PartitionProduceData(0, batch_of(b"value"))]
    if transactional_id is not None:
        record = Record(0, NOW, None, b"value")
        batch = build_batch(
            [record],
            producer_id=_PRODUCER_ID,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
        data = [PartitionProduceData(0, bytes(batch))]
    topics = [
        TopicProduceData(name, ZERO_UUID, data)
        if version < _FIRST_PRODUCE_WITH_IDS
        else TopicProduceData("", _reference(world, name), data)
        for name in _NAMES
    ]
    return ProduceRequest(transactional_id, -1, 5000, topics)


def _fetch(world: World, version: int, replica_id: int = -1) -> Message:
    partition = FetchPartition(0, fetch_offset=0, partition_max_bytes=1000)
    topics = [
        FetchTopic(name, ZERO_UUID, [partition])
        if version < _FIRST_FETCH_WITH_IDS
        else FetchTopic("", _reference(world, name), [partition])
        for name in _NAMES
    ]
    request = FetchRequest(max_bytes=10_000, topics=topics)
    if version >= _FIRST_FETCH_WITH_REPLICA_STATE:
        request.replica_state = FetchReplicaState(replica_id)
    else:
        request.replica_id = replica_id
    return request


def _list_offsets(world: World, version: int) -> Message:
    topics = [ListOffsetsTopic(name, [ListOffsetsPartition(0, -1, _LATEST)]) for name in _NAMES]
    return ListOffsetsRequest(-1, topics=topics)


def _metadata(version: int, *names: str) -> MetadataRequest:
    request = MetadataRequest([MetadataRequestTopic(name=name) for name in names])
    if version >= 8:
        request.include_topic_authorized_operations = True
        request.include_cluster_authorized_operations = version <= 10
    return request


def _metadata_without_creation(world: World, version: int) -> Message:
    request = _metadata(version, MISSING)
    request.allow_auto_topic_creation = False
    return request


def _metadata_of_all(world: World, version: int) -> Message:
    return MetadataRequest(None if version else [])


def _metadata_by_id(world: World, version: int) -> Message:
    topics = [MetadataRequestTopic(topic_id=_reference(world, name), name=None) for name in _NAMES]
    return MetadataRequest(topics, allow_auto_topic_creation=False)


def _offset_for_leader_epoch(world: World, version: int) -> Message:
    partition = OffsetForLeaderPartition(0, -1, 0)
    request = OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(name, [partition]) for name in _NAMES]
    )
    if version >= 3:
        request.replica_id = -1
    return request


def _add_partitions(world: World, version: int, transactional_id: str = TXN) -> Message:
    topics = [AddPartitionsToTxnTopic(name, [0]) for name in _NAMES]
    if version < _FIRST_BATCHED_ADD:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=_PRODUCER_ID,
            v3_and_below_topics=topics,
        )
    transaction = AddPartitionsToTxnTransaction(transactional_id, _PRODUCER_ID, 0, False, topics)
    return AddPartitionsToTxnRequest([transaction])


def _describe_producers(world: World, version: int) -> Message:
    return DescribeProducersRequest([DescribeProducersTopicRequest(name, [0]) for name in _NAMES])


def _describe_topic_partitions(world: World, version: int) -> Message:
    topics = [DescribeTopicPartitionsTopicRequest(name) for name in _NAMES]
    return DescribeTopicPartitionsRequest(topics)


def _init_producer_id(world: World, version: int, name: str | None) -> Message:
    return InitProducerIdRequest(name, 60_000)


DATA_CASES: Final = (
    Case("", ApiKey.PRODUCE, _produce, first_recorded=3),
    Case(
        "in a transaction",
        ApiKey.PRODUCE,
        lambda world, version: _produce(world, version, TXN),
        first=3,
        one_by_one=True,
    ),
    Case("as a consumer", ApiKey.FETCH, _fetch),
    Case(
        "as a follower",
        ApiKey.FETCH,
        lambda world, version: _fetch(world, version, _FOLLOWER),
    ),
    Case("", ApiKey.LIST_OFFSETS, _list_offsets),
    Case("by name", ApiKey.METADATA, lambda world, version: _metadata(version, TOPIC, OTHER)),
    Case("of a missing topic", ApiKey.METADATA, _metadata_without_creation, first=4),
    Case(
        "with creation of a topic",
        ApiKey.METADATA,
        lambda world, version: _metadata(version, _TOO_LONG),
    ),
    Case("of all topics", ApiKey.METADATA, _metadata_of_all),
    Case("by id", ApiKey.METADATA, _metadata_by_id, first=12),
    Case("", ApiKey.OFFSET_FOR_LEADER_EPOCH, _offset_for_leader_epoch),
    Case(
        "PLAIN",
        ApiKey.SASL_HANDSHAKE,
        lambda world, version: SaslHandshakeRequest("PLAIN"),
        on_new_connection=True,
    ),
    Case(
        "",
        ApiKey.SASL_AUTHENTICATE,
        lambda world, version: SaslAuthenticateRequest(b"x"),
        on_new_connection=True,
    ),
    Case(
        "",
        ApiKey.API_VERSIONS,
        lambda world, version: ApiVersionsRequest("matrix", "1"),
    ),
    Case(
        "without a transactional id",
        ApiKey.INIT_PRODUCER_ID,
        lambda world, version: _init_producer_id(world, version, None),
    ),
    Case(
        "with a transactional id",
        ApiKey.INIT_PRODUCER_ID,
        lambda world, version: _init_producer_id(world, version, TXN),
        one_by_one=True,
    ),
    Case("", ApiKey.ADD_PARTITIONS_TO_TXN, _add_partitions),
    Case(
        "",
        ApiKey.ADD_OFFSETS_TO_TXN,
        lambda world, version: AddOffsetsToTxnRequest(TXN, _PRODUCER_ID, 0, TXN_GROUP),
    ),
    Case(
        "",
        ApiKey.END_TXN,
        lambda world, version: EndTxnRequest(TXN, _PRODUCER_ID, 0, committed=True),
    ),
    Case("", ApiKey.DESCRIBE_PRODUCERS, _describe_producers),
    Case(
        "",
        ApiKey.DESCRIBE_TRANSACTIONS,
        lambda world, version: DescribeTransactionsRequest(
            [TXN, OPEN_TXN, "allowed-unknown", OTHER_TXN]
        ),
    ),
    Case("", ApiKey.LIST_TRANSACTIONS, lambda world, version: ListTransactionsRequest()),
    Case("by name", ApiKey.DESCRIBE_TOPIC_PARTITIONS, _describe_topic_partitions),
    Case(
        "of all topics",
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        lambda world, version: DescribeTopicPartitionsRequest([]),
    ),
    Case(
        "",
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        lambda world, version: GetTelemetrySubscriptionsRequest(),
    ),
    Case("", ApiKey.PUSH_TELEMETRY, lambda world, version: PushTelemetryRequest()),
    *(
        Case("with another transactional id", key, build, one_by_one=True, first=first)
        for key, first, build in (
            (ApiKey.PRODUCE, 3, lambda world, version: _produce(world, version, OTHER_TXN)),
            (
                ApiKey.INIT_PRODUCER_ID,
                0,
                lambda world, version: _init_producer_id(world, version, OTHER_TXN),
            ),
            (
                ApiKey.ADD_PARTITIONS_TO_TXN,
                0,
                lambda world, version: _add_partitions(world, version, OTHER_TXN),
            ),
            (
                ApiKey.ADD_OFFSETS_TO_TXN,
                0,
                lambda world, version: AddOffsetsToTxnRequest(
                    OTHER_TXN, _PRODUCER_ID, 0, TXN_GROUP
                ),
            ),
            (
                ApiKey.END_TXN,
                0,
                lambda world, version: EndTxnRequest(OTHER_TXN, _PRODUCER_ID, 0, committed=True),
            ),
        )
    ),
    Case(
        "with another group",
        ApiKey.ADD_OFFSETS_TO_TXN,
        lambda world, version: AddOffsetsToTxnRequest(TXN, _PRODUCER_ID, 0, OTHER_GROUP),
    ),
)
