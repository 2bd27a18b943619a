"""The table of the broker's settings, their synonyms, and names with a listener prefix."""

import re

from penstock.broker.config.settings import Setting, Table
from penstock.broker.config.tables import (
    cluster,
    coordinators,
    logs,
    network,
    old,
    security,
    zookeeper,
)

BROKER_SETTINGS = Table(
    network.TABLE,
    logs.TABLE,
    cluster.TABLE,
    coordinators.TABLE,
    security.TABLE,
    zookeeper.TABLE,
    old.TABLE,
)

SYNONYM_FAMILIES = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
"""Settings with the same meaning in different units; the first one with a value counts."""

_FAMILY = {name: family for family in SYNONYM_FAMILIES for name in family} | {
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
"""Settings that a listener may have once per SASL mechanism."""

ONLY_DYNAMIC = frozenset(
    (
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    )
)
"""Dynamic settings for the time of a reassignment; described only if they are set."""

PLUGIN_PREFIXES = (
    "config.providers.",
    "rsm.config.",
    "rlmm.config.",
    "metrics.context.",
    "kafka.csv.metrics.",
    "confluent.",
)
"""Settings of plugins: accepted without a check, and without effect."""


def listener_base(name: str) -> tuple[str, str] | None:
    """Splits `listener.name.<listener>.[<mechanism>.]<setting>` into listener and setting."""
    match = _LISTENER.fullmatch(name)
    if match is None:
        return None
    for setting in _PER_MECHANISM:
        if match[2].endswith("." + setting):
            return match[1], setting
    return match[1], match[2]


def setting_of(name: str) -> Setting | None:
    """Returns the setting of a name, with or without a listener prefix; None if it is unknown."""
    if name in BROKER_SETTINGS:
        return BROKER_SETTINGS[name]
    base = listener_base(name)
    if base is not None and base[1] in BROKER_SETTINGS:
        return BROKER_SETTINGS[base[1]]
    return None


def family_of(name: str) -> tuple[str, ...]:
    """Returns the names that provide the value of a setting, in order of precedence."""
    if name in _FAMILY:
        return _FAMILY[name]
    base = listener_base(name)
    return (name,) if base is None else (name, base[1])
