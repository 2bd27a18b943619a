"""Derives the configuration of each component from the broker's settings."""

from collections.abc import Mapping
from ipaddress import ip_address
from math import inf
from pathlib import Path

from penstock.broker.audit.audit_log import AuditLog
from penstock.broker.audit.rotating_file import RotatingFile
from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.broker_settings import BROKER_SETTINGS
from penstock.broker.config.checks import connection_overrides
from penstock.broker.config.listeners import ListenerSpec
from penstock.broker.config.tls_posture import client_auth
from penstock.broker.config.zookeeper_config import zookeeper_config
from penstock.cluster.factory import StoreConfig, SupervisorConfig
from penstock.core.clock import Clock
from penstock.net.server.limits import UNLIMITED, Limits
from penstock.net.server.socket_server import Listener
from penstock.net.tls.settings import TlsSettings
from penstock.security.acl_authorizer import AclAuthorizer, parse_super_users
from penstock.security.quotas import ClientQuotas
from penstock.storage.cleaner.log_cleaner import CleanerSettings
from penstock.storage.log.log_loader import ProducerLimits
from penstock.storage.manager.log_maintenance import MaintenanceIntervals

_UNBOUNDED_RATE = 1.7e308
"""Rates above this mean no limit: Kafka's default is the largest double."""


def set_limits(limits: Limits, config: BrokerConfig) -> None:
    """Updates the limits of a server, which may be running, from the current settings."""
    limits.max_frame = config.int("socket.request.max.bytes")
    limits.max_frame_before_login = min(
        limits.max_frame, config.int("sasl.server.max.receive.size")
    )
    limits.max_connections = config.int("max.connections")
    limits.max_connections_per_listener = {
        spec.name: int(config.listener_setting(spec.name, "max.connections") or UNLIMITED)
        for spec in config.listeners
    }
    limits.max_connections_per_ip = config.int("max.connections.per.ip")
    limits.per_ip_overrides = {
        _normalize_address(host): limit for host, limit in connection_overrides(config).items()
    }
    limits.idle_ms = config.int("connections.max.idle.ms")
    limits.queued_max_requests = config.int("queued.max.requests")
    limits.memory_wait_ms = config.int("request.timeout.ms")
    # Kafka's default of 100 KB would stop the kernel from adapting the buffers to the load, which
    # makes large Produce and Fetch requests a third slower: only configured values are used.
    limits.send_buffer = _buffer(config, "socket.send.buffer.bytes")
    limits.receive_buffer = _buffer(config, "socket.receive.buffer.bytes")
    limits.listen_backlog = config.int("socket.listen.backlog.size")


def _buffer(config: BrokerConfig, name: str) -> int:
    return config.int(name) if config.is_set(name) else -1


def _normalize_address(host: str) -> str:
    """Returns an IP address in the form that connections have; a host name unchanged."""
    host = host.strip("[]")
    try:
        return str(ip_address(host))
    except ValueError:
        return host


def listener_config(config: BrokerConfig, spec: ListenerSpec) -> Listener:
    """Returns the configuration of a listener of the server."""
    tls = tls_settings(config, spec) if spec.protocol.tls else None
    return Listener(spec.name, spec.host, spec.port, tls)


def tls_settings(config: BrokerConfig, spec: ListenerSpec) -> TlsSettings:
    return TlsSettings.from_config(_tls_texts(config, spec))


def _tls_texts(config: BrokerConfig, spec: ListenerSpec) -> dict[str, str | None]:
    names = [name for name in BROKER_SETTINGS if name.startswith("ssl.")]
    texts = {name: config.listener_setting(spec.name, name) for name in names}
    return {**texts, "ssl.client.auth": client_auth(config, spec)}


def changed_tls_settings(
    config: BrokerConfig, spec: ListenerSpec, changes: Mapping[str, str]
) -> TlsSettings | None:
    """Returns the TLS settings of a listener after changes; None if none of them is about it."""
    prefix = f"listener.name.{spec.name.lower()}."
    overrides = {
        name.removeprefix(prefix): text
        for name, text in changes.items()
        if name.startswith(prefix + "ssl.")
    }
    if not overrides or not spec.protocol.tls:
        return None
    return TlsSettings.from_config({**_tls_texts(config, spec), **overrides})


def cleaner_settings(config: BrokerConfig) -> CleanerSettings:
    rate = config.float("log.cleaner.io.max.bytes.per.second")
    return CleanerSettings(
        enable=config.bool("log.cleaner.enable"),
        dedupe_buffer_size=config.int("log.cleaner.dedupe.buffer.size"),
        io_buffer_size=config.int("log.cleaner.io.buffer.size"),
        io_buffer_load_factor=config.float("log.cleaner.io.buffer.load.factor"),
        io_max_bytes_per_second=inf if rate >= _UNBOUNDED_RATE else max(rate, 1.0),
        backoff_ms=config.int("log.cleaner.backoff.ms"),
    )


def maintenance_intervals(config: BrokerConfig) -> MaintenanceIntervals:
    return MaintenanceIntervals(
        config.int("log.retention.check.interval.ms"),
        config.int("log.flush.offset.checkpoint.interval.ms"),
        config.int("producer.id.expiration.check.interval.ms"),
        config.int("replica.high.watermark.checkpoint.interval.ms"),
    )


def producer_limits(config: BrokerConfig) -> ProducerLimits:
    return ProducerLimits(
        producer_id_expiration_ms=config.int("producer.id.expiration.ms"),
        verify_transactions=config.bool("transaction.partition.verification.enable"),
    )


def has_own_store(config: BrokerConfig) -> bool:
    """Whether brokers keep the metadata themselves, not in ZooKeeper."""
    return not config.text("zookeeper.connect")


def store_config(config: BrokerConfig) -> StoreConfig:
    directory = Path(config.text("metadata.log.dir") or config.list("log.dirs")[0])
    zookeeper = zookeeper_config(config)
    if zookeeper is not None:
        return StoreConfig(directory, zookeeper=zookeeper)
    socket = config.text("metadata.store.socket")
    if socket is None:
        return StoreConfig(directory)
    timeout_ms = config.int("zookeeper.session.timeout.ms")
    return StoreConfig(directory, SupervisorConfig(Path(socket), config.int("node.id"), timeout_ms))


def new_authorizer(config: BrokerConfig) -> AclAuthorizer | None:
    """Returns None if `authorizer.class.name` is not set: every operation is allowed then."""
    if not config.str("authorizer.class.name"):
        return None
    return AclAuthorizer(
        parse_super_users(config.str("super.users")),
        config.bool("allow.everyone.if.no.acl.found"),
    )


def new_audit_log(config: BrokerConfig, clock: Clock) -> AuditLog | None:
    """Returns None if `audit.log.dir` is not set."""
    directory = config.text("audit.log.dir")
    if not directory:
        return None
    broker_id = config.int("node.id")
    file = RotatingFile(
        Path(directory) / f"audit-{broker_id}.jsonl",
        config.int("audit.log.max.bytes"),
        config.int("audit.log.max.files"),
    )
    return AuditLog(file, broker_id, clock)


def new_quotas(config: BrokerConfig) -> ClientQuotas:
    return ClientQuotas(
        config.int("quota.window.num"),
        config.int("quota.window.size.seconds") * 1000,
        config.int("controller.quota.window.num"),
        config.int("controller.quota.window.size.seconds") * 1000,
    )
