"""Settings of a client metrics subscription (KIP-714)."""

from collections.abc import Iterable, Mapping

from penstock.broker.config.entry import ConfigEntry, Synonym
from penstock.broker.config.settings import ConfigError, Table, nearest
from penstock.broker.config.tables import client_metrics as table
from penstock.protocol.enums import ConfigSource

CLIENT_METRICS_SETTINGS = Table(table.TABLE)


def validate_client_metrics_configs(configs: Mapping[str, str]) -> None:
    """Raises ConfigError unless a subscription may have exactly these settings."""
    for name, text in configs.items():
        if name not in CLIENT_METRICS_SETTINGS:
            suggestion = nearest(name, CLIENT_METRICS_SETTINGS)
            raise ConfigError(f"no such setting of a metrics subscription{suggestion}", name)
        CLIENT_METRICS_SETTINGS[name].parse(text)


def describe_client_metrics(
    configs: Mapping[str, str], names: Iterable[str] | None = None
) -> list[ConfigEntry]:
    """Returns the DescribeConfigs entries of a subscription with these settings."""
    described = set(CLIENT_METRICS_SETTINGS)
    if names is not None:
        described &= set(names)
    return [_entry(configs, name) for name in sorted(described)]


def _entry(configs: Mapping[str, str], name: str) -> ConfigEntry:
    setting = CLIENT_METRICS_SETTINGS[name]
    value, source = setting.default, ConfigSource.DEFAULT_CONFIG
    synonyms: tuple[Synonym, ...] = ()
    if name in configs:
        value, source = setting.normalize(configs[name]), ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG
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
