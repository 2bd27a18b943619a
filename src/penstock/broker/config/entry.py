"""A setting as DescribeConfigs shows it: its value, and where the value comes from."""

from enum import IntEnum
from typing import NamedTuple

from penstock.broker.config.settings import ConfigType


class ConfigSource(IntEnum):
    """Where a value comes from, with the numbers of the protocol."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class Synonym(NamedTuple):
    """One of the places that were looked at for a value, the first one that has it winning."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    name: str
    value: str | None
    """None where there is none, and where it must not be shown."""
    source: ConfigSource
    synonyms: tuple[Synonym, ...]
    sensitive: bool
    read_only: bool
    type: ConfigType
    doc: str | None
