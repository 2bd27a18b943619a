"""The client with which this broker sends requests to others.

    client = InterBrokerClient(config, image, clock)
    response = await client.request(2, WriteTxnMarkersRequest(…), WriteTxnMarkersResponse)

Addresses come from an image of the cluster: the endpoint that the other broker advertises for the
inter-broker listener of this one. The controller channel, each replica fetcher and all other
requests have a client each, because the requests of one connection are handled in order.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar, Unpack

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.inter_broker.connection_settings import (
    client_tls,
    inter_broker_settings,
    listener_spec,
)
from penstock.controller.metadata import BrokerKey, BrokerRecord, Change, Delete
from penstock.core.clock import Clock
from penstock.net.client.cluster import Node
from penstock.net.client.errors import DisconnectError
from penstock.net.client.network_client import Encoder, NetworkClient, Request, RequestOptions
from penstock.protocol.fields import Message

R = TypeVar("R", bound=Message)


class BrokerDirectory(Protocol):
    """The brokers that are up, such as a `ClusterImage`."""

    @property
    def brokers(self) -> Mapping[int, BrokerRecord]: ...


class InterBrokerClient:
    """Connections to other brokers, established when a request needs one.

    It belongs to the event loop. Until the first request it reads no key files, so that a single
    node needs none of the settings between brokers.
    """

    def __init__(
        self,
        config: BrokerConfig,
        directory: BrokerDirectory,
        clock: Clock,
        *,
        client_id: str | None = None,
        request_timeout_ms: int | None = None,
        listener: str | None = None,
    ) -> None:
        """`client_id` defaults to the broker id, the timeout to `request.timeout.ms`.

        `listener` is that of the other brokers; by default the inter-broker listener.
        """
        self._config = config
        self._directory = directory
        self._clock = clock
        self._listener = listener or config.inter_broker_listener
        self._client_id = str(config.int("node.id")) if client_id is None else client_id
        self._request_timeout_ms = request_timeout_ms
        self._network: NetworkClient | None = None
        self._records: dict[int, BrokerRecord] = {}
        """The brokers as they were when their addresses were read."""
        self._is_closed = False

    async def request(
        self,
        broker_id: int,
        message: Request,
        response_type: type[R],
        **options: Unpack[RequestOptions],
    ) -> R:
        """Sends a request in the newest version that both sides support; returns the response.

        Raises the errors of `NetworkClient.request`: DisconnectError if the broker is not in the
        directory or cannot be reached, KafkaTimeoutError if it does not respond in time,
        AuthenticationError if it refuses this broker's login or certificate.
        """
        network = self._client(broker_id)
        if network.is_ready(broker_id):
            # Most requests are fetches of followers: this saves them three coroutines.
            return await network.send_now(broker_id, message, response_type, **options)
        return await network.request(broker_id, message, response_type, **options)

    async def request_large(
        self, broker_id: int, message: Request, response_type: type[R], encode_with: Encoder
    ) -> R:
        """Like `request`, but does not encode the request on the event loop."""
        client = self._client(broker_id)
        return await client.request_large(broker_id, message, response_type, encode_with)

    async def send(
        self,
        broker_id: int,
        message: Request,
        response_type: type[R],
        **options: Unpack[RequestOptions],
    ) -> "asyncio.Future[R]":
        """Like `request`, but returns the response's future once the request is written."""
        return await self._client(broker_id).send(broker_id, message, response_type, **options)

    def disconnect(self, broker_id: int, reason: str) -> None:
        """Closes the connection to a broker, if there is one; its requests fail."""
        if self._network is not None:
            self._network.disconnect(broker_id, DisconnectError(reason))

    def apply(self, changes: Iterable[Change]) -> None:
        """Closes the connections to brokers that have left the cluster; their requests fail."""
        for change in changes:
            match change:
                case Delete(BrokerKey(broker_id)):
                    self.disconnect(broker_id, f"broker {broker_id} has left the cluster")

    def reconfigure(self) -> None:
        """Uses the current TLS keys and certificates for new connections.

        Raises KafkaError, and keeps the old ones, if they cannot be used.
        """
        spec = listener_spec(self._config, self._listener)
        if self._network is not None and spec.protocol.tls:
            self._network.use_tls(client_tls(self._config, spec))

    async def close(self) -> None:
        """Closes all connections; requests in progress fail. Idempotent."""
        self._is_closed = True
        if self._network is not None:
            await self._network.close()

    def _client(self, broker_id: int) -> NetworkClient:
        """Returns the client, which knows the current address of this broker."""
        if self._is_closed:
            raise DisconnectError("this broker is stopping and sends no more requests")
        network = self._network
        if network is None:
            network = self._network = self._start()
        record = self._directory.brokers.get(broker_id)
        if record is None:
            raise DisconnectError(f"broker {broker_id} is not up")
        if record is not self._records.get(broker_id):
            node = self._node(broker_id, record)
            if network.metadata.cluster.nodes.get(broker_id) != node:
                network.metadata.set_nodes({**network.metadata.cluster.nodes, broker_id: node})
            self._records[broker_id] = record
        return network

    def _start(self) -> NetworkClient:
        timeout_ms = self._request_timeout_ms
        if timeout_ms is None:
            timeout_ms = self._config.int("request.timeout.ms")
        settings = inter_broker_settings(
            self._config, self._listener, client_id=self._client_id, request_timeout_ms=timeout_ms
        )
        network = NetworkClient(settings, clock=self._clock)
        network.start_now()
        return network

    def _node(self, broker_id: int, record: BrokerRecord) -> Node:
        for endpoint in record.endpoints:
            if endpoint.listener == self._listener:
                return Node(broker_id, endpoint.host, endpoint.port, record.rack)
        raise DisconnectError(
            f"broker {broker_id} has no listener {self._listener}, on which this one connects to "
            "others: all brokers need a listener of this name"
        )
