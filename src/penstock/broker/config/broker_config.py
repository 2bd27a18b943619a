"""The broker's settings: from its file, from dynamic changes, and the values in effect.

A value comes from the first of these that has one: the dynamic settings of this broker, the dynamic
defaults of all brokers, the file, the default. Defaults are Kafka's, except where Kafka has none
with which a broker could start without a file.
"""

import logging
import re
from collections.abc import Callable, Iterable, Mapping

from penstock.broker.config import dynamic
from penstock.broker.config.broker_settings import (
    BROKER_SETTINGS,
    PLUGIN_PREFIXES,
    setting_of,
)
from penstock.broker.config.checks import check_values
from penstock.broker.config.describe import BrokerDescriptions
from penstock.broker.config.entry import ConfigEntry
from penstock.broker.config.listeners import (
    Listeners,
    ListenerSpec,
    check_mechanisms,
    protocol_map,
    resolve_listeners,
)
from penstock.broker.config.replication_limits import replication_warnings
from penstock.broker.config.security_posture import security_warnings
from penstock.broker.config.settings import ConfigError as ConfigError
from penstock.broker.config.settings import nearest
from penstock.broker.config.values import BrokerValues
from penstock.controller.metadata import Endpoint

logger = logging.getLogger(__name__)

_REFERENCE = re.compile(r"\$\{([^}:]+):[^}]*\}")

Callback = Callable[[frozenset[str]], None]


class BrokerConfig(BrokerValues):
    """The settings in effect. `text`, `int`, `bool` and so on read them by name."""

    version: int
    """Rises with every change, so that derived values can be cached until then."""

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, str], *, hostname: str = "localhost"
    ) -> "BrokerConfig":
        """Returns the settings of a file; ConfigError for the first invalid one.

        `hostname` is advertised if a listener is bound to all addresses and `advertised.listeners`
        is not set.
        """
        return cls(_with_synonyms(properties), hostname)

    def __init__(self, static: Mapping[str, str], hostname: str) -> None:
        for name, text in static.items():
            _check_static(name, text)
        _check_references(static)
        super().__init__(static)
        self._static = dict(static)
        self._hostname = hostname
        self._dynamic_default: dict[str, str] = {}
        self._dynamic_broker: dict[str, str] = {}
        self._subscribers: list[tuple[str | frozenset[str], Callback]] = []
        self.version = 0
        check_values(self)
        self._listeners = _listeners(self, hostname)
        self._mechanisms = _mechanisms(self, self._listeners.bound)

    # --- listeners

    @property
    def listeners(self) -> list[ListenerSpec]:
        return self._listeners.bound

    @property
    def advertised(self) -> list[ListenerSpec]:
        """The advertised listeners; a port may still be 0, see `advertised_endpoints`."""
        return self._listeners.advertised

    @property
    def inter_broker_listener(self) -> str:
        """The name of the listener for traffic between brokers."""
        return self._listeners.inter_broker

    @property
    def control_plane_listener(self) -> str:
        """The name of the listener on which the controller sends requests to other brokers."""
        return self._listeners.control_plane

    def advertised_endpoints(self, bound_ports: Mapping[str, int]) -> list[Endpoint]:
        """Returns the advertised endpoints, with the bound ports in place of port 0."""
        return [
            Endpoint(spec.name, spec.host, spec.port or bound_ports[spec.name], spec.protocol)
            for spec in self.advertised
        ]

    def sasl_mechanisms(self, listener: str) -> list[str]:
        """Returns the mechanisms with which clients of a SASL listener can authenticate."""
        return self._mechanisms[listener]

    # --- messages at start

    def without_effect(self) -> list[str]:
        """Returns the settings in the file that have no effect in Penstock."""
        settings = ((name, setting_of(name)) for name in self._static)
        return sorted(name for name, setting in settings if setting is None or not setting.effect)

    def warnings(self) -> list[str]:
        """Returns the warnings to log when the broker starts."""
        warnings = [
            *map(str, security_warnings(self, self.listeners)),
            *replication_warnings(BrokerValues(self._texts)),
        ]
        names = self.without_effect()
        if names:
            count = "1 setting has" if len(names) == 1 else f"{len(names)} settings have"
            warnings.append(f"{count} no effect in Penstock: {', '.join(names)}")
        return warnings

    # --- dynamic settings

    def validate_dynamic(self, changes: Mapping[str, str], *, per_broker: bool) -> None:
        """Raises ConfigError unless this broker, or all brokers, may have these dynamic settings.

        `changes` has all settings that would be stored, not only new ones.
        """
        for name, text in changes.items():
            dynamic.check_dynamic(name, text, per_broker=per_broker)
        stored = self._dynamic_broker if per_broker else self._dynamic_default
        added = {name: text for name, text in changes.items() if stored.get(name) != text}
        if per_broker:
            texts = self._combined(self._dynamic_default, changes)
        else:
            texts = self._combined(changes, self._dynamic_broker)
        self._check_combination(texts)
        self._check_step(texts, added)

    def set_dynamic(self, default: Mapping[str, str], per_broker: Mapping[str, str]) -> set[str]:
        """Applies the stored defaults of all brokers and the settings of this broker.

        Returns the names whose value changed. Invalid settings are ignored and logged.
        """
        default = _usable(default, per_broker=False)
        per_broker = _usable(per_broker, per_broker=True)
        texts = self._combined(default, per_broker)
        try:
            self._check_combination(texts)
        except ConfigError as error:
            logger.error("the stored settings are not applied: %s", error.message)
            return set()
        names = self._texts.keys() | texts.keys()
        changed = {
            name
            for name in names
            if self._described(self._texts, name) != self._described(texts, name)
        }
        self._dynamic_default, self._dynamic_broker = dict(default), dict(per_broker)
        self._texts = texts
        self._values.clear()
        self._mechanisms = _mechanisms(self, self._listeners.bound)
        if changed:
            self.version += 1
            self._notify(changed)
        return changed

    def subscribe(self, names: str | Iterable[str], callback: Callback) -> Callable[[], None]:
        """Calls `callback` after a change with those of the names whose value changed.

        A string means all names with that prefix. Returns a function that ends the subscription.
        """
        entry = (names if isinstance(names, str) else frozenset(names), callback)
        self._subscribers.append(entry)
        return lambda: self._subscribers.remove(entry)

    def _notify(self, changed: set[str]) -> None:
        for names, callback in list(self._subscribers):
            if isinstance(names, str):
                matches = frozenset(name for name in changed if name.startswith(names))
            else:
                matches = names & changed
            if matches:
                try:
                    callback(matches)
                except Exception:
                    logger.exception("a component failed to apply %s", ", ".join(sorted(matches)))

    def _combined(
        self, default: Mapping[str, str], per_broker: Mapping[str, str]
    ) -> dict[str, str]:
        texts = dict(self._static)
        dynamic.apply(texts, default)
        dynamic.apply(texts, per_broker)
        return texts

    def _check_combination(self, texts: Mapping[str, str]) -> None:
        values = BrokerValues(texts)
        check_values(values)
        if _listeners(values, self._hostname) != self._listeners:
            raise ConfigError(
                "cannot change while the broker runs",
                "listeners",
                remedy="set them in server.properties and restart the broker",
            )
        _mechanisms(values, self._listeners.bound)

    def _check_step(self, texts: Mapping[str, str], added: Iterable[str]) -> None:
        """Raises ConfigError for changes that need a restart, or are too large for one step."""
        dynamic.check_steps(self, BrokerValues(texts))
        running = frozenset(spec.name.lower() for spec in self.listeners)
        for name in added:
            if dynamic.changes_running_listener(name, self._texts, texts, running):
                raise ConfigError(
                    "cannot change while the listener is open",
                    name,
                    remedy="set it in server.properties and restart the broker",
                )

    @staticmethod
    def _described(texts: Mapping[str, str], name: str) -> str | None:
        setting = setting_of(name)
        default = None if setting is None or name not in BROKER_SETTINGS else setting.default
        return texts.get(name, default)

    # --- DescribeConfigs

    def describe(self, name: str) -> ConfigEntry | None:
        """Returns one setting; None for a name that is neither known nor set."""
        return self.descriptions().describe(name)

    def describe_all(self, names: Iterable[str] | None = None) -> list[ConfigEntry]:
        """Returns the settings of this broker, or the named ones."""
        return self.descriptions().describe_all(names)

    def describe_default(self, names: Iterable[str] | None = None) -> list[ConfigEntry]:
        """Returns the dynamic defaults of all brokers: the resource without a name."""
        return self.descriptions().describe_default(names)

    def descriptions(self) -> BrokerDescriptions:
        return BrokerDescriptions(
            self._texts, self._dynamic_broker, self._dynamic_default, self._static
        )


def _with_synonyms(properties: Mapping[str, str]) -> dict[str, str]:
    """Adds the other name of the broker id, and log.dirs if only log.dir is set."""
    texts = dict(properties)
    if texts.get("broker.id", "").strip() == "-1":
        del texts["broker.id"]
    for name, synonym in (("node.id", "broker.id"), ("broker.id", "node.id")):
        if name in texts:
            texts.setdefault(synonym, texts[name])
    if texts.get("node.id", "").strip() != texts.get("broker.id", "").strip():
        raise ConfigError(
            f"{texts['node.id']} differs from broker.id {texts['broker.id']}",
            "node.id",
            remedy="set one of them, or both to the same id",
        )
    if "log.dir" in texts:
        texts.setdefault("log.dirs", texts["log.dir"])
    return texts


def _check_static(name: str, text: str) -> None:
    setting = setting_of(name)
    if setting is not None:
        setting.parse(text)
    elif not name.startswith(PLUGIN_PREFIXES):
        raise ConfigError(f"no such setting{nearest(name, BROKER_SETTINGS)}", name)


def _check_references(texts: Mapping[str, str]) -> None:
    providers = [provider.strip() for provider in texts.get("config.providers", "").split(",")]
    for name, text in texts.items():
        match = _REFERENCE.search(text)
        if match is not None and match[1] in providers:
            raise ConfigError(
                (f"{match[0]} refers to the config provider {match[1]}, which Penstock cannot run"),
                name,
                remedy="write the value itself",
            )


def _listeners(values: BrokerValues, hostname: str) -> Listeners:
    advertised = values.value("advertised.listeners")
    controllers = values.value("controller.listener.names")
    name = values.value("inter.broker.listener.name")
    control_plane = values.value("control.plane.listener.name")
    protocol = "security.inter.broker.protocol"
    return resolve_listeners(
        values.list("listeners"),
        advertised if isinstance(advertised, list) else None,
        protocol_map(values.str("listener.security.protocol.map")),
        controllers=controllers if isinstance(controllers, list) else (),
        inter_broker=name if isinstance(name, str) else None,
        inter_broker_protocol=values.str(protocol) if values.is_set(protocol) else None,
        hostname=hostname,
        control_plane=control_plane if isinstance(control_plane, str) else None,
    )


def _mechanisms(values: BrokerValues, listeners: Iterable[ListenerSpec]) -> dict[str, list[str]]:
    """Returns the SASL mechanisms of each listener."""
    mechanisms: dict[str, list[str]] = {}
    for spec in listeners:
        if spec.protocol.sasl:
            enabled = values.listener_value(spec.name, "sasl.enabled.mechanisms")
            mechanisms[spec.name] = enabled if isinstance(enabled, list) else []
            check_mechanisms(spec.name, mechanisms[spec.name])
    return mechanisms


def _usable(stored: Mapping[str, str], *, per_broker: bool) -> dict[str, str]:
    usable: dict[str, str] = {}
    for name, text in stored.items():
        try:
            dynamic.check_dynamic(name, text, per_broker=per_broker)
        except ConfigError as error:
            logger.error("ignoring a stored setting: %s", error.message)
        else:
            usable[name] = text
    return usable
