"""A setting as DescribeConfigs shows it: its value, and where the value comes from."""

from typing import NamedTuple

from penstock.protocol.enums import ConfigSource, ConfigType


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
