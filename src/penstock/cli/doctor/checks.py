"""The conclusions of `penstock doctor`. No I/O.

A check returns a `Success` or raises a `Problem`, which says what is wrong and what to do about it.
"""

import errno
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from ipaddress import ip_address
from typing import Final, NamedTuple

from penstock.core.errors import ErrorCode, StructuredError
from penstock.net.client.connection import NodeApiVersions
from penstock.protocol.api import api
from penstock.protocol.api_key import ApiKey
from penstock.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic

DEFAULT_PORT: Final = 9092
_EXPIRES_SOON_DAYS: Final = 30
_SKEW_MS: Final = 2_000
_NEEDED: Final = (
    ApiKey.METADATA,
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.FIND_COORDINATOR,
)
"""APIs that every client needs."""

_CONTAINER: Final = re.compile(r"[0-9a-f]{12}|[0-9a-f]{64}")


class Status(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


class Problem(StructuredError):  # noqa: N818 - it is the result of a check, not an error of ours
    """What is wrong with the cluster or the connection, and what to do about it."""

    def __init__(self, cause: str, remedy: str, code: str = "FAILED") -> None:
        super().__init__(cause, remedy=remedy)
        self.code = code


@dataclass(frozen=True, slots=True)
class Success:
    """A check that passed, possibly with warnings."""

    text: str
    warnings: Sequence[str] = ()
    details: Mapping[str, object] = field(default_factory=dict)
    is_skipped: bool = False

    @property
    def status(self) -> Status:
        if self.is_skipped:
            return Status.SKIPPED
        return Status.WARNING if self.warnings else Status.OK


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_addresses(text: str) -> list[Address]:
    """Parses `host:port,…`; the port is optional."""
    addresses = [_address(part.strip()) for part in text.split(",") if part.strip()]
    if not addresses:
        raise Problem("there is no address", "name a broker, such as localhost:9092")
    return addresses


def _address(text: str) -> Address:
    rest = text.split("://", 1)[-1]
    if text.lower().startswith(("http://", "https://")) or "/" in rest:
        raise Problem(
            f"{text} is the address of a web page",
            "Kafka does not use HTTP: write host:port, such as localhost:9092",
        )
    if rest.startswith("["):
        host, _, port = rest[1:].partition("]")
        port = port.removeprefix(":")
    elif rest.count(":") > 1:
        raise Problem(f"{text} is ambiguous", f"write an IPv6 address as [{rest}]:{DEFAULT_PORT}")
    else:
        host, _, port = rest.partition(":")
    if not host or any(letter.isspace() for letter in host):
        raise Problem(f"{text!r} has no host", "write host:port, such as localhost:9092")
    if port and not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        raise Problem(
            f"{port!r} in {text} is not a port", "use a number from 1 to 65535, usually 9092"
        )
    return Address(host, int(port) if port else DEFAULT_PORT)


# --- names and connections


def explain_name(host: str, error: OSError) -> Problem:
    """Explains why a host name cannot be resolved (E6)."""
    if isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN:
        return Problem(
            f"the name server did not respond to the query for {host}",
            "check this machine's network and its name servers",
            "DNS",
        )
    remedy = "check the spelling; query it with: getent hosts " + host
    if "." not in host:
        remedy = (
            "a name without dots is known only inside its network, such as a service of Docker "
            "Compose or Kubernetes: from outside use the address under which it is published"
        )
    return Problem(
        f"this machine does not know host {host} ({error.strerror or error})", remedy, "DNS"
    )


def explain_connection(address: Address, error: OSError, timeout_s: float) -> Problem:
    """Explains why a connection failed (E6)."""
    if isinstance(error, ConnectionRefusedError):
        return Problem(
            f"{address} refuses connections: nothing listens there",
            "start the broker; if it runs, compare its listeners with this port, and check that it "
            "does not listen on 127.0.0.1 only and that a container publishes the port",
            "CONNECTION_REFUSED",
        )
    if isinstance(error, TimeoutError):
        return Problem(
            f"{address} did not respond within {timeout_s:g} s",
            "something drops the packets: check firewalls, security groups and VPNs on the path, "
            "and the address",
            "TIMEOUT",
        )
    if error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return Problem(
            f"there is no route to {address} from here ({error.strerror})",
            "check the address, this machine's routes and the VPN",
            "UNREACHABLE",
        )
    return Problem(
        f"no connection to {address} ({error.strerror or error})",
        "check the address and the network",
        "CONNECTION_FAILED",
    )


# --- other services


class Service(StrEnum):
    """What listens on a port that does not behave as expected."""

    TLS = "tls"
    KAFKA = "kafka"
    HTTP = "http"
    ZOOKEEPER = "zookeeper"
    OTHER = "other"
    SILENT = "silent"


def recognise(greeting: bytes) -> Service:
    """Identifies a service by the first bytes that it sends."""
    if greeting.startswith(b"HTTP/"):
        return Service.HTTP
    if b"ookeeper" in greeting[:200] or b"is not in the whitelist" in greeting[:200]:
        return Service.ZOOKEEPER
    return Service.OTHER if greeting else Service.SILENT


def explain_other_service(
    address: Address, protocol: str, service: Service, greeting: bytes, reason: str
) -> Problem:
    """Explains a port that is not a listener with the configured protocol."""
    sasl = "SASL_" if protocol.startswith("SASL_") else ""
    match service:
        case Service.TLS:
            return Problem(
                f"{address} uses TLS, but security.protocol={protocol} does not",
                f"set security.protocol={sasl}SSL, and ssl.truststore.location or ssl.cafile "
                "unless "
                "its authority is public; or use the port of a listener without TLS",
                "TLS_WANTED",
            )
        case Service.KAFKA:
            return Problem(
                f"{address} is a Kafka listener without TLS, but security.protocol={protocol} "
                "requires it",
                f"set security.protocol={sasl}PLAINTEXT, or use the port of a listener with TLS",
                "NO_TLS",
            )
        case Service.HTTP:
            return Problem(
                f"{address} is a web server, not Kafka ({_first_line(greeting)})",
                "use the port of a broker's listener, usually 9092; REST proxies, schema "
                "registries "
                "and consoles have other ports",
                "NOT_KAFKA",
            )
        case Service.ZOOKEEPER:
            return Problem(
                f"{address} is ZooKeeper, not a broker",
                "use the address of a broker, usually port 9092; clients never connect to "
                "ZooKeeper",
                "NOT_KAFKA",
            )
        case Service.OTHER:
            return Problem(
                f"{address} does not speak Kafka's protocol; it sends {_first_line(greeting)}",
                "use the port of a broker's listener, usually 9092",
                "NOT_KAFKA",
            )
    return Problem(
        f"{address} accepts connections, but does not respond as Kafka does: {reason}",
        "check that it is a broker's port: ZooKeeper, a controller's listener and a proxy without "
        "a broker are silent like this; otherwise see the broker's log",
        "NO_ANSWER",
    )


def _first_line(greeting: bytes) -> str:
    if not greeting.strip():
        return "nothing"
    return repr(greeting[:60].splitlines()[0].decode("latin-1"))


# --- TLS


def check_certificate(
    certificate: Mapping[str, object], version: str, cipher: str, now: datetime
) -> Success:
    """Describes a verified certificate and warns if it expires soon."""
    names = [f"{value}" for _, value in _pairs(certificate.get("subjectAltName"))]
    until = _moment(certificate.get("notAfter"))
    warnings = []
    if until is not None:
        days = (until - now).days
        if days < _EXPIRES_SOON_DAYS:
            warnings.append(
                f"the certificate expires in {days} days, on {until:%Y-%m-%d}: renew it"
            )
    ends = "" if until is None else f" until {until:%Y-%m-%d}"
    return Success(
        f"{version}, certificate for {', '.join(names) or 'no name'}{ends}",
        warnings,
        {
            "version": version,
            "cipher": cipher,
            "names": names,
            "issuer": _name(certificate.get("issuer")),
            "subject": _name(certificate.get("subject")),
            "not_after": until,
        },
    )


def _pairs(value: object) -> list[tuple[str, str]]:
    return [(str(pair[0]), str(pair[1])) for pair in value] if isinstance(value, tuple) else []


def _name(value: object) -> str:
    parts = value if isinstance(value, tuple) else ()
    return ", ".join(f"{name}={text}" for part in parts for name, text in part)


def _moment(value: object) -> datetime | None:
    if not isinstance(value, str):
        return None
    return datetime.strptime(value, "%b %d %H:%M:%S %Y %Z").replace(tzinfo=UTC)


# --- versions


def check_versions(address: Address, served: NodeApiVersions) -> Success:
    """Checks that client and broker share a version of every API that clients need (E4)."""
    for key in _NEEDED:
        if served.newest(key) is not None:
            continue
        own_api = api(key)
        broker_range = served.ranges.get(key)
        if broker_range is None:
            raise Problem(
                f"{address} does not serve {key.name}",
                "if it is a controller's listener, use the address of a broker; otherwise upgrade "
                "the "
                "broker",
                ErrorCode.UNSUPPORTED_VERSION.name,
            )
        side = "broker" if broker_range[1] < own_api.min_version else "client"
        raise Problem(
            f"{address} serves {key.name} in versions {broker_range[0]} to {broker_range[1]}, but "
            f"this client has {own_api.min_version} to {own_api.max_version}",
            f"the {side} is too old for the other: upgrade it",
            ErrorCode.UNSUPPORTED_VERSION.name,
        )
    level = served.features.get("metadata.version")
    feature = "" if level is None else f", metadata.version {level}"
    return Success(
        f"{len(served.ranges)} APIs{feature}",
        details={"apis": len(served.ranges), "features": dict(served.features)},
    )


# --- cluster


def check_metadata(metadata: MetadataResponse) -> Success:
    """Describes the cluster and warns of partitions without a leader or in-sync replicas."""
    if not metadata.brokers:
        raise Problem(
            "the cluster has no brokers",
            "it is still starting, or the brokers are not registered with the controller: see the "
            "broker's log",
        )
    offline, under_replicated = [], []
    count = 0
    for topic in metadata.topics:
        for partition in topic.partitions:
            count += 1
            name = f"{topic.name}-{partition.partition_index}"
            if partition.leader_id < 0:
                offline.append(name)
            elif len(partition.isr_nodes) < len(partition.replica_nodes):
                under_replicated.append(name)
    warnings = []
    if offline:
        warnings.append(
            f"{len(offline)} partitions have no leader and cannot be read or written: "
            f"{_some(offline)}: start their brokers"
        )
    if under_replicated:
        warnings.append(
            f"{len(under_replicated)} partitions have fewer in-sync replicas than replicas: "
            f"{_some(under_replicated)}: check which brokers are down or slow"
        )
    return Success(
        f"cluster {metadata.cluster_id}, brokers: {len(metadata.brokers)}, controller: "
        f"{metadata.controller_id}, topics: {len(metadata.topics)}, partitions: {count}",
        warnings,
        {
            "cluster_id": metadata.cluster_id,
            "controller_id": metadata.controller_id,
            "brokers": [
                {
                    "id": broker.node_id,
                    "host": broker.host,
                    "port": broker.port,
                    "rack": broker.rack,
                }
                for broker in metadata.brokers
            ],
            "offline": offline,
            "under_replicated": under_replicated,
        },
    )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (" …" if len(names) > 5 else "")


def check_topic(name: str, topic: MetadataResponseTopic, min_isr: int | None) -> Success:
    """Checks that a topic exists and is visible, with leaders and in-sync replicas (E7)."""
    code = topic.error_code
    if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
        raise Problem(
            f"there is no topic {name}",
            f"check the name with: penstock topic list; or create it: penstock topic create {name}",
            ErrorCode(code).name,
        )
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        raise Problem(
            f"this user may not see topic {name}",
            f"grant it: penstock acl add --allow-principal User:NAME --topic {name} "
            "--operation Describe (and Read, Write)",
            ErrorCode.TOPIC_AUTHORIZATION_FAILED.name,
        )
    for partition in topic.partitions:
        label = f"{name}-{partition.partition_index}"
        if partition.leader_id < 0:
            raise Problem(
                f"partition {label} has no leader",
                f"none of its replicas, brokers {_numbers(partition.replica_nodes)}, is up and in "
                "sync: start them; if they are lost permanently: penstock topic elect --type "
                "unclean",
                ErrorCode.LEADER_NOT_AVAILABLE.name,
            )
        if min_isr is not None and len(partition.isr_nodes) < min_isr:
            raise Problem(
                f"partition {label} has {len(partition.isr_nodes)} in-sync replicas, but "
                f"min.insync.replicas={min_isr}: records with acks=all are refused",
                f"start the missing brokers among {_numbers(partition.replica_nodes)} (in sync: "
                f"{_numbers(partition.isr_nodes)}), or lower min.insync.replicas of the topic",
                ErrorCode.NOT_ENOUGH_REPLICAS.name,
            )
    return Success(f"{name} has {len(topic.partitions)} partitions, all with a leader")


def _numbers(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids)) or "none"


# --- advertised listeners


def explain_advertised(
    node_id: int, advertised: Address, bootstrap: Address, problem: Problem
) -> Problem:
    """Explains what is wrong with the address that a broker advertises (E6)."""
    cause = f"broker {node_id} was found through {bootstrap}, but advertises {advertised}, "
    setting = f"set advertised.listeners of broker {node_id} to an address that clients can reach"
    example = f", such as PLAINTEXT://{bootstrap}"
    host = advertised.host
    if is_loopback(host) and not is_loopback(bootstrap.host):
        return Problem(
            cause + "which is this machine itself",
            f"{setting}{example}; localhost, the broker's default, works only for clients on the "
            "broker's machine",
            "ADVERTISED_LISTENER",
        )
    if host in ("0.0.0.0", "::"):
        return Problem(
            cause + "which is not the address of a machine",
            f"{setting}{example}; 0.0.0.0 is valid for listeners only",
            "ADVERTISED_LISTENER",
        )
    if problem.code == "DNS" and ("." not in host or _CONTAINER.fullmatch(host)):
        return Problem(
            cause + "a name that is not known here, like those of containers",
            f"{setting}{example}. For clients inside and outside of the containers' network, give "
            "the broker two listeners with different advertised addresses",
            "ADVERTISED_LISTENER",
        )
    return Problem(
        f"{cause}and that fails: {problem.cause}",
        f"{setting}, or make it reachable from here: {problem.remedy}",
        "ADVERTISED_LISTENER",
    )


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def explain_missing_login(address: Address, protocol: str, mechanisms: Sequence[str]) -> Problem:
    """Explains that the listener requires SASL but the client does not log in (E3)."""
    secured = "SASL_SSL" if protocol == "SSL" else "SASL_PLAINTEXT"
    offered = ", ".join(mechanisms)
    return Problem(
        f"{address} requires a login with {offered}, but security.protocol={protocol} has none",
        f"set security.protocol={secured}, sasl.mechanism={mechanisms[0]}, "
        "sasl.plain.username and sasl.plain.password (or sasl.jaas.config)",
        ErrorCode.SASL_AUTHENTICATION_FAILED.name,
    )


# --- clocks


def check_clock(broker_ms: int, before_ms: int, after_ms: int) -> Success:
    """Compares the broker's timestamp with our time before and after the request."""
    if before_ms <= broker_ms <= after_ms:
        return Success("the broker's clock agrees with this machine's", details={"skew_ms": 0})
    skew = broker_ms - (after_ms if broker_ms > after_ms else before_ms)
    text = f"the broker's clock is {abs(skew)} ms {'ahead of' if skew > 0 else 'behind'} ours"
    warnings = []
    if abs(skew) >= _SKEW_MS:
        warnings.append(
            "retention, offsets by time and tokens depend on clocks: run NTP on both machines"
        )
    return Success(text, warnings, {"skew_ms": skew})
