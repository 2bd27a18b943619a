"""Settings of topics: their own, or the broker's under other names."""

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final
from weakref import WeakKeyDictionary

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.entry import ConfigEntry, Synonym
from penstock.broker.config.memory_config import max_decompressed_bytes
from penstock.broker.config.settings import ConfigError, Table, format_value, nearest
from penstock.broker.config.tables import topic as table
from penstock.broker.config.validators import Value
from penstock.protocol.enums import ConfigSource
from penstock.storage.log_config import SETTINGS as LOG_SETTINGS
from penstock.storage.log_config import LogConfig

TOPIC_SETTINGS = Table(table.TABLE)

TOPIC_SYNONYMS: dict[str, tuple[str, ...]] = {
    "cleanup.policy": ("log.cleanup.policy",),
    "compression.gzip.level": ("compression.gzip.level",),
    "compression.lz4.level": ("compression.lz4.level",),
    "compression.type": ("compression.type",),
    "compression.zstd.level": ("compression.zstd.level",),
    "delete.retention.ms": ("log.cleaner.delete.retention.ms",),
    "file.delete.delay.ms": ("log.segment.delete.delay.ms",),
    "flush.messages": ("log.flush.interval.messages",),
    "flush.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    "index.interval.bytes": ("log.index.interval.bytes",),
    "local.retention.bytes": ("log.local.retention.bytes",),
    "local.retention.ms": ("log.local.retention.ms",),
    "max.compaction.lag.ms": ("log.cleaner.max.compaction.lag.ms",),
    "max.message.bytes": ("message.max.bytes",),
    "message.downconversion.enable": ("log.message.downconversion.enable",),
    "message.timestamp.after.max.ms": ("log.message.timestamp.after.max.ms",),
    "message.timestamp.before.max.ms": ("log.message.timestamp.before.max.ms",),
    "message.timestamp.type": ("log.message.timestamp.type",),
    "min.cleanable.dirty.ratio": ("log.cleaner.min.cleanable.ratio",),
    "min.compaction.lag.ms": ("log.cleaner.min.compaction.lag.ms",),
    "min.insync.replicas": ("min.insync.replicas",),
    "preallocate": ("log.preallocate",),
    "retention.bytes": ("log.retention.bytes",),
    "retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "segment.bytes": ("log.segment.bytes",),
    "segment.index.bytes": ("log.index.size.max.bytes",),
    "segment.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "segment.ms": ("log.roll.ms", "log.roll.hours"),
    "unclean.leader.election.enable": ("unclean.leader.election.enable",),
}
"""The broker settings that are the default of each topic setting; the first with a value counts."""

_UNITS = {".hours": 3_600_000, ".minutes": 60_000}

_UNLIMITED = ("retention.ms", "retention.bytes")
"""Settings in which Kafka treats every negative number as no limit."""

_CACHE_LIMIT = 4096

_LOWEST_STORED: Final = {"segment.bytes": 14}
"""Values that Kafka 3.9 accepts, though neither Kafka 4 nor this broker lets anybody set them."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The settings in effect for a topic."""

    log: LogConfig
    min_insync_replicas: int
    unclean_leader_election_enable: bool
    leader_replication_throttled_replicas: tuple[str, ...]
    follower_replication_throttled_replicas: tuple[str, ...]


class _Cache:
    """Topic configs by overrides; valid until the broker's settings change."""

    def __init__(self) -> None:
        self.version = -1
        self.configs: dict[frozenset[tuple[str, str]], TopicConfig] = {}


_caches: WeakKeyDictionary[BrokerConfig, _Cache] = WeakKeyDictionary()


def topic_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> TopicConfig:
    """Returns the settings of a topic with these overrides; equal ones share one object."""
    cache = _caches.get(broker)
    if cache is None:
        cache = _caches[broker] = _Cache()
    if cache.version != broker.version or len(cache.configs) >= _CACHE_LIMIT:
        cache.configs.clear()
        cache.version = broker.version
    key = frozenset(overrides.items())
    config = cache.configs.get(key)
    if config is None:
        config = cache.configs[key] = _build(broker, overrides)
    return config


def validate_topic_configs(
    configs: Mapping[str, str], broker: BrokerConfig, stored: Mapping[str, str] | None = None
) -> None:
    """Raises ConfigError unless a topic may have exactly these settings.

    Those that are stored for it already may also have values that only other releases accept.
    """
    for name, text in configs.items():
        if name not in TOPIC_SETTINGS:
            raise ConfigError(f"no such topic setting{nearest(name, TOPIC_SETTINGS)}", name)
        if stored is not None and stored.get(name) == text:
            _parse_stored(name, text)
        else:
            TOPIC_SETTINGS[name].parse(text)
    if TOPIC_SETTINGS["remote.storage.enable"].parse(configs.get("remote.storage.enable", "false")):
        raise ConfigError(
            "Penstock has no remote storage",
            "remote.storage.enable",
            remedy="leave it at false, and limit the segments on disk with retention.ms "
            "or retention.bytes",
        )
    minimum, maximum = _compaction_lags(broker, configs)
    if minimum > maximum:
        raise ConfigError(
            f"{minimum} is more than max.compaction.lag.ms, {maximum}",
            "min.compaction.lag.ms",
        )


def describe_topic(
    broker: BrokerConfig, overrides: Mapping[str, str], names: Iterable[str] | None = None
) -> list[ConfigEntry]:
    """Returns the DescribeConfigs entries of a topic with these overrides."""
    described = set(overrides)
    for name, setting in TOPIC_SETTINGS.items():
        if not setting.internal and not setting.old:
            described.add(name)
    if names is not None:
        described &= set(names)
    return [_entry(broker, overrides, name) for name in sorted(described & set(TOPIC_SETTINGS))]


def effective_value(broker: BrokerConfig, overrides: Mapping[str, str], name: str) -> Value:
    """Returns the value of one setting for a topic with these overrides.

    Overrides may be those of another release. One that is invalid here counts as not set.
    """
    setting = TOPIC_SETTINGS[name]
    if name in overrides:
        with suppress(ConfigError):
            return _parse_stored(name, overrides[name])
    for synonym in TOPIC_SYNONYMS.get(name, ()):
        value = broker.value(synonym)
        if value is not None:
            return _to_topic_unit(name, synonym, value)
    return setting.default_value()


def _parse_stored(name: str, text: str) -> Value:
    """Returns the value of an override, which another release may have accepted."""
    try:
        return TOPIC_SETTINGS[name].parse(text)
    except ConfigError:
        lowest = _LOWEST_STORED.get(name)
        if lowest is not None and text.strip().isdecimal() and int(text) >= lowest:
            return int(text)
        raise


def _without_invalid(overrides: Mapping[str, str]) -> Mapping[str, str]:
    """Returns the overrides that are valid here.

    Nothing is deleted or compacted in a topic that has other ones: a default may be shorter.
    """
    valid = dict(overrides)
    for name, text in overrides.items():
        if name in TOPIC_SETTINGS:
            try:
                _parse_stored(name, text)
            except ConfigError as error:
                _logger.error(
                    "a topic has an invalid setting, and nothing is deleted or compacted in it "
                    "until it has another value: %s",
                    error,
                )
                del valid[name]
    if len(valid) < len(overrides):
        valid["cleanup.policy"] = ""
    return valid


def _to_topic_unit(name: str, synonym: str, value: Value) -> Value:
    if not isinstance(value, int) or isinstance(value, bool):
        return value
    for suffix, unit in _UNITS.items():
        if synonym.endswith(suffix):
            value *= unit
    return max(-1, value) if name == "retention.ms" else value


def _build(broker: BrokerConfig, stored: Mapping[str, str]) -> TopicConfig:
    overrides = _without_invalid(stored)

    def value(name: str) -> Value:
        return effective_value(broker, overrides, name)

    names = set(LOG_SETTINGS) - {"segment.bytes"}  # its limits are those of `_parse_stored`
    texts = {name: format_value(_clamped(name, value(name))) or "" for name in names}
    # The broker's lag may have changed since the topic's setting was validated.
    texts["min.compaction.lag.ms"] = str(min(_compaction_lags(broker, overrides)))
    log = LogConfig().with_overrides(texts)
    log = replace(log, max_decompressed_bytes=max_decompressed_bytes(broker))
    segment_bytes = value("internal.segment.bytes") or value("segment.bytes")
    if isinstance(segment_bytes, int):
        log = replace(log, segment_bytes=segment_bytes)
    min_insync = value("min.insync.replicas")
    leader, follower = (
        value(f"{side}.replication.throttled.replicas") for side in ("leader", "follower")
    )
    return TopicConfig(
        log,
        min_insync if isinstance(min_insync, int) else 1,
        value("unclean.leader.election.enable") is True,
        tuple(leader) if isinstance(leader, list) else (),
        tuple(follower) if isinstance(follower, list) else (),
    )


def _compaction_lags(broker: BrokerConfig, overrides: Mapping[str, str]) -> tuple[int, int]:
    minimum = effective_value(broker, overrides, "min.compaction.lag.ms")
    maximum = effective_value(broker, overrides, "max.compaction.lag.ms")
    if not isinstance(minimum, int) or not isinstance(maximum, int):
        raise TypeError("compaction lags are integers")
    return minimum, maximum


def _clamped(name: str, value: Value) -> Value:
    if isinstance(value, int) and not isinstance(value, bool):
        if name in _UNLIMITED:
            return max(-1, value)
        if name == "flush.ms":
            return max(0, value)
    return value


def _entry(broker: BrokerConfig, overrides: Mapping[str, str], name: str) -> ConfigEntry:
    setting = TOPIC_SETTINGS[name]
    value = format_value(effective_value(broker, overrides, name))
    synonyms: tuple[Synonym, ...] = ()
    if name in TOPIC_SYNONYMS:
        synonyms = broker.descriptions().synonyms(TOPIC_SYNONYMS[name][0])
    if name in overrides:
        synonyms = (Synonym(name, value, ConfigSource.DYNAMIC_TOPIC_CONFIG), *synonyms)
    return ConfigEntry(
        name,
        value,
        synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        synonyms,
        sensitive=False,
        read_only=False,
        type=setting.type,
        doc=setting.doc,
    )
