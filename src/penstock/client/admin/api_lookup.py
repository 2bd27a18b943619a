"""Lookup strategies of admin calls: which brokers the keys of a call are sent to."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from penstock.client.admin.advice import broker_error, response_error
from penstock.client.admin.api_driver import (
    UNKNOWN_TOPIC_CODES,
    AdminCall,
    LookupStrategy,
    NodeProvider,
    Results,
)
from penstock.client.coordinators import (
    CoordinatorKind,
    coordinators_of,
    find_coordinators_request,
)
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.net.client.cluster import Node
from penstock.protocol.messages.find_coordinator import FindCoordinatorResponse
from penstock.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

K = TypeVar("K")

METADATA_WITHOUT_CREATION: Final = (4, "0.11")
"""The first version of Metadata that does not create the topics in it."""

CONTROLLER_CODES: Final = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.THROTTLING_QUOTA_EXCEEDED})
COORDINATOR_CODES: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
LEADER_CODES: Final = UNKNOWN_TOPIC_CODES | {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE,
}
"""Errors of a leader that are retried, since the leader may be changing."""


def single_node(call: AdminCall, provider: NodeProvider | int) -> LookupStrategy[Any]:
    """Returns the strategy for keys that are all sent to one broker."""
    attempts = 0

    async def find(keys: Sequence[K]) -> Results[K, int]:
        nonlocal attempts
        node_id = await call.select_node(provider, refresh=attempts > 0)
        attempts += 1
        return dict.fromkeys(keys, node_id)

    return LookupStrategy(find, CONTROLLER_CODES)


def broker_ids(call: AdminCall) -> LookupStrategy[int]:
    """Returns the strategy for keys that are ids of brokers."""

    async def find(ids: Sequence[int]) -> Results[int, int]:
        return await find_brokers(call, ids)

    return LookupStrategy(find, COORDINATOR_CODES)


async def find_brokers(call: AdminCall, ids: Iterable[int]) -> dict[int, int | KafkaError]:
    """Returns each id, or the error that there is no such broker."""
    node_ids: dict[int, int | KafkaError] = {}
    for node_id in ids:
        try:
            node_ids[node_id] = await call.select_node(node_id)
        except KafkaError as error:
            if error.code is not ErrorCode.BROKER_NOT_AVAILABLE:
                raise
            node_ids[node_id] = error
    return node_ids


def partition_leaders(call: AdminCall) -> LookupStrategy[TopicPartition]:
    """Returns the strategy for keys that are sent to the leaders of partitions."""

    async def find(partitions: Sequence[TopicPartition]) -> Results[TopicPartition, int]:
        names = dict.fromkeys(partition.topic for partition in partitions)
        response = await fetch_metadata(call, [MetadataRequestTopic(name=name) for name in names])
        codes = {topic.name: topic.error_code for topic in response.topics}
        described = {
            TopicPartition(topic.name or "", data.partition_index): data
            for topic in response.topics
            for data in topic.partitions
        }
        nodes = {broker.node_id for broker in response.brokers}
        node_ids: dict[TopicPartition, int | KafkaError] = {}
        for partition in partitions:
            data = described.get(partition)
            code = codes.get(partition.topic) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if data is not None:
                code = data.error_code or ErrorCode.LEADER_NOT_AVAILABLE
            if data is not None and data.leader_id in nodes:
                node_ids[partition] = data.leader_id
            else:
                node_ids[partition] = broker_error(code, str(partition))
        return node_ids

    return LookupStrategy(find, LEADER_CODES)


async def fetch_metadata(
    call: AdminCall,
    topics: Sequence[MetadataRequestTopic] | None,
    *,
    authorized_operations: bool = False,
    required: tuple[int, str] = METADATA_WITHOUT_CREATION,
) -> MetadataResponse:
    """Returns metadata of topics (None: of all), without creating them."""
    request = MetadataRequest(
        topics=None if topics is None else list(topics),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=authorized_operations,
    )
    response = await call.request_until_done(
        NodeProvider.ANY,
        request,
        MetadataResponse,
        required=max(required, (8, "2.3")) if authorized_operations else required,
        check_error=False,
    )
    network = call.network
    network.metadata.update(response, network.clock.monotonic_ms(), complete=False)
    return response


def coordinators(call: AdminCall, kind: CoordinatorKind) -> LookupStrategy[str]:
    """Returns the strategy for groups or transactional ids, which go to their coordinators."""

    async def find(keys: Sequence[str]) -> Results[str, int]:
        node_ids: dict[str, int | KafkaError] = {}
        while len(node_ids) < len(keys):
            remaining = [key for key in keys if key not in node_ids]
            response = await call.request_until_done(
                NodeProvider.ANY,
                partial(find_coordinators_request, kind, remaining),
                FindCoordinatorResponse,
                required=(kind.value, "0.11"),
                check_error=False,
            )
            for coordinator in coordinators_of(response, remaining[0]):
                node = Node(coordinator.node_id, coordinator.host, coordinator.port)
                error = response_error(coordinator, f"the coordinator of {coordinator.key!r}")
                if error is None:
                    call.network.add_node(node)
                node_ids[coordinator.key] = node.id if error is None else error
        return node_ids

    return LookupStrategy(find, COORDINATOR_CODES)


def group_coordinator(call: AdminCall, group_id: str) -> LookupStrategy[Any]:
    """Returns the strategy for keys of one group, which go to its coordinator."""
    groups = coordinators(call, CoordinatorKind.GROUP)

    async def find(keys: Sequence[K]) -> Results[K, int]:
        return dict.fromkeys(keys, (await groups.find([group_id]))[group_id])

    return LookupStrategy(find, groups.retriable)
