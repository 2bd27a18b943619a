"""The DescribeConfigs entries of the broker's settings."""

from collections.abc import Iterable, Mapping

from penstock.broker.config.broker_settings import (
    BROKER_SETTINGS,
    ONLY_DYNAMIC,
    family_of,
    setting_of,
)
from penstock.broker.config.entry import ConfigEntry, Synonym
from penstock.broker.config.settings import Dynamic
from penstock.protocol.enums import ConfigSource, ConfigType


class BrokerDescriptions:
    """The values in effect and their sources, in order of precedence."""

    def __init__(
        self,
        current: Mapping[str, str],
        per_broker: Mapping[str, str],
        default: Mapping[str, str],
        static: Mapping[str, str],
    ) -> None:
        self._current = current
        self._default = default
        self._sources = (
            (ConfigSource.DYNAMIC_BROKER_CONFIG, per_broker),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, default),
            (ConfigSource.STATIC_BROKER_CONFIG, static),
        )

    def synonyms(self, name: str) -> tuple[Synonym, ...]:
        """Returns the settings that provide a value, beginning with the first one of this name.

        As in Kafka, `log.retention.ms` has none if only `log.retention.hours` is set.
        """
        setting = setting_of(name)
        is_hidden = setting is None or setting.sensitive
        synonyms: list[Synonym] = []
        for source, texts in self._sources:
            for synonym in family_of(name):
                if synonym in texts:
                    value = None if is_hidden else texts[synonym]
                    synonyms.append(Synonym(synonym, value, source))
        for synonym in family_of(name):
            if synonym in BROKER_SETTINGS and synonym not in ONLY_DYNAMIC:
                default = BROKER_SETTINGS[synonym].default
                if default is not None:
                    value = None if is_hidden else default
                    synonyms.append(Synonym(synonym, value, ConfigSource.DEFAULT_CONFIG))
        names = [synonym.name for synonym in synonyms]
        return tuple(synonyms[names.index(name) :]) if name in names else ()

    def describe(self, name: str) -> ConfigEntry | None:
        if name not in self._current and name not in BROKER_SETTINGS:
            return None
        return self._entry(name, self._value(name), self.synonyms(name))

    def describe_all(self, names: Iterable[str] | None) -> list[ConfigEntry]:
        described = set(self._current)
        for name in BROKER_SETTINGS:
            setting = BROKER_SETTINGS[name]
            if not setting.internal and not setting.old and name not in ONLY_DYNAMIC:
                described.add(name)
        if names is not None:
            described &= set(names)
        return [
            self._entry(name, self._value(name), self.synonyms(name)) for name in sorted(described)
        ]

    def describe_default(self, names: Iterable[str] | None) -> list[ConfigEntry]:
        described = set(self._default) if names is None else set(self._default) & set(names)
        return [
            self._entry(
                name,
                self._default[name],
                tuple(
                    synonym
                    for synonym in self.synonyms(name)
                    if synonym.source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
                ),
            )
            for name in sorted(described)
        ]

    def _value(self, name: str) -> str | None:
        setting = setting_of(name)
        if name in self._current:
            text = self._current[name]
            return setting.normalize(text) if setting is not None else text
        return None if setting is None else setting.default

    def _entry(self, name: str, value: str | None, synonyms: tuple[Synonym, ...]) -> ConfigEntry:
        setting = setting_of(name)
        is_sensitive = setting is None or setting.sensitive
        return ConfigEntry(
            name,
            None if is_sensitive else value,
            synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
            synonyms,
            is_sensitive,
            name not in BROKER_SETTINGS or BROKER_SETTINGS[name].dynamic is Dynamic.READ_ONLY,
            ConfigType.UNKNOWN if setting is None else setting.type,
            None if setting is None else setting.doc,
        )
