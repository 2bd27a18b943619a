"""Settings of groups: their own or the broker's, within the limits that the broker sets."""

from collections.abc import Iterable, Mapping

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.broker_settings import BROKER_SETTINGS
from penstock.broker.config.checks import GROUP_KINDS
from penstock.broker.config.entry import ConfigEntry, Synonym
from penstock.broker.config.settings import ConfigError, Table, format_value, nearest
from penstock.broker.config.tables import group as table
from penstock.broker.config.validators import Value
from penstock.protocol.enums import ConfigSource

GROUP_SETTINGS = Table(table.TABLE)


def broker_synonym(name: str) -> str | None:
    """Returns the broker setting that is the default of a group setting, if there is one."""
    synonym = f"group.{name}"
    return synonym if synonym in BROKER_SETTINGS else None


def limits(broker: BrokerConfig, name: str) -> tuple[int | None, int | None]:
    """Returns the lowest and the highest value that the broker allows."""
    kind, _, rest = name.partition(".")
    rest = rest.removeprefix("num.")
    low, high = f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}"
    return (
        broker.int(low) if low in BROKER_SETTINGS else None,
        broker.int(high) if high in BROKER_SETTINGS else None,
    )


def validate_group_configs(configs: Mapping[str, str], broker: BrokerConfig) -> None:
    """Raises ConfigError unless a group may have exactly these settings."""
    for name, text in configs.items():
        if name not in GROUP_SETTINGS:
            raise ConfigError(f"no such group setting{nearest(name, GROUP_SETTINGS)}", name)
        value = GROUP_SETTINGS[name].parse(text)
        low, high = limits(broker, name)
        if isinstance(value, int) and (low is not None and value < low):
            raise ConfigError(f"{value} is less than the broker's minimum, {low}", name)
        if isinstance(value, int) and (high is not None and value > high):
            raise ConfigError(f"{value} is more than the broker's maximum, {high}", name)
    for kind in GROUP_KINDS:
        heartbeat, session = f"{kind}.heartbeat.interval.ms", f"{kind}.session.timeout.ms"
        if heartbeat in configs or session in configs:
            _check_session(broker, configs, heartbeat, session)


def _check_session(
    broker: BrokerConfig, configs: Mapping[str, str], heartbeat: str, session: str
) -> None:
    interval, timeout = group_int(broker, configs, heartbeat), group_int(broker, configs, session)
    if timeout <= interval:
        raise ConfigError(f"{timeout} must be more than {heartbeat}, {interval}", session)


def group_value(broker: BrokerConfig, overrides: Mapping[str, str], name: str) -> Value:
    """Returns the value in effect for a group, within the current limits of the broker."""
    if name not in overrides:
        synonym = broker_synonym(name)
        return GROUP_SETTINGS[name].default_value() if synonym is None else broker.value(synonym)
    value = GROUP_SETTINGS[name].parse(overrides[name])
    if isinstance(value, int) and not isinstance(value, bool):
        low, high = limits(broker, name)
        value = value if low is None else max(low, value)
        value = value if high is None else min(high, value)
    return value


def group_int(broker: BrokerConfig, overrides: Mapping[str, str], name: str) -> int:
    value = group_value(broker, overrides, name)
    if not isinstance(value, int):
        raise TypeError(f"{name} is not an integer")
    return value


def describe_group(
    broker: BrokerConfig, overrides: Mapping[str, str], names: Iterable[str] | None = None
) -> list[ConfigEntry]:
    """Returns the DescribeConfigs entries of a group with these settings."""
    described = set(GROUP_SETTINGS) if names is None else set(GROUP_SETTINGS) & set(names)
    return [_entry(broker, overrides, name) for name in sorted(described)]


def _entry(broker: BrokerConfig, overrides: Mapping[str, str], name: str) -> ConfigEntry:
    setting = GROUP_SETTINGS[name]
    value = format_value(group_value(broker, overrides, name))
    synonym = broker_synonym(name)
    if synonym is not None:
        synonyms = broker.descriptions().synonyms(synonym)
    else:
        synonyms = (Synonym(name, setting.default, ConfigSource.DEFAULT_CONFIG),)
    if name in overrides:
        synonyms = (Synonym(name, value, ConfigSource.DYNAMIC_GROUP_CONFIG), *synonyms)
    return ConfigEntry(
        name,
        value,
        synonyms[0].source,
        synonyms,
        sensitive=False,
        read_only=False,
        type=setting.type,
        doc=setting.doc,
    )
