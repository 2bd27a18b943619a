"""Listeners: the addresses that the broker binds and those that it advertises (X1, E6)."""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple, NoReturn

from penstock.broker.config.settings import ConfigError, nearest
from penstock.controller.metadata import SecurityProtocol
from penstock.security.sasl.mechanisms import MECHANISMS

_ADDRESS = re.compile(r"(?P<name>[^:]*)://\[?(?P<host>[0-9a-zA-Z\-%._:]*)\]?:(?P<port>-?[0-9]+)")
_WILDCARDS = ("", "0.0.0.0", "::", "0:0:0:0:0:0:0:0")


class ListenerSpec(NamedTuple):
    """A listener: its name in upper case, its host (empty for all addresses) and port."""

    name: str
    host: str
    port: int
    protocol: SecurityProtocol

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


class Listeners(NamedTuple):
    """The listeners for clients and brokers, without those of a KRaft controller."""

    bound: list[ListenerSpec]
    advertised: list[ListenerSpec]
    inter_broker: str
    control_plane: str
    """The listener for the controller's requests; by default that between brokers."""


def protocol_map(text: str) -> dict[str, SecurityProtocol]:
    """Returns the protocol of each listener name in `listener.security.protocol.map`."""
    setting = "listener.security.protocol.map"
    protocols: dict[str, SecurityProtocol] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, _, protocol = (part.strip() for part in pair.rpartition(":"))
        if not name:
            _reject(setting, f"{pair!r} must be NAME:PROTOCOL, such as CLIENT:SASL_SSL")
        if protocol.upper() not in SecurityProtocol.__members__:
            choices = ", ".join(SecurityProtocol.__members__)
            _reject(setting, f"{protocol!r} is not a security protocol", f"use one of {choices}")
        if name.upper() in protocols:
            _reject(setting, f"{name} occurs twice", "remove one")
        protocols[name.upper()] = SecurityProtocol[protocol.upper()]
    return protocols


def resolve_listeners(
    listeners: list[str],
    advertised: list[str] | None,
    protocols: Mapping[str, SecurityProtocol],
    *,
    controllers: Iterable[str],
    inter_broker: str | None,
    inter_broker_protocol: str | None,
    hostname: str,
    control_plane: str | None = None,
) -> Listeners:
    """Combines the settings about listeners; ConfigError if they contradict each other."""
    controller_names = {name.strip().upper() for name in controllers}
    addresses = [_parse("listeners", text) for text in listeners]
    _check_distinct("listeners", addresses)
    _check_ports(addresses)
    bound = [
        ListenerSpec(name, host, port, _protocol(name, protocols))
        for name, host, port in addresses
        if name not in controller_names
    ]
    if not bound:
        _reject(
            "listeners", "all listeners are in controller.listener.names", "add one for clients"
        )
    specs = _advertise(bound, advertised, controller_names, hostname)
    between_brokers = _inter_broker(specs, inter_broker, inter_broker_protocol)
    return Listeners(
        bound, specs, between_brokers, _control_plane(specs, control_plane, between_brokers)
    )


def _advertise(
    bound: list[ListenerSpec],
    advertised: list[str] | None,
    controller_names: set[str],
    hostname: str,
) -> list[ListenerSpec]:
    if advertised is None:
        return [spec._replace(host=hostname) if spec.host in _WILDCARDS else spec for spec in bound]
    setting = "advertised.listeners"
    by_name = {spec.name: spec for spec in bound}
    addresses = [_parse(setting, text) for text in advertised]
    _check_distinct(setting, addresses)
    specs: list[ListenerSpec] = []
    for name, host, port in addresses:
        if name in controller_names:
            continue
        if name not in by_name:
            _reject(setting, f"{name} is not in listeners", f"use one of {', '.join(by_name)}")
        if host and host in _WILDCARDS:
            _reject(
                setting,
                f"no client can connect to {host}",
                "set the name or address under which clients reach this machine, such "
                f"as {name}://{hostname}:{port}",
            )
        specs.append(by_name[name]._replace(host=host or hostname, port=port))
    if not specs:
        _reject(setting, "has no listener for clients", f"add one of {', '.join(by_name)}")
    return specs


def _inter_broker(advertised: list[ListenerSpec], name: str | None, protocol: str | None) -> str:
    """Returns the inter-broker listener: the configured one, else PLAINTEXT, else the first."""
    names = [spec.name for spec in advertised]
    if name is not None:
        if protocol is not None:
            _reject(
                "inter.broker.listener.name",
                "security.inter.broker.protocol is set too",
                "remove one of them",
            )
        if name.strip().upper() not in names:
            _reject(
                "inter.broker.listener.name",
                f"{name!r} is not advertised",
                f"use one of {', '.join(names)}",
            )
        return name.strip().upper()
    if protocol is not None and protocol not in names:
        _reject(
            "security.inter.broker.protocol",
            f"no listener {protocol} is advertised",
            f"set inter.broker.listener.name to one of {', '.join(names)}",
        )
    default = protocol or SecurityProtocol.PLAINTEXT.value
    return default if default in names else names[0]


def _control_plane(advertised: list[ListenerSpec], name: str | None, inter_broker: str) -> str:
    """Returns the listener for the controller's requests, which may be that between brokers."""
    if name is None:
        return inter_broker
    setting = "control.plane.listener.name"
    others = [spec.name for spec in advertised if spec.name != inter_broker]
    remedy = f"use one of {', '.join(others)}" if others else "add a listener for it"
    if name.strip().upper() == inter_broker:
        _reject(setting, f"{inter_broker} is the inter-broker listener", remedy)
    if name.strip().upper() not in others:
        _reject(setting, f"{name!r} is not advertised", remedy)
    return name.strip().upper()


def _parse(setting: str, text: str) -> tuple[str, str, int]:
    match = _ADDRESS.fullmatch(text.strip())
    if match is None or not match["name"]:
        _reject(setting, f"{text!r} must be NAME://host:port, such as PLAINTEXT://localhost:9092")
    port = int(match["port"])
    if not 0 <= port <= 65535:
        _reject(setting, f"{text!r} has an invalid port", "use 0 to 65535")
    return match["name"].upper(), match["host"], port


def _protocol(name: str, protocols: Mapping[str, SecurityProtocol]) -> SecurityProtocol:
    if name not in protocols:
        _reject(
            "listeners",
            f"listener {name} has no security protocol",
            (
                f"add {name}:PLAINTEXT (or SSL, SASL_PLAINTEXT, SASL_SSL) to "
                "listener.security.protocol.map"
            )
            + nearest(name, protocols),
        )
    return protocols[name]


def _check_distinct(setting: str, addresses: list[tuple[str, str, int]]) -> None:
    names: set[str] = set()
    for name, _, _ in addresses:
        if name in names:
            _reject(setting, f"two listeners have the name {name}", "use different names")
        names.add(name)


def _check_ports(addresses: list[tuple[str, str, int]]) -> None:
    """Raises ConfigError for a shared port, unless one address is IPv4 and the other IPv6."""
    by_port: dict[int, list[str]] = {}
    for _, host, port in addresses:
        if port:
            by_port.setdefault(port, []).append(host)
    for port, hosts in by_port.items():
        kinds = sorted(map(_ip_version, hosts))
        if len(hosts) > 1 and kinds != [4, 6]:
            _reject(
                "listeners",
                f"{len(hosts)} listeners use port {port}",
                "use a different port for each",
            )


def _ip_version(host: str) -> int:
    import ipaddress  # rarely needed: only if listeners share a port

    try:
        return ipaddress.ip_address(host).version
    except ValueError:
        return 0


def check_mechanisms(listener: str, enabled: list[str]) -> None:
    """Raises ConfigError unless `sasl.enabled.mechanisms` of a listener names SASL mechanisms."""
    setting = "sasl.enabled.mechanisms"
    for mechanism in enabled:
        if mechanism not in MECHANISMS:
            _reject(
                setting,
                f"{mechanism!r} is not a SASL mechanism",
                f"use {', '.join(MECHANISMS)}" + nearest(mechanism, MECHANISMS),
            )
    if not enabled:
        _reject(
            setting,
            f"no client could authenticate on listener {listener}: an empty list is not supported",
            f"set it to one or more of {', '.join(MECHANISMS)}",
        )


def _reject(setting: str, cause: str, remedy: str = "") -> NoReturn:
    raise ConfigError(cause, setting, remedy=remedy)
