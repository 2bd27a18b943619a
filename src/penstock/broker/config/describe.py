"""The broker's settings as DescribeConfigs shows them."""

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
    """The values that hold, and the places they come from in the order in which these count."""

    def __init__(
        self,
        current: Mapping[str, str],
        per_broker: Mapping[str, str],
        default: Mapping[str, str],
        static: Mapping[str, str],
    ) -> None:
        self._current = current
        self._default = default
        self._places = (
            (ConfigSource.DYNAMIC_BROKER_CONFIG, per_broker),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, default),
            (ConfigSource.STATIC_BROKER_CONFIG, static),
        )

    def synonyms(self, name: str) -> tuple[Synonym, ...]:
        """Where a value was looked for and found; from the first that has the name itself on.

        So `log.retention.ms` has none while only `log.retention.hours` is set: this is how Kafka
        shows it.
        """
        setting = setting_of(name)
        hidden = setting is None or setting.sensitive
        found: list[Synonym] = []
        for source, texts in self._places:
            for each in family_of(name):
                if each in texts:
                    found.append(Synonym(each, None if hidden else texts[each], source))
        for each in family_of(name):
            if each in BROKER_SETTINGS and each not in ONLY_DYNAMIC:
                default = BROKER_SETTINGS[each].default
                if default is not None:
                    shown = None if hidden else default
                    found.append(Synonym(each, shown, ConfigSource.DEFAULT_CONFIG))
        names = [each.name for each in found]
        return tuple(found[names.index(name) :]) if name in names else ()

    def describe(self, name: str) -> ConfigEntry | None:
        if name not in self._current and name not in BROKER_SETTINGS:
            return None
        return self._entry(name, self._value(name), self.synonyms(name))

    def describe_all(self, names: Iterable[str] | None) -> list[ConfigEntry]:
        shown = set(self._current)
        for name in BROKER_SETTINGS:
            setting = BROKER_SETTINGS[name]
            if not setting.internal and not setting.old and name not in ONLY_DYNAMIC:
                shown.add(name)
        if names is not None:
            shown &= set(names)
        return [self._entry(name, self._value(name), self.synonyms(name)) for name in sorted(shown)]

    def describe_default(self, names: Iterable[str] | None) -> list[ConfigEntry]:
        shown = set(self._default) if names is None else set(self._default) & set(names)
        return [
            self._entry(
                name,
                self._default[name],
                tuple(
                    each
                    for each in self.synonyms(name)
                    if each.source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
                ),
            )
            for name in sorted(shown)
        ]

    def _value(self, name: str) -> str | None:
        setting = setting_of(name)
        if name in self._current:
            text = self._current[name]
            return setting.normal(text) if setting is not None else text
        return None if setting is None else setting.default

    def _entry(self, name: str, value: str | None, synonyms: tuple[Synonym, ...]) -> ConfigEntry:
        setting = setting_of(name)
        sensitive = setting is None or setting.sensitive
        return ConfigEntry(
            name,
            None if sensitive else value,
            synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
            synonyms,
            sensitive,
            name not in BROKER_SETTINGS or BROKER_SETTINGS[name].dynamic is Dynamic.READ_ONLY,
            ConfigType.UNKNOWN if setting is None else setting.type,
            None if setting is None else setting.doc,
        )
