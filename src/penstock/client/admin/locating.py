"""Where things are: partitions at their leaders, groups and transactional ids at coordinators."""

from collections.abc import Mapping, Sequence
from typing import Final

from penstock.client.admin.advice import explain
from penstock.client.admin.routing import Locate, Router, Where
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
"""The first version of Metadata that can ask for a topic without creating it."""


class Locator(Router):
    """What finds the brokers of many things at once."""

    async def _metadata(
        self,
        call: str,
        topics: Sequence[MetadataRequestTopic] | None,
        deadline_ms: int,
        *,
        authorized_operations: bool = False,
        needs: tuple[int, str] = METADATA_WITHOUT_CREATION,
    ) -> MetadataResponse:
        """Topics as any broker knows them; none is created by asking. None: all of them."""
        request = MetadataRequest(
            topics=None if topics is None else list(topics),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=authorized_operations,
        )
        response = await self._ask(
            call,
            Where.ANY,
            request,
            MetadataResponse,
            deadline_ms,
            needs=max(needs, (8, "2.3")) if authorized_operations else needs,
        )
        self._network.metadata.update(response, self._network.clock.monotonic_ms(), complete=False)
        return response

    def _leaders(self, call: str, deadline_ms: int) -> Locate[TopicPartition]:
        """Everything is at the leader of its partition."""

        async def locate(
            partitions: Sequence[TopicPartition],
        ) -> Mapping[TopicPartition, int | KafkaError]:
            names = dict.fromkeys(partition.topic for partition in partitions)
            topics = [MetadataRequestTopic(name=name) for name in names]
            response = await self._metadata(call, topics, deadline_ms)
            codes = {topic.name: topic.error_code for topic in response.topics}
            found = {
                TopicPartition(topic.name or "", each.partition_index): each
                for topic in response.topics
                for each in topic.partitions
            }
            nodes = {broker.node_id for broker in response.brokers}
            places: dict[TopicPartition, int | KafkaError] = {}
            for partition in partitions:
                described = found.get(partition)
                code = codes.get(partition.topic) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if described is not None:
                    code = described.error_code or ErrorCode.LEADER_NOT_AVAILABLE
                if described is not None and described.leader_id in nodes:
                    places[partition] = described.leader_id
                else:
                    places[partition] = explain(code, str(partition))
            return places

        return locate

    def _coordinators(self, call: str, kind: CoordinatorKind, deadline_ms: int) -> Locate[str]:
        """Everything is at the coordinator of its group or transactional id."""

        async def locate(keys: Sequence[str]) -> Mapping[str, int | KafkaError]:
            places: dict[str, int | KafkaError] = {}
            while len(places) < len(keys):
                rest = [key for key in keys if key not in places]
                for found in await self._find_coordinators(call, kind, rest, deadline_ms):
                    if found.error_code == ErrorCode.NONE:
                        self._network.add_node(Node(found.node_id, found.host, found.port))
                        places[found.key] = found.node_id
                    else:
                        about = f"the coordinator of {found.key!r}"
                        places[found.key] = explain(found.error_code, about, found.error_message)
            return places

        return locate

    async def _find_coordinators(
        self, call: str, kind: CoordinatorKind, keys: Sequence[str], deadline_ms: int
    ) -> list[Coordinator]:
        """Of all keys where the broker can tell them together, else of the first one."""

        def make(version: int) -> FindCoordinatorRequest:
            request = FindCoordinatorRequest()
            if version >= 1:
                request.key_type = kind.value
            if version >= 4:
                request.coordinator_keys = list(keys)
            else:
                request.key = keys[0]
            return request

        response = await self._ask(
            call,
            Where.ANY,
            RequestBuilder(FindCoordinatorRequest, make),
            FindCoordinatorResponse,
            deadline_ms,
            needs=(kind.value, "0.11"),
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
