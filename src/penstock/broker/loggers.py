"""The broker's loggers as resources: which there are, how much each says, and changes of that.

What a Kafka user knows by a Kafka name goes by it here too: `kafka` is everything of ours, `root`
also what libraries say. A logger without such a name has its own, and every logger answers to its
own. Levels hold until the broker stops, as in Kafka: they are not stored.
"""

import logging
from collections.abc import Callable, Iterable

from penstock.broker.config.entry import ConfigEntry, ConfigSource
from penstock.broker.config.settings import ConfigType, nearest
from penstock.controller.configs import ConfigOperation
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsAlterableConfig,
)

ROOT = "root"
_OURS = "penstock"

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
    """Each logger and the level that holds for it."""
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
    """What would change the levels as asked for; KafkaError where one cannot be changed so."""
    return [_planned(config) for config in configs]


def _planned(config: IncrementalAlterConfigsAlterableConfig) -> Callable[[], None]:
    name = config.name
    if config.config_operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"The level of logger {name} can be set (0) or deleted (1), and nothing else.",
        )
    logger = _logger(name)
    if config.config_operation == ConfigOperation.SET:
        level = _LEVELS.get(config.value or "")
        if level is None:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"{config.value!r} is no level for logger {name}: use {', '.join(_LEVELS)}.",
            )
    elif name == ROOT:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "The root logger must have a level: set another one."
        )
    else:
        level = logging.NOTSET
    return lambda: logger.setLevel(level)


def _names() -> set[str]:
    found = {
        name
        for name in logging.root.manager.loggerDict
        if name.partition(".")[0] == _OURS and _find(name) is not None
    }
    return {_OWN_NAMES.get(name, name) for name in found} | {ROOT, *_KAFKA_NAMES}


def _find(name: str) -> logging.Logger | None:
    if name == ROOT:
        return logging.root
    own = _KAFKA_NAMES.get(name)
    if own is not None:
        return logging.getLogger(own)
    known = logging.root.manager.loggerDict.get(name)
    # A name that only stands between others has a place holder.
    return known if isinstance(known, logging.Logger) else None


def _logger(name: str) -> logging.Logger:
    logger = _find(name)
    if logger is None:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"There is no logger {name}{nearest(name, _names())}"
        )
    return logger


def _level_name(level: int) -> str:
    return next((name for name, least in _LEVELS.items() if level >= least), "TRACE")
