"""Listeners: where the broker listens, and where it tells clients to come (X1, E6)."""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple, NoReturn

from penstock.broker.config.settings import ConfigError, nearest
from penstock.controller.metadata import SecurityProtocol
from penstock.security.sasl.mechanisms import MECHANISMS, UNSUPPORTED_MECHANISMS

_ADDRESS = re.compile(r"(?P<name>[^:]*)://\[?(?P<host>[0-9a-zA-Z\-%._:]*)\]?:(?P<port>-?[0-9]+)")
_WILDCARDS = ("", "0.0.0.0", "::", "0:0:0:0:0:0:0:0")


class ListenerSpec(NamedTuple):
    """One listener: of a name in upper case, bound to a host (empty: every address) and a port."""

    name: str
    host: str
    port: int
    protocol: SecurityProtocol

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


class Listeners(NamedTuple):
    """The listeners for clients and brokers; those of a KRaft controller are left out."""

    bound: list[ListenerSpec]
    advertised: list[ListenerSpec]
    inter_broker: str


def protocol_map(text: str) -> dict[str, SecurityProtocol]:
    """`listener.security.protocol.map`: the protocol of each listener name."""
    setting = "listener.security.protocol.map"
    found: dict[str, SecurityProtocol] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, _, protocol = (part.strip() for part in pair.rpartition(":"))
        if not name:
            _refuse(setting, f"{pair!r} must be NAME:PROTOCOL, such as CLIENT:SASL_SSL")
        if protocol.upper() not in SecurityProtocol.__members__:
            protocols = ", ".join(SecurityProtocol.__members__)
            _refuse(setting, f"{protocol!r} is no security protocol; use one of {protocols}")
        if name.upper() in found:
            _refuse(setting, f"{name} is there twice; keep one")
        found[name.upper()] = SecurityProtocol[protocol.upper()]
    return found


def resolve_listeners(
    listeners: list[str],
    advertised: list[str] | None,
    protocols: Mapping[str, SecurityProtocol],
    *,
    controllers: Iterable[str],
    inter_broker: str | None,
    inter_broker_protocol: str | None,
    hostname: str,
) -> Listeners:
    """All that the settings about listeners say together; ConfigError where they disagree."""
    left_out = {name.strip().upper() for name in controllers}
    addresses = [_parse("listeners", text) for text in listeners]
    _check_distinct("listeners", addresses)
    _check_ports(addresses)
    bound = [
        ListenerSpec(name, host, port, _protocol(name, protocols))
        for name, host, port in addresses
        if name not in left_out
    ]
    if not bound:
        _refuse("listeners", "all are in controller.listener.names; add one for clients")
    told = _advertise(bound, advertised, left_out, hostname)
    return Listeners(bound, told, _inter_broker(told, inter_broker, inter_broker_protocol))


def _advertise(
    bound: list[ListenerSpec], advertised: list[str] | None, left_out: set[str], hostname: str
) -> list[ListenerSpec]:
    if advertised is None:
        return [each._replace(host=hostname) if each.host in _WILDCARDS else each for each in bound]
    setting = "advertised.listeners"
    by_name = {each.name: each for each in bound}
    addresses = [_parse(setting, text) for text in advertised]
    _check_distinct(setting, addresses)
    told: list[ListenerSpec] = []
    for name, host, port in addresses:
        if name in left_out:
            continue
        if name not in by_name:
            _refuse(setting, f"{name} is not in listeners; its names are {', '.join(by_name)}")
        if host and host in _WILDCARDS:
            _refuse(
                setting,
                f"no client can connect to {host}; set the name or address under which clients "
                f"reach this machine, such as {name}://{hostname}:{port}",
            )
        told.append(by_name[name]._replace(host=host or hostname, port=port))
    if not told:
        _refuse(setting, f"names no listener for clients; add one of {', '.join(by_name)}")
    return told


def _inter_broker(told: list[ListenerSpec], name: str | None, protocol: str | None) -> str:
    """Kafka would look for a listener PLAINTEXT where nothing is said; here the first will do."""
    names = [each.name for each in told]
    if name is not None:
        if protocol is not None:
            _refuse(
                "inter.broker.listener.name",
                "security.inter.broker.protocol is set too; remove one of them",
            )
        if name.strip().upper() not in names:
            _refuse(
                "inter.broker.listener.name",
                f"{name!r} is not advertised; use one of {', '.join(names)}",
            )
        return name.strip().upper()
    if protocol is not None and protocol not in names:
        _refuse(
            "security.inter.broker.protocol",
            f"there is no advertised listener {protocol}; "
            f"set inter.broker.listener.name to one of {', '.join(names)}",
        )
    wanted = protocol or SecurityProtocol.PLAINTEXT.value
    return wanted if wanted in names else names[0]


def _parse(setting: str, text: str) -> tuple[str, str, int]:
    match = _ADDRESS.fullmatch(text.strip())
    if match is None or not match["name"]:
        _refuse(setting, f"{text!r} must be NAME://host:port, such as PLAINTEXT://localhost:9092")
    port = int(match["port"])
    if not 0 <= port <= 65535:
        _refuse(setting, f"{text!r}: a port lies between 0 and 65535")
    return match["name"].upper(), match["host"], port


def _protocol(name: str, protocols: Mapping[str, SecurityProtocol]) -> SecurityProtocol:
    if name not in protocols:
        _refuse(
            "listeners",
            f"listener {name} has no security protocol; add {name}:PLAINTEXT (or SSL, "
            "SASL_PLAINTEXT, SASL_SSL) to listener.security.protocol.map"
            + nearest(name, protocols),
        )
    return protocols[name]


def _check_distinct(setting: str, addresses: list[tuple[str, str, int]]) -> None:
    seen: set[str] = set()
    for name, _, _ in addresses:
        if name in seen:
            _refuse(setting, f"two listeners are called {name}; give each a name of its own")
        seen.add(name)


def _check_ports(addresses: list[tuple[str, str, int]]) -> None:
    """A port may serve twice only where one address is of IPv4 and the other of IPv6."""
    by_port: dict[int, list[str]] = {}
    for _, host, port in addresses:
        if port:
            by_port.setdefault(port, []).append(host)
    for port, hosts in by_port.items():
        kinds = sorted(map(_ip_version, hosts))
        if len(hosts) > 1 and kinds != [4, 6]:
            _refuse("listeners", f"port {port} is there {len(hosts)} times; use a port for each")


def _ip_version(host: str) -> int:
    import ipaddress  # only where a port is shared, which is rare

    try:
        return ipaddress.ip_address(host).version
    except ValueError:
        return 0


def served_mechanisms(listener: str, enabled: list[str]) -> tuple[list[str], str | None]:
    """Those of `sasl.enabled.mechanisms` that are served here, and a remark about the others."""
    setting = "sasl.enabled.mechanisms"
    for mechanism in enabled:
        if mechanism not in MECHANISMS and mechanism not in UNSUPPORTED_MECHANISMS:
            _refuse(
                setting,
                f"{mechanism!r} is no SASL mechanism; use {', '.join(MECHANISMS)}"
                + nearest(mechanism, MECHANISMS),
            )
    served = [mechanism for mechanism in enabled if mechanism in MECHANISMS]
    missing = [mechanism for mechanism in enabled if mechanism not in MECHANISMS]
    if not served:
        _refuse(
            setting,
            f"listener {listener} would serve no login: "
            f"{' and '.join(missing) or 'an empty list'} will not do here; "
            f"set it to one or more of {', '.join(MECHANISMS)}",
        )
    if not missing:
        return served, None
    return served, (
        f"listener {listener}: logins with {' and '.join(missing)} are not served; "
        f"clients must use {' or '.join(served)}"
    )


def _refuse(setting: str, reason: str) -> NoReturn:
    raise ConfigError(f"{setting}: {reason}", setting)
