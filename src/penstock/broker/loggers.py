"""The loggers of the broker as a resource (`BROKER_LOGGER`): their names and levels.

Loggers that Kafka has too are listed under Kafka's names: `kafka` is the whole of Penstock, `root`
includes libraries. All loggers can also be addressed by their own names. As in Kafka, levels are
not stored: a restart resets them.
"""

import logging
from collections.abc import Callable, Iterable

from penstock.broker.config.entry import ConfigEntry
from penstock.broker.config.settings import nearest
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.enums import ConfigOpType, ConfigSource, ConfigType
from penstock.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsAlterableConfig,
)

ROOT = "root"
_PACKAGE = "penstock"

_KAFKA_NAMES = {
    "kafka": "penstock",
    "kafka.server.KafkaServer": "penstock.broker",
    "kafka.server.ReplicaManager": "penstock.broker.replica.replica_manager",
    "kafka.request.logger": "penstock.broker.dispatcher",
    "kafka.network.SocketServer": "penstock.net",
    "kafka.log": "penstock.storage",
    "kafka.log.LogCleaner": "penstock.storage.cleaner.log_cleaner",
    "kafka.log.LogManager": "penstock.storage.manager.log_dir",
}
_OWN_NAMES = {own: kafka for kafka, own in _KAFKA_NAMES.items()}

_LEVELS = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
}


def describe_loggers(names: Iterable[str] | None = None) -> list[ConfigEntry]:
    """Returns the loggers, or the named ones, with their effective levels."""
    shown = _names() if names is None else {name for name in names if _find(name) is not None}
    return [
        ConfigEntry(
            name,
            _level_name(_logger(name).getEffectiveLevel()),
            ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
            synonyms=(),
            sensitive=False,
            read_only=False,
            type=ConfigType.UNKNOWN,
            doc=None,
        )
        for name in sorted(shown)
    ]


def plan_levels(
    configs: Iterable[IncrementalAlterConfigsAlterableConfig],
) -> list[Callable[[], None]]:
    """Returns functions that apply the requested levels; KafkaError if one is invalid."""
    return [_plan_level(config) for config in configs]


def _plan_level(config: IncrementalAlterConfigsAlterableConfig) -> Callable[[], None]:
    name = config.name
    if config.config_operation not in (ConfigOpType.SET, ConfigOpType.DELETE):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"the level of logger {name} can only be set (0) or deleted (1)",
        )
    logger = _logger(name)
    if config.config_operation == ConfigOpType.SET:
        level = _LEVELS.get(config.value or "")
        if level is None:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"{config.value!r} is not a level of logger {name}",
                remedy=f"use {', '.join(_LEVELS)}",
            )
    elif name == ROOT:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "the root logger must have a level",
            remedy="set another one",
        )
    else:
        level = logging.NOTSET
    return lambda: logger.setLevel(level)


def _names() -> set[str]:
    own_names = {
        name
        for name in logging.root.manager.loggerDict
        if name.partition(".")[0] == _PACKAGE and _find(name) is not None
    }
    return {_OWN_NAMES.get(name, name) for name in own_names} | {ROOT, *_KAFKA_NAMES}


def _find(name: str) -> logging.Logger | None:
    if name == ROOT:
        return logging.root
    own = _KAFKA_NAMES.get(name)
    if own is not None:
        return logging.getLogger(own)
    # The name of a package is a logger, too: its level applies to the loggers of its modules.
    return logging.getLogger(name) if name in logging.root.manager.loggerDict else None


def _logger(name: str) -> logging.Logger:
    logger = _find(name)
    if logger is None:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"logger {name} does not exist{nearest(name, _names())}"
        )
    return logger


def _level_name(level: int) -> str:
    return next((name for name, minimum in _LEVELS.items() if level >= minimum), "TRACE")
