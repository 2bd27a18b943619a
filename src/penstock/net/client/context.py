"""What the connections of one `NetworkClient` share."""

from collections.abc import Callable
from typing import Protocol

from penstock.core.clock import Clock
from penstock.core.errors import KafkaError
from penstock.net.client.backoff import Backoff
from penstock.net.client.settings import ConnectionSettings
from penstock.net.framing import FrameMemory


class ConnectionMetrics(Protocol):
    """Counts connections, requests, responses and bytes. Called on the event loop."""

    def connected(self) -> None: ...

    def disconnected(self) -> None: ...

    def request_sent(self, size: int, now_ms: int) -> None: ...

    def bytes_received(self, size: int) -> None: ...

    def response_received(self) -> None: ...


class ConnectionContext:
    """The settings, clock, memory and metrics of all connections on one event loop.

    `on_disconnect` is called with a node id and the error when a connection to it fails or is lost.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        clock: Clock,
        *,
        on_disconnect: Callable[[int, KafkaError], None],
        metrics: ConnectionMetrics | None = None,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.on_disconnect = on_disconnect
        self.metrics = metrics
        self.memory = FrameMemory(trusts=True)
        self.reconnect_backoff = Backoff(
            settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms
        )
        self.setup_timeout = Backoff(
            settings.socket_connection_setup_timeout_ms,
            settings.socket_connection_setup_timeout_max_ms,
        )
