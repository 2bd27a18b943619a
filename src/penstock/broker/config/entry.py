"""An entry of DescribeConfigs: a setting, its value, and the source of the value."""

from typing import NamedTuple

from penstock.protocol.enums import ConfigSource, ConfigType


class Synonym(NamedTuple):
    """One of the settings that provide a value, in order of precedence."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    name: str
    value: str | None
    """None if there is none, or if it is sensitive."""
    source: ConfigSource
    synonyms: tuple[Synonym, ...]
    sensitive: bool
    read_only: bool
    type: ConfigType
    doc: str | None
