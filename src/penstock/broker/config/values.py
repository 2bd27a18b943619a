"""Values by name and type, for whoever needs a setting.

The methods are called as the types are, and so stand in a class of their own: within it a type must
be named with its module.
"""

import builtins
from collections.abc import Mapping

from penstock.broker.config.broker_settings import BROKER_SETTINGS
from penstock.broker.config.validators import Value


class BrokerValues:
    """Values of the broker's settings. A name that is in no table is a KeyError."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts
        self._values: dict[str, Value] = {}

    def text(self, name: builtins.str) -> builtins.str | None:
        """As it was written, or the default."""
        setting = BROKER_SETTINGS[name]
        return self._texts.get(name, setting.default)

    def is_set(self, name: builtins.str) -> builtins.bool:
        """Whether the value is other than by default."""
        return BROKER_SETTINGS[name].name in self._texts

    def value(self, name: builtins.str) -> Value:
        """Of the setting's own type; None where there is no value."""
        if name not in self._values:
            setting = BROKER_SETTINGS[name]
            text = self._texts.get(name)
            self._values[name] = setting.default_value() if text is None else setting.parse(text)
        return self._values[name]

    def int(self, name: builtins.str) -> builtins.int:
        value = self.value(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise _mismatch(name, "whole number", value)
        return value

    def float(self, name: builtins.str) -> builtins.float:
        value = self.value(name)
        if not isinstance(value, float):
            raise _mismatch(name, "number", value)
        return value

    def bool(self, name: builtins.str) -> builtins.bool:
        value = self.value(name)
        if not isinstance(value, bool):
            raise _mismatch(name, "truth value", value)
        return value

    def str(self, name: builtins.str) -> builtins.str:
        value = self.value(name)
        if not isinstance(value, str):
            raise _mismatch(name, "text", value)
        return value

    def list(self, name: builtins.str) -> builtins.list[builtins.str]:
        value = self.value(name)
        if not isinstance(value, list):
            raise _mismatch(name, "list", value)
        return value

    def password(self, name: builtins.str) -> builtins.str | None:
        """The secret itself; None where there is none."""
        value = self.value(name)
        if value is not None and not isinstance(value, str):
            raise _mismatch(name, "password", value)
        return value

    def listener_setting(
        self, listener: builtins.str, name: builtins.str, mechanism: builtins.str | None = None
    ) -> builtins.str | None:
        """The text of a setting for one listener (and SASL mechanism), or else for all."""
        return self._texts.get(
            self._listener_name(listener, name, mechanism), BROKER_SETTINGS[name].default
        )

    def listener_value(
        self, listener: builtins.str, name: builtins.str, mechanism: builtins.str | None = None
    ) -> Value:
        """The same, of the setting's own type."""
        key = self._listener_name(listener, name, mechanism)
        return self.value(name) if key == name else BROKER_SETTINGS[name].parse(self._texts[key])

    def _listener_name(
        self, listener: builtins.str, name: builtins.str, mechanism: builtins.str | None
    ) -> builtins.str:
        prefix = f"listener.name.{listener.lower()}."
        if mechanism is not None and f"{prefix}{mechanism.lower()}.{name}" in self._texts:
            return f"{prefix}{mechanism.lower()}.{name}"
        return prefix + name if prefix + name in self._texts else name


def _mismatch(name: str, wanted: str, value: Value) -> TypeError:
    found = "without a value" if value is None else f"a {type(value).__name__}"
    return TypeError(f"{name} was asked for as a {wanted}, but is {found}")
