"""Creates the `NetworkClient` of a client from the client's settings."""

from penstock.client.settings import CommonOptions, servers
from penstock.core.clock import Clock
from penstock.net.client.cluster import Node
from penstock.net.client.context import ConnectionMetrics
from penstock.net.client.errors import ConfigError
from penstock.net.client.network_client import NetworkClient
from penstock.net.client.settings import ConnectionSettings, MetadataSettings


def create_network_client(
    settings: CommonOptions,
    *,
    clock: Clock,
    metrics: ConnectionMetrics | None = None,
    auto_create_topics: bool = False,
    metadata_max_idle_ms: int | None = None,
) -> NetworkClient:
    """Returns a network client that finds the cluster through `bootstrap_servers`.

    Call it on the event loop that will use it. Raises ConfigError for settings of servers, TLS or
    SASL that cannot be used.
    """
    metadata = MetadataSettings(
        tuple(_bootstrap_nodes(servers(settings))),
        max_age_ms=settings["metadata_max_age_ms"],
        max_idle_ms=metadata_max_idle_ms,
        auto_create_topics=auto_create_topics,
        rebootstrap_after_ms=settings["metadata_recovery_rebootstrap_trigger_ms"]
        if settings["metadata_recovery_strategy"] == "rebootstrap"
        else None,
    )
    return NetworkClient(connection_settings(settings), metadata, clock=clock, metrics=metrics)


def connection_settings(settings: CommonOptions) -> ConnectionSettings:
    """Returns the settings of connections, with the TLS context and the login."""
    tls = login = None
    if settings["security_protocol"] != "PLAINTEXT":
        # Imported on demand: the modules of TLS and SASL are slow to load, and few tests need them.
        from penstock.client.security import login_factory, tls_context

        tls, login = tls_context(settings), login_factory(settings)
    return ConnectionSettings(
        client_id=settings["client_id"],
        request_timeout_ms=settings["request_timeout_ms"],
        retry_backoff_ms=settings["retry_backoff_ms"],
        retry_backoff_max_ms=settings["retry_backoff_max_ms"],
        reconnect_backoff_ms=settings["reconnect_backoff_ms"],
        reconnect_backoff_max_ms=settings["reconnect_backoff_max_ms"],
        socket_connection_setup_timeout_ms=settings["socket_connection_setup_timeout_ms"],
        socket_connection_setup_timeout_max_ms=settings["socket_connection_setup_timeout_max_ms"],
        connections_max_idle_ms=settings["connections_max_idle_ms"],
        send_buffer_bytes=settings["send_buffer_bytes"],
        receive_buffer_bytes=settings["receive_buffer_bytes"],
        tls=tls,
        login=login,
    )


def _bootstrap_nodes(addresses: list[str]) -> list[Node]:
    nodes = []
    for index, address in enumerate(addresses):
        host, colon, port = address.rpartition(":")
        if "://" in host:
            host = host.split("://", 1)[1]
        if not colon or not port.isdigit() or not 0 < int(port) < 65536 or not host:
            raise ConfigError(
                f"`bootstrap_servers` has {address!r}: it must be host:port, such as localhost:9092"
            )
        nodes.append(Node(-1 - index, host.removeprefix("[").removesuffix("]"), int(port)))
    if not nodes:
        raise ConfigError(
            "`bootstrap_servers` is empty", remedy="name a broker, such as localhost:9092"
        )
    return nodes
