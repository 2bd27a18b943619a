"""A network client for tests of the consumer: the test decides when a request gets its response."""

import asyncio
from typing import NamedTuple, TypeVar, cast

from penstock.client.network import connection_settings
from penstock.client.settings import ConsumerOptions
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.net.client.backoff import Backoff
from penstock.net.client.cluster import Cluster, Node, PartitionInfo, TopicInfo
from penstock.net.client.metadata import ClusterMetadata
from penstock.net.client.network_client import Request
from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import ZERO_UUID, Message
from tests.support.clock import ManualClock

R = TypeVar("R", bound=Message)


class SentRequest(NamedTuple):
    """A request in flight."""

    node: int
    request: Message
    version: int
    response: "asyncio.Future[Message]"


class FakeNetwork:
    """Two brokers, 0 and 1. Requests stay in `requests` until they get a response."""

    def __init__(self, settings: ConsumerOptions, newest: int = 18) -> None:
        self.settings = connection_settings(settings)
        self.clock = ManualClock()
        self.metadata = ClusterMetadata([Node(-1, "h", 1)], max_age_ms=300_000)
        self.retry_backoff = Backoff(100, 1000, jitter=0)
        self.newest = newest
        self.requests: list[SentRequest] = []
        self.backoff: dict[int, int] = {}
        self.updates = 0
        self.metadata.on_request = self._count

    def _count(self) -> None:
        self.updates += 1

    def know(self, leaders: dict[TopicPartition, int], epoch: int = 0) -> None:
        """Sets the leaders of partitions in the metadata."""
        topics: dict[str, list[PartitionInfo]] = {}
        for (topic, index), leader in sorted(leaders.items()):
            topics.setdefault(topic, []).append(
                PartitionInfo(topic, index, leader, epoch, (0, 1), (0, 1), (), ErrorCode.NONE)
            )
        self.metadata.cluster = Cluster(
            {node_id: Node(node_id, "h", node_id) for node_id in (0, 1)},
            {
                name: TopicInfo(name, ZERO_UUID, False, tuple(partitions), ErrorCode.NONE)
                for name, partitions in topics.items()
            },
        )

    def in_flight(self, node_id: int) -> int:
        return 0

    def is_ready(self, node_id: int) -> bool:
        return True

    def version_of(self, node_id: int, key: ApiKey) -> int:
        return 4

    def backoff_ms(self, node_id: int, now_ms: int) -> int:
        return self.backoff.get(node_id, 0)

    async def send(
        self,
        node_id: int,
        message: Request,
        response_type: type[R],
        *,
        min_version: int = 0,
        max_version: int | None = None,
    ) -> "asyncio.Future[R]":
        version = self.newest if max_version is None else min(max_version, self.newest)
        request = message if isinstance(message, Message) else message(version)
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self.requests.append(SentRequest(node_id, request, version, future))
        return cast("asyncio.Future[R]", future)

    async def request(
        self,
        node_id: int,
        message: Request,
        response_type: type[R],
        *,
        min_version: int = 0,
        max_version: int | None = None,
    ) -> R:
        return await (await self.send(node_id, message, response_type, max_version=max_version))
