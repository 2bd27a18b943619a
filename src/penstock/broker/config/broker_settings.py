"""The table of the broker's settings, and names that are made from those in it."""

import re

from penstock.broker.config.settings import Setting, Table
from penstock.broker.config.tables import cluster, coordinators, logs, network, old, security

BROKER_SETTINGS = Table(
    network.TABLE, logs.TABLE, cluster.TABLE, coordinators.TABLE, security.TABLE, old.TABLE
)

FAMILIES = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
"""Names for one and the same thing; the first that has a value counts."""

_FAMILY = {name: family for family in FAMILIES for name in family} | {
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")
}

_LISTENER = re.compile(r"listener\.name\.([^.]*)\.(.*)", re.DOTALL)

_PER_MECHANISM = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)
"""Settings that a listener has once for each SASL mechanism."""

ONLY_DYNAMIC = frozenset(
    (
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    )
)
"""Set while a broker runs, for as long as partitions move; shown only where they are set."""

FOREIGN_PREFIXES = (
    "config.providers.",
    "rsm.config.",
    "rlmm.config.",
    "metrics.context.",
    "kafka.csv.metrics.",
    "confluent.",
)
"""Settings of plugins: nothing is known about them, and they do nothing here."""


def listener_base(name: str) -> tuple[str, str] | None:
    """The listener and the setting of `listener.name.<listener>.[<mechanism>.]<setting>`."""
    match = _LISTENER.fullmatch(name)
    if match is None:
        return None
    for setting in _PER_MECHANISM:
        if match[2].endswith("." + setting):
            return match[1], setting
    return match[1], match[2]


def setting_of(name: str) -> Setting | None:
    """The setting a name belongs to, also with a listener before it; None for an unknown one."""
    if name in BROKER_SETTINGS:
        return BROKER_SETTINGS[name]
    based = listener_base(name)
    if based is not None and based[1] in BROKER_SETTINGS:
        return BROKER_SETTINGS[based[1]]
    return None


def family_of(name: str) -> tuple[str, ...]:
    """The names under which the value of a setting is looked for, the first one winning."""
    if name in _FAMILY:
        return _FAMILY[name]
    based = listener_base(name)
    return (name,) if based is None else (name, based[1])
