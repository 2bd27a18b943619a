"""Typed access to the values of the broker's settings.

The methods have the names of types, so within this class types must be written with their module.
"""

import builtins
from collections.abc import Iterable, Mapping

from penstock.broker.config.broker_settings import BROKER_SETTINGS
from penstock.broker.config.validators import Value


class BrokerValues:
    """The values of the broker's settings by name. Raises KeyError for an unknown name."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts
        self._values: dict[str, Value] = {}

    def text(self, name: builtins.str) -> builtins.str | None:
        """Returns the text as configured, or the default."""
        setting = BROKER_SETTINGS[name]
        return self._texts.get(name, setting.default)

    def is_set(self, name: builtins.str) -> builtins.bool:
        """Returns whether the setting is configured."""
        return BROKER_SETTINGS[name].name in self._texts

    def is_set_for_listener(self, listener: builtins.str, name: builtins.str) -> builtins.bool:
        """Returns whether the setting is configured with the prefix of a listener."""
        return self._listener_name(listener, name, None) != name

    def texts(self) -> Iterable[tuple[builtins.str, builtins.str]]:
        """Returns the configured settings with their texts, those of listeners included."""
        return self._texts.items()

    def value(self, name: builtins.str) -> Value:
        """Returns the value in the setting's type; None if it has no value."""
        if name not in self._values:
            setting = BROKER_SETTINGS[name]
            text = self._texts.get(name)
            self._values[name] = setting.default_value() if text is None else setting.parse(text)
        return self._values[name]

    def int(self, name: builtins.str) -> builtins.int:
        value = self.value(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise _mismatch(name, "an integer", value)
        return value

    def float(self, name: builtins.str) -> builtins.float:
        value = self.value(name)
        if not isinstance(value, float):
            raise _mismatch(name, "a number", value)
        return value

    def bool(self, name: builtins.str) -> builtins.bool:
        value = self.value(name)
        if not isinstance(value, bool):
            raise _mismatch(name, "a boolean", value)
        return value

    def str(self, name: builtins.str) -> builtins.str:
        value = self.value(name)
        if not isinstance(value, str):
            raise _mismatch(name, "a string", value)
        return value

    def list(self, name: builtins.str) -> builtins.list[builtins.str]:
        value = self.value(name)
        if not isinstance(value, list):
            raise _mismatch(name, "a list", value)
        return value

    def listener_setting(
        self, listener: builtins.str, name: builtins.str, mechanism: builtins.str | None = None
    ) -> builtins.str | None:
        """Returns the text of a setting for a listener and SASL mechanism, or the general one."""
        return self._texts.get(
            self._listener_name(listener, name, mechanism), BROKER_SETTINGS[name].default
        )

    def listener_value(
        self, listener: builtins.str, name: builtins.str, mechanism: builtins.str | None = None
    ) -> Value:
        """Returns the same as `listener_setting`, in the setting's type."""
        key = self._listener_name(listener, name, mechanism)
        return self.value(name) if key == name else BROKER_SETTINGS[name].parse(self._texts[key])

    def _listener_name(
        self, listener: builtins.str, name: builtins.str, mechanism: builtins.str | None
    ) -> builtins.str:
        prefix = f"listener.name.{listener.lower()}."
        if mechanism is not None and f"{prefix}{mechanism.lower()}.{name}" in self._texts:
            return f"{prefix}{mechanism.lower()}.{name}"
        return prefix + name if prefix + name in self._texts else name


def _mismatch(name: str, expected: str, value: Value) -> TypeError:
    actual = "without a value" if value is None else f"of type {type(value).__name__}"
    return TypeError(f"{name} was read as {expected}, but is {actual}")
