"""The broker's settings: what its file says, what was changed since, and what holds now.

A value comes from the first place that has one: set for this broker while it ran, set for all
brokers while they ran, the file, Kafka's default (or ours, where Kafka has none that would do for a
broker that is started without a file).
"""

import logging
import re
from collections.abc import Callable, Iterable, Mapping

from penstock.broker.config import dynamic
from penstock.broker.config.broker_settings import (
    BROKER_SETTINGS,
    FOREIGN_PREFIXES,
    setting_of,
)
from penstock.broker.config.checks import check_values
from penstock.broker.config.describe import BrokerDescriptions
from penstock.broker.config.entry import ConfigEntry
from penstock.broker.config.listeners import (
    Listeners,
    ListenerSpec,
    protocol_map,
    resolve_listeners,
    served_mechanisms,
)
from penstock.broker.config.settings import ConfigError as ConfigError
from penstock.broker.config.settings import nearest
from penstock.broker.config.values import BrokerValues
from penstock.controller.metadata import Endpoint

_LOG = logging.getLogger(__name__)

_REFERENCE = re.compile(r"\$\{([^}:]+):[^}]*\}")

Callback = Callable[[frozenset[str]], None]


class BrokerConfig(BrokerValues):
    """The settings that hold now. `text`, `int`, `bool` and so on read them by name."""

    version: int
    """Rises with every change, so that what was derived from the settings can be kept till then."""

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, str], *, hostname: str = "localhost"
    ) -> "BrokerConfig":
        """The settings of a file. ConfigError for the first that will not do.

        `hostname` is where clients are told to come when a listener is bound to every address and
        `advertised.listeners` does not say better.
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
        self._mechanisms, self._remarks = _mechanisms(self, self._listeners.bound)

    # --- listeners

    @property
    def listeners(self) -> list[ListenerSpec]:
        return self._listeners.bound

    @property
    def advertised(self) -> list[ListenerSpec]:
        """A port may be 0 still, see `advertised_endpoints`."""
        return self._listeners.advertised

    @property
    def inter_broker_listener(self) -> str:
        """The name of the listener that brokers use among themselves."""
        return self._listeners.inter_broker

    def advertised_endpoints(self, bound_ports: Mapping[str, int]) -> list[Endpoint]:
        """Where clients of each listener come, with the ports that were free in place of 0."""
        return [
            Endpoint(each.name, each.host, each.port or bound_ports[each.name], each.protocol)
            for each in self.advertised
        ]

    def sasl_mechanisms(self, listener: str) -> list[str]:
        """The mechanisms that clients of a SASL listener can log in with."""
        return self._mechanisms[listener]

    # --- what the user should know at the start

    def without_effect(self) -> list[str]:
        """The names in the file that do nothing here."""
        found = ((name, setting_of(name)) for name in self._static)
        return sorted(name for name, setting in found if setting is None or not setting.effect)

    def remarks(self) -> list[str]:
        """Lines for the log when the broker starts."""
        names = self.without_effect()
        if not names:
            return self._remarks
        count = "1 setting has" if len(names) == 1 else f"{len(names)} settings have"
        return [*self._remarks, f"{count} no effect here: {', '.join(names)}"]

    # --- change while the broker runs

    def validate_dynamic(self, changes: Mapping[str, str], *, per_broker: bool) -> None:
        """ConfigError unless this broker (or all of them) could have these settings.

        `changes` is everything that would be stored for it, not only what is new.
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
        """Takes what is stored for all brokers and for this one; the names whose value changed.

        What is stored but will not do is left out, with a line in the log.
        """
        default = _usable(default, per_broker=False)
        per_broker = _usable(per_broker, per_broker=True)
        texts = self._combined(default, per_broker)
        try:
            self._check_combination(texts)
        except ConfigError as error:
            _LOG.error("stored settings are not applied: %s", error.message)
            return set()
        names = self._texts.keys() | texts.keys()
        changed = {
            name for name in names if self._shown(self._texts, name) != self._shown(texts, name)
        }
        self._dynamic_default, self._dynamic_broker = dict(default), dict(per_broker)
        self._texts = texts
        self._values.clear()
        self._mechanisms, self._remarks = _mechanisms(self, self._listeners.bound)
        if changed:
            self.version += 1
            self._tell(changed)
        return changed

    def subscribe(self, names: str | Iterable[str], callback: Callback) -> Callable[[], None]:
        """Calls back, after a change, with those names that changed.

        A string stands for every name that begins with it. The function that comes back ends it.
        """
        entry = (names if isinstance(names, str) else frozenset(names), callback)
        self._subscribers.append(entry)
        return lambda: self._subscribers.remove(entry)

    def _tell(self, changed: set[str]) -> None:
        for names, callback in list(self._subscribers):
            if isinstance(names, str):
                mine = frozenset(name for name in changed if name.startswith(names))
            else:
                mine = names & changed
            if mine:
                callback(mine)

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
                "listeners: cannot change while the broker runs; "
                "set them in server.properties and start the broker again",
                "listeners",
            )
        _mechanisms(values, self._listeners.bound)

    def _check_step(self, texts: Mapping[str, str], added: Iterable[str]) -> None:
        """What may be so after the next start, but cannot come about while the broker runs."""
        dynamic.check_steps(self, BrokerValues(texts))
        running = frozenset(each.name.lower() for each in self.listeners)
        for name in added:
            if dynamic.changes_running_listener(name, self._texts, texts, running):
                raise ConfigError(
                    f"{name}: cannot change while the listener is open; "
                    "set it in server.properties and start the broker again",
                    name,
                )

    @staticmethod
    def _shown(texts: Mapping[str, str], name: str) -> str | None:
        setting = setting_of(name)
        default = None if setting is None or name not in BROKER_SETTINGS else setting.default
        return texts.get(name, default)

    # --- what DescribeConfigs shows

    def describe(self, name: str) -> ConfigEntry | None:
        """One setting; None for a name that is neither known nor set."""
        return self.descriptions().describe(name)

    def describe_all(self, names: Iterable[str] | None = None) -> list[ConfigEntry]:
        """The settings of this broker, or those of them that are named."""
        return self.descriptions().describe_all(names)

    def describe_default(self, names: Iterable[str] | None = None) -> list[ConfigEntry]:
        """What is set for all brokers: the resource without a name."""
        return self.descriptions().describe_default(names)

    def descriptions(self) -> BrokerDescriptions:
        return BrokerDescriptions(
            self._texts, self._dynamic_broker, self._dynamic_default, self._static
        )


def _with_synonyms(properties: Mapping[str, str]) -> dict[str, str]:
    """The file with both names of the broker's number, and with log.dirs where log.dir is set."""
    texts = dict(properties)
    if texts.get("broker.id", "").strip() == "-1":
        del texts["broker.id"]
    for one, other in (("node.id", "broker.id"), ("broker.id", "node.id")):
        if one in texts:
            texts.setdefault(other, texts[one])
    if texts.get("node.id", "").strip() != texts.get("broker.id", "").strip():
        raise ConfigError(
            f"node.id: {texts['node.id']} and broker.id {texts['broker.id']} are the same thing; "
            "give one of them, or the same number",
            "node.id",
        )
    if "log.dir" in texts:
        texts.setdefault("log.dirs", texts["log.dir"])
    return texts


def _check_static(name: str, text: str) -> None:
    setting = setting_of(name)
    if setting is not None:
        setting.parse(text)
    elif not name.startswith(FOREIGN_PREFIXES):
        raise ConfigError(f"{name}: no such setting{nearest(name, BROKER_SETTINGS)}", name)


def _check_references(texts: Mapping[str, str]) -> None:
    providers = [each.strip() for each in texts.get("config.providers", "").split(",")]
    for name, text in texts.items():
        match = _REFERENCE.search(text)
        if match is not None and match[1] in providers:
            raise ConfigError(
                f"{name}: {match[0]} would have to come from the config provider {match[1]}, "
                "which cannot run here; write the value itself",
                name,
            )


def _listeners(values: BrokerValues, hostname: str) -> Listeners:
    advertised = values.value("advertised.listeners")
    controllers = values.value("controller.listener.names")
    name = values.value("inter.broker.listener.name")
    protocol = "security.inter.broker.protocol"
    return resolve_listeners(
        values.list("listeners"),
        advertised if isinstance(advertised, list) else None,
        protocol_map(values.str("listener.security.protocol.map")),
        controllers=controllers if isinstance(controllers, list) else (),
        inter_broker=name if isinstance(name, str) else None,
        inter_broker_protocol=values.str(protocol) if values.is_set(protocol) else None,
        hostname=hostname,
    )


def _mechanisms(
    values: BrokerValues, listeners: Iterable[ListenerSpec]
) -> tuple[dict[str, list[str]], list[str]]:
    """The SASL mechanisms of each listener, and remarks about those that are not served."""
    served: dict[str, list[str]] = {}
    remarks: list[str] = []
    for each in listeners:
        if each.protocol.sasl:
            enabled = values.listener_value(each.name, "sasl.enabled.mechanisms")
            names = enabled if isinstance(enabled, list) else []
            served[each.name], remark = served_mechanisms(each.name, names)
            remarks += [] if remark is None else [remark]
    return served, remarks


def _usable(stored: Mapping[str, str], *, per_broker: bool) -> dict[str, str]:
    usable: dict[str, str] = {}
    for name, text in stored.items():
        try:
            dynamic.check_dynamic(name, text, per_broker=per_broker)
        except ConfigError as error:
            _LOG.error("a stored setting is ignored: %s", error.message)
        else:
            usable[name] = text
    return usable
