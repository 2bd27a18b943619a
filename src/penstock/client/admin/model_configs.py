"""Values of the admin client: settings of resources."""

from typing import NamedTuple

from penstock.protocol.enums import ConfigOpType, ConfigResourceType, ConfigSource, ConfigType


class ConfigResource(NamedTuple):
    """A topic, a broker (its id as text; empty for the defaults of all brokers), a group …"""

    type: ConfigResourceType
    name: str


class ConfigSynonym(NamedTuple):
    """A source of a value; the first synonym that has a value determines it."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """A setting with its value."""

    name: str
    value: str | None
    """None without a value, and for secrets (`is_sensitive`)."""
    source: ConfigSource = ConfigSource.UNKNOWN
    is_sensitive: bool = False
    is_read_only: bool = False
    synonyms: tuple[ConfigSynonym, ...] = ()
    type: ConfigType = ConfigType.UNKNOWN
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT_CONFIG

    @property
    def is_dynamic(self) -> bool:
        """Whether it is set on the resource itself, so that it can be deleted there."""
        return self.source in _DYNAMIC


_DYNAMIC = frozenset(
    {
        ConfigSource.DYNAMIC_TOPIC_CONFIG,
        ConfigSource.DYNAMIC_BROKER_CONFIG,
        ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
        ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG,
        ConfigSource.DYNAMIC_GROUP_CONFIG,
    }
)


class ConfigOp(NamedTuple):
    """A change of one setting."""

    name: str
    value: str | None
    """None with DELETE."""
    op: ConfigOpType = ConfigOpType.SET
