"""What the admin client takes and gives about settings."""

from typing import NamedTuple

from penstock.protocol.enums import ConfigOpType, ConfigResourceType, ConfigSource, ConfigType


class ConfigResource(NamedTuple):
    """A topic, a broker (its id as text; the empty text for the defaults of all), and so on."""

    type: ConfigResourceType
    name: str


class ConfigSynonym(NamedTuple):
    """One of the places where the broker looks for a value; the first that has one wins."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """A setting with its value."""

    name: str
    value: str | None
    """None where there is none, and where it is secret (`is_sensitive`)."""
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
        """Set on the resource itself, so that it can be deleted there."""
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
    """A change to one setting."""

    name: str
    value: str | None
    """None with DELETE."""
    op: ConfigOpType = ConfigOpType.SET
