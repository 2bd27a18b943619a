"""The settings of connections to brokers, independent of where they are configured.

A client fills them from its keyword arguments (`penstock.client.network`), a broker from its
configuration. The defaults are Kafka's.
"""

import ssl
from collections.abc import Callable
from dataclasses import dataclass

from penstock.net.client.cluster import Node
from penstock.net.client.sasl.client import SaslClient


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """How connections are established, secured, timed out and retried.

    Without `tls`, connections are not encrypted. `login` creates the SASL client for a connection
    to a host; without it no login takes place.
    """

    client_id: str = ""
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    socket_connection_setup_timeout_ms: int = 10_000
    socket_connection_setup_timeout_max_ms: int = 30_000
    connections_max_idle_ms: int = 540_000
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1
    tls: ssl.SSLContext | None = None
    login: Callable[[str], SaslClient] | None = None


@dataclass(frozen=True, slots=True)
class MetadataSettings:
    """How the metadata of a cluster is found and kept fresh.

    `max_idle_ms` is how long a topic is kept that no caller requests; None keeps it permanently.
    `rebootstrap_after_ms` is how long requests for metadata may fail before the bootstrap servers
    are used again; with None the brokers found once are the only ones ever tried.
    """

    bootstrap: tuple[Node, ...]
    max_age_ms: int = 300_000
    max_idle_ms: int | None = None
    auto_create_topics: bool = False
    rebootstrap_after_ms: int | None = None
