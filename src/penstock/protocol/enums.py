"""Enumerations of the protocol that brokers and clients share, by their numbers on the wire."""

from enum import IntEnum
from typing import Self


class CodedEnum(IntEnum):
    """An enumeration whose member 0, `UNKNOWN`, stands for all numbers that it does not have."""

    @classmethod
    def from_code(cls, code: int) -> Self:
        return cls(code if code in cls._value2member_map_ else 0)


class ConfigResourceType(CodedEnum):
    """The kinds of resources that have settings."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(CodedEnum):
    """Where the value of a setting comes from."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class ConfigType(CodedEnum):
    """How the text of a setting is read."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigOpType(IntEnum):
    """The operations of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    """Restores the default."""
    APPEND = 2
    """Adds to a setting that is a list."""
    SUBTRACT = 3
    """Removes from a setting that is a list."""


class UpgradeType(IntEnum):
    """The change of a feature level that a client allows."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3
    """Metadata that only the newer level has is lost."""
