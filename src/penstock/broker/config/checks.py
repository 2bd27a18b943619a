"""Checks of settings against each other, beyond the limits of each one."""

from typing import NoReturn

from penstock.broker.config.broker_settings import BROKER_SETTINGS
from penstock.broker.config.security_posture import STANDARD_AUTHORIZER, check_security
from penstock.broker.config.settings import ConfigError
from penstock.broker.config.values import BrokerValues
from penstock.core.memory_budget import MemoryBudget
from penstock.replication.replica_selector import LEADER_SELECTOR, RACK_AWARE_SELECTOR

_MIB = 1024 * 1024

_AUTHORIZERS = (
    "",
    STANDARD_AUTHORIZER,
    "kafka.security.authorizer.AclAuthorizer",
    "kafka.security.auth.SimpleAclAuthorizer",
)

_RETENTION = {
    "log.retention.ms": 1,
    "log.retention.minutes": 60_000,
    "log.retention.hours": 3_600_000,
}

GROUP_KINDS = ("consumer", "share", "streams")


def check_values(values: BrokerValues) -> None:
    """Raises ConfigError for the first settings that contradict each other."""
    _check_logs(values)
    _check_network(values)
    _check_replication(values)
    _check_groups(values)
    check_security(values)
    authorizer = values.str("authorizer.class.name")
    if authorizer not in _AUTHORIZERS:
        _reject(
            "authorizer.class.name",
            f"{authorizer!r} is not supported",
            f"use {STANDARD_AUTHORIZER}, or nothing for no ACLs",
        )


def _check_logs(values: BrokerValues) -> None:
    if retention_ms(values) == 0:
        name = next(name for name in _RETENTION if values.value(name) is not None)
        _reject(name, "0 is invalid: must be at least 1, or -1 for no limit")
    for name, low in (("log.roll.ms", 1), ("log.roll.jitter.ms", 0)):
        if values.value(name) is not None and values.int(name) < low:
            _reject(name, f"{values.int(name)} is invalid: must be at least {low}")
    threads = max(values.int("log.cleaner.threads"), 1)
    if values.int("log.cleaner.dedupe.buffer.size") // threads <= _MIB:
        _reject(
            "log.cleaner.dedupe.buffer.size",
            f"must be more than 1 MiB for each of the {threads} log.cleaner.threads",
        )
    _at_most(values, "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms")


def _check_network(values: BrokerValues) -> None:
    if values.int("queued.max.request.bytes") > 0:
        _at_most(values, "socket.request.max.bytes", "queued.max.request.bytes")
    budget = MemoryBudget(values.int("request.memory.max.bytes"))
    largest = values.int("socket.request.max.bytes")
    if budget.total > 0 and budget.largest_request < largest:
        _reject(
            "request.memory.max.bytes",
            f"{budget.total} has room for requests of {budget.largest_request} bytes, and "
            f"socket.request.max.bytes is {largest}",
            "raise it, or lower socket.request.max.bytes",
        )
    overrides = connection_overrides(values)
    if values.int("max.connections.per.ip") == 0 and not overrides:
        _reject(
            "max.connections.per.ip",
            "0 rejects all connections",
            "raise it, or set max.connections.per.ip.overrides",
        )
    idle = values.int("connections.max.idle.ms")
    if 0 <= idle <= values.int("connection.failed.authentication.delay.ms"):
        _reject(
            "connection.failed.authentication.delay.ms",
            f"must be less than connections.max.idle.ms, which is {idle}",
        )


def _check_replication(values: BrokerValues) -> None:
    _at_most(values, "replica.fetch.wait.max.ms", "replica.socket.timeout.ms")
    _at_most(values, "replica.fetch.wait.max.ms", "replica.lag.time.max.ms")
    selector = values.text("replica.selector.class")
    if selector not in (None, "", LEADER_SELECTOR, RACK_AWARE_SELECTOR):
        _reject(
            "replica.selector.class",
            f"{selector!r} is not supported",
            f"use {RACK_AWARE_SELECTOR}, or nothing to read from leaders only",
        )


def _check_groups(values: BrokerValues) -> None:
    for kind in GROUP_KINDS:
        prefix = f"group.{kind}."
        for name in BROKER_SETTINGS:
            rest = name.removeprefix(prefix + "min.")
            if rest != name:
                _at_most(values, name, prefix + rest)
                _at_most(values, prefix + rest, f"{prefix}max.{rest}")
        heartbeat, session = prefix + "heartbeat.interval.ms", prefix + "session.timeout.ms"
        if values.int(heartbeat) >= values.int(session):
            _reject(session, f"must be more than {heartbeat}, which is {values.int(heartbeat)}")
    _at_most(values, "group.min.session.timeout.ms", "group.max.session.timeout.ms")
    _at_most(values, "group.streams.num.standby.replicas", "group.streams.max.standby.replicas")


def retention_ms(values: BrokerValues) -> int:
    """Returns the default retention time of topics; -1 for no limit."""
    for name, unit in _RETENTION.items():
        if values.value(name) is not None:
            return max(-1, values.int(name) * unit)
    raise AssertionError("log.retention.hours has a default")


def connection_overrides(values: BrokerValues) -> dict[str, int]:
    """Returns the limit of each address in `max.connections.per.ip.overrides`."""
    name = "max.connections.per.ip.overrides"
    limits: dict[str, int] = {}
    for pair in filter(None, (part.strip() for part in values.str(name).split(","))):
        host, _, count = (part.strip() for part in pair.rpartition(":"))
        if not host or not count.isdecimal():
            _reject(name, f"{pair!r} must be host:count, such as 10.0.0.1:200")
        limits[host] = int(count)
    return limits


def _at_most(values: BrokerValues, name: str, limit: str) -> None:
    if values.int(name) > values.int(limit):
        _reject(
            name,
            f"{values.int(name)} is more than {limit}, which is {values.int(limit)}",
        )


def _reject(name: str, cause: str, remedy: str = "") -> NoReturn:
    raise ConfigError(cause, name, remedy=remedy)
