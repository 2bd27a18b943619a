"""Settings of a subscription to clients' metrics (KIP-714)."""

from collections.abc import Iterable, Mapping

from penstock.broker.config.entry import ConfigEntry, Synonym
from penstock.broker.config.settings import ConfigError, Table, nearest
from penstock.broker.config.tables import client_metrics as table
from penstock.protocol.enums import ConfigSource

CLIENT_METRICS_SETTINGS = Table(table.TABLE)


def validate_client_metrics_configs(configs: Mapping[str, str]) -> None:
    """ConfigError unless a subscription could have exactly these settings."""
    for name, text in configs.items():
        if name not in CLIENT_METRICS_SETTINGS:
            near = nearest(name, CLIENT_METRICS_SETTINGS)
            raise ConfigError(f"{name}: no such setting of a metrics subscription{near}", name)
        CLIENT_METRICS_SETTINGS[name].parse(text)


def describe_client_metrics(
    configs: Mapping[str, str], names: Iterable[str] | None = None
) -> list[ConfigEntry]:
    """What DescribeConfigs shows of a subscription with these settings."""
    shown = set(CLIENT_METRICS_SETTINGS)
    if names is not None:
        shown &= set(names)
    return [_entry(configs, name) for name in sorted(shown)]


def _entry(configs: Mapping[str, str], name: str) -> ConfigEntry:
    setting = CLIENT_METRICS_SETTINGS[name]
    value, source = setting.default, ConfigSource.DEFAULT_CONFIG
    synonyms: tuple[Synonym, ...] = ()
    if name in configs:
        value, source = setting.normal(configs[name]), ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG
        synonyms = (Synonym(name, value, source),)
    return ConfigEntry(
        name,
        value,
        source,
        synonyms,
        sensitive=False,
        read_only=False,
        type=setting.type,
        doc=setting.doc,
    )
