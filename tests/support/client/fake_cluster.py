"""A cluster of several brokers for tests of the admin client, without sockets.

Responses are functions. Requests and responses are encoded and decoded in the version that the
brokers support, so that a test fails if a field does not exist in an old version.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from penstock.client.admin.calls import AdminCalls
from penstock.client.network import connection_settings
from penstock.client.settings import AdminOptions, resolve
from penstock.core.errors import ErrorCode, UnsupportedVersionError
from penstock.core.ids import TopicPartition
from penstock.core.system_clock import SystemClock
from penstock.net.client.cluster import Cluster, Node
from penstock.net.client.network_client import NetworkClient, Request
from penstock.net.client.settings import MetadataSettings
from penstock.protocol.api import api
from penstock.protocol.api_key import ApiKey
from penstock.protocol.codec import decode, encode
from penstock.protocol.fields import Message
from penstock.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from penstock.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

R = TypeVar("R", bound=Message)
Handler = Callable[[int, Any], Message]
"""Returns the response of a broker to a request, or raises an error for the client."""

UNSUPPORTED = -1
"""Stands for an API that is not supported, in place of a version."""


class FakeCluster(NetworkClient):
    """Brokers 1, 2 and 3; broker 1 is the controller."""

    def __init__(self, newest: Mapping[ApiKey, int] | None = None) -> None:
        settings = resolve(
            AdminOptions,
            {
                "bootstrap_servers": "127.0.0.1:9092",
                "retry_backoff_ms": 1,
                "retry_backoff_max_ms": 2,
            },
        )
        super().__init__(
            connection_settings(settings),
            MetadataSettings((Node(-1, "127.0.0.1", 9092),)),
            clock=SystemClock(),
        )
        self.newest = dict(newest or {})
        """The newest supported versions of some APIs."""
        self.controller = 1
        self.leaders: dict[TopicPartition, int] = {}
        self.coordinators: dict[str, int] = {}
        self.handlers: dict[type[Message], Handler] = {
            MetadataRequest: self._describe,
            FindCoordinatorRequest: self._coordinators,
        }
        self.requests: list[tuple[int, Any]] = []
        """The node id and request of each request that is not a lookup."""
        self.lookups: list[Any] = []

    async def request(
        self,
        node_id: int,
        message: Request,
        response_type: type[R],
        *,
        timeout_ms: int | None = None,
        min_version: int = 0,
        max_version: int | None = None,
    ) -> R:
        key = ApiKey(response_type.INFO.key or 0)
        kind = api(key).request
        newest = self.newest.get(key, api(key).max_version)
        version = newest if max_version is None else min(newest, max_version)
        if version < max(0, min_version):
            raise UnsupportedVersionError(f"no {key.name} of version {min_version} or newer")
        built = message if isinstance(message, Message) else message(version)
        request, _ = decode(kind, version, encode(built, version))
        is_lookup = kind in (MetadataRequest, FindCoordinatorRequest)
        if is_lookup:
            self.lookups.append(request)
        else:
            self.requests.append((node_id, request))
        response = self.handlers[kind](node_id, request)
        assert isinstance(response, response_type)
        return decode(response_type, version, encode(response, version))[0]

    async def update_metadata(self) -> Cluster:
        self.metadata.update(self._describe(0, MetadataRequest([])), 0, complete=True)
        return self.metadata.cluster

    def least_loaded_node(self, excluded: Collection[int] = ()) -> int:
        return min(self.metadata.cluster.nodes)

    def _describe(self, node_id: int, request: MetadataRequest) -> MetadataResponse:
        names = sorted({partition.topic for partition in self.leaders})
        if request.topics is not None:
            names = [topic.name or "" for topic in request.topics]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(i, f"b{i}", 9092) for i in (1, 2, 3)],
            controller_id=self.controller,
            cluster_id="fake",
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        partitions = [
            MetadataResponsePartition(0, tp.partition, leader, 0, [leader], [leader])
            for tp, leader in self.leaders.items()
            if tp.topic == name
        ]
        code = ErrorCode.NONE if partitions else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return MetadataResponseTopic(code, name, partitions=partitions)

    def _coordinators(
        self, node_id: int, request: FindCoordinatorRequest
    ) -> FindCoordinatorResponse:
        keys = request.coordinator_keys or [request.key]
        coordinators = [Coordinator(key, self.coordinators[key], "b", 9092) for key in keys]
        if request.coordinator_keys:
            return FindCoordinatorResponse(coordinators=coordinators)
        return FindCoordinatorResponse(node_id=coordinators[0].node_id, host="b", port=9092)


def in_turn(*handlers: Handler | Exception) -> Handler:
    """Returns the responses in turn; the last one is repeated."""
    remaining = list(handlers)

    def respond(node_id: int, request: Any) -> Message:
        response = remaining.pop(0) if len(remaining) > 1 else remaining[0]
        if isinstance(response, Exception):
            raise response
        return response(node_id, request)

    return respond


def admin_of(cluster: FakeCluster, *, retries: int = 2**31 - 1) -> AdminCalls:
    return AdminCalls(cluster, retries=retries, default_api_timeout_ms=5_000)
