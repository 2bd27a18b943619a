"""What `penstock doctor` concludes from what it finds. Without I/O.

A step gives a `Found`, or raises `Trouble`: what is wrong, and what to do about it.
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

from penstock.core.errors import ErrorCode
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
"""Without these nothing works."""

_CONTAINER: Final = re.compile(r"[0-9a-f]{12}|[0-9a-f]{64}")


class Status(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


class Trouble(Exception):  # noqa: N818 - what it tells is the result, not an error of ours
    """A step found what is wrong. `cause` explains it, `todo` is what to do."""

    def __init__(self, cause: str, todo: str, code: str = "FAILED") -> None:
        super().__init__(cause)
        self.cause = cause
        self.todo = todo
        self.code = code


@dataclass(frozen=True, slots=True)
class Found:
    """A step that went well, perhaps with something to say about it."""

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
    """`host:port,…` as clients take it; the port may be left out."""
    found = [_address(each.strip()) for each in text.split(",") if each.strip()]
    if not found:
        raise Trouble("there is no address", "name a broker, such as localhost:9092")
    return found


def _address(text: str) -> Address:
    rest = text.split("://", 1)[-1]
    if text.lower().startswith(("http://", "https://")) or "/" in rest:
        raise Trouble(
            f"{text} is the address of a web page",
            "Kafka has a protocol of its own: write host:port, such as localhost:9092",
        )
    if rest.startswith("["):
        host, _, port = rest[1:].partition("]")
        port = port.removeprefix(":")
    elif rest.count(":") > 1:
        raise Trouble(
            f"{text} could be read in two ways", f"write an IPv6 address as [{rest}]:{DEFAULT_PORT}"
        )
    else:
        host, _, port = rest.partition(":")
    if not host or any(letter.isspace() for letter in host):
        raise Trouble(f"{text!r} has no host", "write host:port, such as localhost:9092")
    if port and not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        raise Trouble(f"{port!r} in {text} is no port", "it is a number of 1 to 65535, mostly 9092")
    return Address(host, int(port) if port else DEFAULT_PORT)


# --- Names and connections


def explain_name(host: str, error: OSError) -> Trouble:
    """Why a name is not known (E6)."""
    if isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN:
        return Trouble(
            f"the name server did not answer when asked for {host}",
            "check this machine's network and its name servers",
            "DNS",
        )
    todo = "check how it is written; ask for it with: getent hosts " + host
    if "." not in host:
        todo = (
            "a name without dots is known only where it was given, such as a service of Docker "
            "Compose or Kubernetes: from outside use the address that it is published under"
        )
    return Trouble(f"this machine knows no host {host} ({error.strerror or error})", todo, "DNS")


def explain_connection(address: Address, error: OSError, timeout_s: float) -> Trouble:
    """Why there is no connection (E6)."""
    if isinstance(error, ConnectionRefusedError):
        return Trouble(
            f"{address} refuses connections: nothing listens there",
            "start the broker; if it runs, compare its `listeners` with this port, and see that "
            "it does not listen on 127.0.0.1 only; in a container, that the port is published",
            "CONNECTION_REFUSED",
        )
    if isinstance(error, TimeoutError):
        return Trouble(
            f"{address} did not answer within {timeout_s:g} s",
            "something drops the packets: look at firewalls, security groups and VPNs between "
            "here and there, and check the address",
            "TIMEOUT",
        )
    if error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return Trouble(
            f"there is no way to {address} from here ({error.strerror})",
            "check the address, this machine's routes and the VPN",
            "UNREACHABLE",
        )
    return Trouble(
        f"no connection to {address} ({error.strerror or error})",
        "check the address and the network between",
        "CONNECTION_FAILED",
    )


# --- What answers


class Kind(StrEnum):
    """What is behind a port that does not speak as expected."""

    TLS = "tls"
    KAFKA = "kafka"
    HTTP = "http"
    ZOOKEEPER = "zookeeper"
    OTHER = "other"
    SILENT = "silent"


def recognise(said: bytes) -> Kind:
    """What the first bytes of an answer tell."""
    if said.startswith(b"HTTP/"):
        return Kind.HTTP
    if b"ookeeper" in said[:200] or b"is not in the whitelist" in said[:200]:
        return Kind.ZOOKEEPER
    return Kind.OTHER if said else Kind.SILENT


def explain_stranger(address: Address, protocol: str, kind: Kind, said: bytes, why: str) -> Trouble:
    """What to do when it is not a listener of the protocol that was set. `why` is what failed."""
    sasl = "SASL_" if protocol.startswith("SASL_") else ""
    match kind:
        case Kind.TLS:
            return Trouble(
                f"{address} speaks TLS, and security.protocol={protocol} does not",
                f"set security.protocol={sasl}SSL, and ssl.truststore.location or ssl.cafile where "
                "its authority is not a public one; or use the port of a listener without TLS",
                "TLS_WANTED",
            )
        case Kind.KAFKA:
            return Trouble(
                f"{address} is a Kafka listener without TLS, and security.protocol={protocol} "
                "wants it",
                f"set security.protocol={sasl}PLAINTEXT, or use the port of a listener with TLS",
                "NO_TLS",
            )
        case Kind.HTTP:
            return Trouble(
                f"{address} is a web server, not Kafka ({_first_line(said)})",
                "use the port of a listener of the broker, mostly 9092; REST proxies, schema "
                "registries and consoles have others",
                "NOT_KAFKA",
            )
        case Kind.ZOOKEEPER:
            return Trouble(
                f"{address} is ZooKeeper, not a broker",
                "use the address of a broker, mostly port 9092; clients never speak to ZooKeeper",
                "NOT_KAFKA",
            )
        case Kind.OTHER:
            return Trouble(
                f"{address} does not speak Kafka's protocol; it says {_first_line(said)}",
                "use the port of a listener of the broker, mostly 9092",
                "NOT_KAFKA",
            )
    return Trouble(
        f"{address} takes connections, but answers nothing that Kafka would: {why}",
        "is it a broker's port? ZooKeeper, a controller's listener and a proxy without a broker "
        "behind it are silent like this; else look into the broker's log",
        "NO_ANSWER",
    )


def _first_line(said: bytes) -> str:
    return repr(said[:60].splitlines()[0].decode("latin-1")) if said.strip() else "nothing"


# --- TLS


def check_certificate(
    certificate: Mapping[str, object], version: str, cipher: str, now: datetime
) -> Found:
    """What a verified certificate says, and whether it will do so for long."""
    names = [f"{value}" for _, value in _pairs(certificate.get("subjectAltName"))]
    until = _moment(certificate.get("notAfter"))
    warnings = []
    if until is not None:
        days = (until - now).days
        if days < _EXPIRES_SOON_DAYS:
            warnings.append(f"the certificate ends in {days} days, on {until:%Y-%m-%d}: renew it")
    ends = "" if until is None else f" until {until:%Y-%m-%d}"
    return Found(
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
    return [(str(each[0]), str(each[1])) for each in value] if isinstance(value, tuple) else []


def _name(value: object) -> str:
    parts = value if isinstance(value, tuple) else ()
    return ", ".join(f"{name}={text}" for part in parts for name, text in part)


def _moment(value: object) -> datetime | None:
    if not isinstance(value, str):
        return None
    return datetime.strptime(value, "%b %d %H:%M:%S %Y %Z").replace(tzinfo=UTC)


# --- Versions


def check_versions(address: Address, served: NodeApiVersions) -> Found:
    """Whether client and broker have a version of every API that matters in common (E4)."""
    for key in _NEEDED:
        if served.newest(key) is not None:
            continue
        known = api(key)
        theirs = served.ranges.get(key)
        if theirs is None:
            raise Trouble(
                f"{address} does not serve {key.name}",
                "if it is a controller's listener, use the address of a broker; else the broker "
                "is too old",
                ErrorCode.UNSUPPORTED_VERSION.name,
            )
        side = "broker" if theirs[1] < known.min_version else "client"
        raise Trouble(
            f"{address} serves {key.name} in versions {theirs[0]} to {theirs[1]}, this client has "
            f"{known.min_version} to {known.max_version}",
            f"the {side} is too old for the other: upgrade it",
            ErrorCode.UNSUPPORTED_VERSION.name,
        )
    level = served.features.get("metadata.version")
    about = "" if level is None else f", metadata.version {level}"
    return Found(
        f"{len(served.ranges)} APIs{about}",
        details={"apis": len(served.ranges), "features": dict(served.features)},
    )


# --- The cluster


def check_metadata(answer: MetadataResponse) -> Found:
    """What the cluster says of itself; partitions that nobody can use are worth a warning."""
    if not answer.brokers:
        raise Trouble(
            "the cluster names no broker at all",
            "it is still starting, or the brokers are not registered with the controller: look "
            "into the broker's log",
        )
    offline, behind = [], []
    count = 0
    for topic in answer.topics:
        for partition in topic.partitions:
            count += 1
            name = f"{topic.name}-{partition.partition_index}"
            if partition.leader_id < 0:
                offline.append(name)
            elif len(partition.isr_nodes) < len(partition.replica_nodes):
                behind.append(name)
    warnings = []
    if offline:
        warnings.append(
            f"{len(offline)} partitions have no leader, so nobody can read or write them: "
            f"{_some(offline)}: start the brokers that have them"
        )
    if behind:
        warnings.append(
            f"{len(behind)} partitions have fewer in-sync replicas than replicas: {_some(behind)}: "
            "see which brokers are down or slow"
        )
    return Found(
        f"cluster {answer.cluster_id}, brokers: {len(answer.brokers)}, controller: "
        f"{answer.controller_id}, topics: {len(answer.topics)}, partitions: {count}",
        warnings,
        {
            "cluster_id": answer.cluster_id,
            "controller_id": answer.controller_id,
            "brokers": [
                {"id": each.node_id, "host": each.host, "port": each.port, "rack": each.rack}
                for each in answer.brokers
            ],
            "offline": offline,
            "under_replicated": behind,
        },
    )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (" …" if len(names) > 5 else "")


def check_topic(name: str, found: MetadataResponseTopic, min_isr: int | None) -> Found:
    """Whether a topic can be used: it is there, one may see it, leaders and replicas are (E7)."""
    code = found.error_code
    if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
        raise Trouble(
            f"there is no topic {name}",
            f"check the name with: penstock topic list; or create it: penstock topic create {name}",
            ErrorCode(code).name,
        )
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        raise Trouble(
            f"this user may not see topic {name}",
            f"give it the right: penstock acl add --allow-principal User:NAME --topic {name} "
            "--operation Describe (and Read, Write)",
            ErrorCode.TOPIC_AUTHORIZATION_FAILED.name,
        )
    for partition in found.partitions:
        where = f"{name}-{partition.partition_index}"
        if partition.leader_id < 0:
            raise Trouble(
                f"partition {where} has no leader",
                f"none of its replicas, brokers {_numbers(partition.replica_nodes)}, is up and in "
                "sync: start them; if they are lost for good: penstock topic elect --type unclean",
                ErrorCode.LEADER_NOT_AVAILABLE.name,
            )
        if min_isr is not None and len(partition.isr_nodes) < min_isr:
            raise Trouble(
                f"partition {where} has {len(partition.isr_nodes)} in-sync replicas, and "
                f"min.insync.replicas={min_isr}: records with acks=all are refused",
                f"start the missing brokers among {_numbers(partition.replica_nodes)} (in sync: "
                f"{_numbers(partition.isr_nodes)}), or lower min.insync.replicas of the topic",
                ErrorCode.NOT_ENOUGH_REPLICAS.name,
            )
    return Found(f"{name} has {len(found.partitions)} partitions, all with a leader")


def _numbers(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids)) or "none"


# --- Advertised listeners


def explain_advertised(node_id: int, advertised: Address, asked: Address, why: Trouble) -> Trouble:
    """What is wrong with the address that a broker tells clients to use (E6)."""
    cause = (
        f"broker {node_id} was found through {asked}, but tells clients to come to {advertised}, "
    )
    setting = f"set advertised.listeners of broker {node_id} to an address that clients reach"
    example = f", such as PLAINTEXT://{asked}"
    host = advertised.host
    if _is_loopback(host) and not _is_loopback(asked.host):
        return Trouble(
            cause + "which here is this machine itself",
            f"{setting}{example}; it says localhost, the broker's default, which is right only for "
            "clients on the broker's own machine",
            "ADVERTISED_LISTENER",
        )
    if host in ("0.0.0.0", "::"):
        return Trouble(
            cause + "which is no address of a machine",
            f"{setting}{example}; 0.0.0.0 is good for `listeners` only",
            "ADVERTISED_LISTENER",
        )
    if why.code == "DNS" and ("." not in host or _CONTAINER.fullmatch(host)):
        return Trouble(
            cause + "a name that is not known here, as those of containers are",
            f"{setting}{example}. For clients both inside and outside of the containers' network "
            "give the broker two listeners, each with an advertised address of its own",
            "ADVERTISED_LISTENER",
        )
    return Trouble(
        f"{cause}and that fails: {why.cause}",
        f"{setting}, or make it reachable from here: {why.todo}",
        "ADVERTISED_LISTENER",
    )


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def wants_login(address: Address, protocol: str, mechanisms: Sequence[str]) -> Trouble:
    """The listener has SASL, the client does not log in (E3)."""
    secured = "SASL_SSL" if protocol == "SSL" else "SASL_PLAINTEXT"
    offered = ", ".join(mechanisms)
    return Trouble(
        f"{address} wants a login, with {offered}, and security.protocol={protocol} has none",
        f"set security.protocol={secured}, sasl.mechanism={mechanisms[0]}, "
        "sasl.plain.username and sasl.plain.password (or sasl.jaas.config)",
        ErrorCode.SASL_AUTHENTICATION_FAILED.name,
    )


# --- Clocks


def check_clock(broker_ms: int, before_ms: int, after_ms: int) -> Found:
    """How far the broker's clock is from ours: its stamp, and our time before and after it."""
    if before_ms <= broker_ms <= after_ms:
        return Found("the broker's clock agrees with this machine's", details={"skew_ms": 0})
    skew = broker_ms - (after_ms if broker_ms > after_ms else before_ms)
    text = f"the broker's clock is {abs(skew)} ms {'ahead of' if skew > 0 else 'behind'} ours"
    warnings = []
    if abs(skew) >= _SKEW_MS:
        warnings.append(
            "retention, offsets by time and logins with tokens go by clocks: run NTP on both sides"
        )
    return Found(text, warnings, {"skew_ms": skew})
