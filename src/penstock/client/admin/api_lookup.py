"""Lookup strategies of admin calls: leaders of partitions, coordinators of groups."""

from collections.abc import Mapping, Sequence
from typing import Final

from penstock.client.admin.advice import broker_error
from penstock.client.admin.api_driver import AdminApiDriver, LookupStrategy, NodeProvider
from penstock.client.coordinators import CoordinatorKind
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.net.client.cluster import Node
from penstock.net.client.network_client import RequestBuilder
from penstock.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from penstock.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

METADATA_WITHOUT_CREATION: Final = (4, "0.11")
"""The first version of Metadata that does not create the topics in it."""


class AdminApiLookup(AdminApiDriver):
    """Finds the brokers of many keys with one request."""

    async def _metadata(
        self,
        call: str,
        topics: Sequence[MetadataRequestTopic] | None,
        deadline_ms: int,
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
        response = await self._request_until_done(
            call,
            NodeProvider.ANY,
            request,
            MetadataResponse,
            deadline_ms,
            required=max(required, (8, "2.3")) if authorized_operations else required,
        )
        self._network.metadata.update(response, self._network.clock.monotonic_ms(), complete=False)
        return response

    def _partition_leaders(self, call: str, deadline_ms: int) -> LookupStrategy[TopicPartition]:
        """Returns the strategy for keys that are sent to the leaders of partitions."""

        async def look_up(
            partitions: Sequence[TopicPartition],
        ) -> Mapping[TopicPartition, int | KafkaError]:
            names = dict.fromkeys(partition.topic for partition in partitions)
            topics = [MetadataRequestTopic(name=name) for name in names]
            response = await self._metadata(call, topics, deadline_ms)
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

        return look_up

    def _coordinators(
        self, call: str, kind: CoordinatorKind, deadline_ms: int
    ) -> LookupStrategy[str]:
        """Returns the strategy for groups or transactional ids, which go to their coordinators."""

        async def look_up(keys: Sequence[str]) -> Mapping[str, int | KafkaError]:
            node_ids: dict[str, int | KafkaError] = {}
            while len(node_ids) < len(keys):
                remaining = [key for key in keys if key not in node_ids]
                for coordinator in await self._find_coordinators(
                    call, kind, remaining, deadline_ms
                ):
                    if coordinator.error_code == ErrorCode.NONE:
                        self._network.add_node(
                            Node(coordinator.node_id, coordinator.host, coordinator.port)
                        )
                        node_ids[coordinator.key] = coordinator.node_id
                    else:
                        subject = f"the coordinator of {coordinator.key!r}"
                        node_ids[coordinator.key] = broker_error(
                            coordinator.error_code, subject, coordinator.error_message
                        )
            return node_ids

        return look_up

    async def _find_coordinators(
        self, call: str, kind: CoordinatorKind, keys: Sequence[str], deadline_ms: int
    ) -> list[Coordinator]:
        """Returns the coordinators of all keys; of the first from brokers before Kafka 3.0."""

        def make(version: int) -> FindCoordinatorRequest:
            request = FindCoordinatorRequest()
            if version >= 1:
                request.key_type = kind.value
            if version >= 4:
                request.coordinator_keys = list(keys)
            else:
                request.key = keys[0]
            return request

        response = await self._request_until_done(
            call,
            NodeProvider.ANY,
            RequestBuilder(FindCoordinatorRequest, make),
            FindCoordinatorResponse,
            deadline_ms,
            required=(kind.value, "0.11"),
        )
        if response.coordinators:
            return response.coordinators
        return [
            Coordinator(
                keys[0],
                response.node_id,
                response.host,
                response.port,
                response.error_code,
                response.error_message,
            )
        ]
