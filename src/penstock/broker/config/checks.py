"""What the broker's settings must fulfil together, beyond the limits of each."""

from typing import NoReturn

from penstock.broker.config.broker_settings import BROKER_SETTINGS
from penstock.broker.config.settings import ConfigError
from penstock.broker.config.values import BrokerValues

_MIB = 1024 * 1024

_AUTHORIZERS = (
    "",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
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
    """Raises ConfigError for the first settings that do not fit each other."""
    _check_logs(values)
    _check_network(values)
    _check_replication(values)
    _check_groups(values)
    authorizer = values.str("authorizer.class.name")
    if authorizer not in _AUTHORIZERS:
        _refuse(
            "authorizer.class.name",
            f"{authorizer!r} cannot run here; use {_AUTHORIZERS[1]}, or nothing for no ACLs",
        )


def _check_logs(values: BrokerValues) -> None:
    if retention_ms(values) == 0:
        name = next(name for name in _RETENTION if values.value(name) is not None)
        _refuse(name, "0 will not do: must be at least 1, or -1 for ever")
    for name, low in (("log.roll.ms", 1), ("log.roll.jitter.ms", 0)):
        if values.value(name) is not None and values.int(name) < low:
            _refuse(name, f"{values.int(name)} will not do: must be at least {low}")
    threads = max(values.int("log.cleaner.threads"), 1)
    if values.int("log.cleaner.dedupe.buffer.size") // threads <= _MIB:
        _refuse(
            "log.cleaner.dedupe.buffer.size",
            f"must be more than 1 MiB for each of the {threads} log.cleaner.threads",
        )
    _at_most(values, "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms")


def _check_network(values: BrokerValues) -> None:
    if values.int("queued.max.request.bytes") > 0:
        _at_most(values, "socket.request.max.bytes", "queued.max.request.bytes")
    overrides = connection_overrides(values)
    if values.int("max.connections.per.ip") == 0 and not overrides:
        _refuse(
            "max.connections.per.ip",
            "0 lets nobody in; raise it, or name addresses in max.connections.per.ip.overrides",
        )
    idle = values.int("connections.max.idle.ms")
    if 0 <= idle <= values.int("connection.failed.authentication.delay.ms"):
        _refuse(
            "connection.failed.authentication.delay.ms",
            f"must be less than connections.max.idle.ms, which is {idle}",
        )


def _check_replication(values: BrokerValues) -> None:
    _at_most(values, "replica.fetch.wait.max.ms", "replica.socket.timeout.ms")
    _at_most(values, "replica.fetch.wait.max.ms", "replica.lag.time.max.ms")


def _check_groups(values: BrokerValues) -> None:
    for kind in GROUP_KINDS:
        prefix = f"group.{kind}."
        for name in BROKER_SETTINGS:
            rest = name.removeprefix(prefix + "min.")
            if rest != name:
                _at_most(values, name, prefix + rest)
                _at_most(values, prefix + rest, f"{prefix}max.{rest}")
        beat, session = prefix + "heartbeat.interval.ms", prefix + "session.timeout.ms"
        if values.int(beat) >= values.int(session):
            _refuse(session, f"must be more than {beat}, which is {values.int(beat)}")
    _at_most(values, "group.min.session.timeout.ms", "group.max.session.timeout.ms")
    _at_most(values, "group.streams.num.standby.replicas", "group.streams.max.standby.replicas")


def retention_ms(values: BrokerValues) -> int:
    """How long records are kept where a topic says nothing; -1: for ever."""
    for name, unit in _RETENTION.items():
        if values.value(name) is not None:
            return max(-1, values.int(name) * unit)
    raise AssertionError("log.retention.hours has a default")


def connection_overrides(values: BrokerValues) -> dict[str, int]:
    """`max.connections.per.ip.overrides`: the limit of each address named there."""
    name = "max.connections.per.ip.overrides"
    found: dict[str, int] = {}
    for pair in filter(None, (part.strip() for part in values.str(name).split(","))):
        host, _, count = (part.strip() for part in pair.rpartition(":"))
        if not host or not count.isdecimal():
            _refuse(name, f"{pair!r} must be host:count, such as 10.0.0.1:200")
        found[host] = int(count)
    return found


def _at_most(values: BrokerValues, name: str, limit: str) -> None:
    if values.int(name) > values.int(limit):
        _refuse(
            name,
            f"{values.int(name)} is more than {limit}, which is {values.int(limit)}",
        )


def _refuse(name: str, reason: str) -> NoReturn:
    raise ConfigError(f"{name}: {reason}", name)
