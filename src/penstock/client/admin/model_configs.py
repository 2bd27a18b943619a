"""What the admin client takes and gives about settings."""

from enum import IntEnum
from typing import NamedTuple, Self


class _Coded(IntEnum):
    """A word that travels as a number; a number that nobody knows is 0, `UNKNOWN`."""

    @classmethod
    def from_code(cls, code: int) -> Self:
        return cls(code if code in cls._value2member_map_ else 0)


class ConfigResourceType(_Coded):
    """What has settings."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """A topic, a broker (its id as text; the empty text for the defaults of all), and so on."""

    type: ConfigResourceType
    name: str


class ConfigSource(_Coded):
    """Where a value comes from."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class ConfigType(_Coded):
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


class ConfigOpType(IntEnum):
    SET = 0
    DELETE = 1
    """Back to the default."""
    APPEND = 2
    """To a setting that is a list."""
    SUBTRACT = 3
    """From a setting that is a list."""


class ConfigOp(NamedTuple):
    """A change to one setting."""

    name: str
    value: str | None
    """None with DELETE."""
    op: ConfigOpType = ConfigOpType.SET
