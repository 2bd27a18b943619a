"""What `penstock doctor` concludes (E3, E4, E6, E7)."""

import errno
import socket
from datetime import UTC, datetime

import pytest

from penstock.cli.doctor.checks import (
    Address,
    Problem,
    Service,
    Status,
    check_certificate,
    check_clock,
    check_metadata,
    check_topic,
    check_versions,
    explain_advertised,
    explain_connection,
    explain_name,
    explain_other_service,
    parse_addresses,
    recognise,
)
from penstock.core.errors import ErrorCode
from penstock.net.client.connection import NodeApiVersions
from penstock.protocol.api import api
from penstock.protocol.api_key import ApiKey
from penstock.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

HERE = Address("broker.example", 9092)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost:9092", [Address("localhost", 9092)]),
        ("localhost", [Address("localhost", 9092)]),
        ("a:1, b:2", [Address("a", 1), Address("b", 2)]),
        ("[::1]:9093", [Address("::1", 9093)]),
        ("[::1]", [Address("::1", 9092)]),
        ("SASL_SSL://a:1", [Address("a", 1)]),
    ],
)
def test_addresses(text: str, expected: list[Address]) -> None:
    assert parse_addresses(text) == expected


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "no address"),
        (":9092", "no host"),
        ("a b:1", "no host"),
        ("a:0", "not a port"),
        ("a:http", "not a port"),
        ("::1:9092", "ambiguous"),
        ("http://a:9092", "web page"),
        ("a:9092/topic", "web page"),
    ],
)
def test_addresses_that_are_none(text: str, error: str) -> None:
    with pytest.raises(Problem, match=error):
        parse_addresses(text)


def test_names_that_are_not_known() -> None:
    """E6"""
    unknown = socket.gaierror(socket.EAI_NONAME, "not known")
    assert "Docker" in explain_name("kafka", unknown).remedy
    assert "getent hosts" in explain_name("kafka.example", unknown).remedy
    again = socket.gaierror(socket.EAI_AGAIN, "again")
    assert "name server did not respond" in explain_name("kafka", again).cause


@pytest.mark.parametrize(
    ("error", "code", "todo"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), "CONNECTION_REFUSED", "start the"),
        (TimeoutError(), "TIMEOUT", "firewalls"),
        (OSError(errno.EHOSTUNREACH, "no route"), "UNREACHABLE", "VPN"),
        (OSError(errno.ECONNRESET, "reset"), "CONNECTION_FAILED", "network"),
    ],
)
def test_connections_that_fail(error: OSError, code: str, todo: str) -> None:
    """E6"""
    trouble = explain_connection(HERE, error, 5.0)
    assert trouble.code == code
    assert todo in trouble.remedy
    assert "broker.example:9092" in trouble.cause


@pytest.mark.parametrize(
    ("received", "kind"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", Service.HTTP),
        (b"Zookeeper version: 3.8\n", Service.ZOOKEEPER),
        (b"srvr is not executed because it is not in the whitelist.\n", Service.ZOOKEEPER),
        (b"SSH-2.0-OpenSSH\r\n", Service.OTHER),
        (b"", Service.SILENT),
    ],
)
def test_strangers(received: bytes, kind: Service) -> None:
    assert recognise(received) is kind
    trouble = explain_other_service(HERE, "PLAINTEXT", kind, received, "it hung up")
    assert "broker.example:9092" in trouble.cause
    assert trouble.remedy


def test_tls_and_no_tls() -> None:
    speaks = explain_other_service(HERE, "SASL_PLAINTEXT", Service.TLS, b"", "")
    assert "security.protocol=SASL_SSL" in speaks.remedy
    speaks_not = explain_other_service(HERE, "SSL", Service.KAFKA, b"", "")
    assert "security.protocol=PLAINTEXT" in speaks_not.remedy


def test_a_certificate_that_ends_soon() -> None:
    certificate = {
        "subject": ((("commonName", "broker"),),),
        "issuer": ((("commonName", "ca"),),),
        "subjectAltName": (("DNS", "broker.example"), ("IP Address", "10.0.0.1")),
        "notAfter": "Jun 10 12:00:00 2026 GMT",
    }
    soon = check_certificate(certificate, "TLSv1.3", "X", datetime(2026, 6, 1, tzinfo=UTC))
    assert soon.status is Status.WARNING
    assert "expires in 9 days" in soon.warnings[0]
    assert soon.details["names"] == ["broker.example", "10.0.0.1"]
    assert soon.details["issuer"] == "commonName=ca"
    assert check_certificate(certificate, "", "", datetime(2026, 1, 1, tzinfo=UTC)).status == "ok"


def served(**changed: tuple[int, int] | None) -> NodeApiVersions:
    ranges = {int(key): (api(key).min_version, api(key).max_version) for key in ApiKey}
    for name, versions in changed.items():
        del ranges[ApiKey[name]]
        if versions is not None:
            ranges[ApiKey[name]] = versions
    return NodeApiVersions(ranges, {"metadata.version": 27})


def test_versions() -> None:
    assert check_versions(HERE, served()).text.endswith("metadata.version 27")


@pytest.mark.parametrize(
    ("changed", "cause"),
    [
        ({"METADATA": None}, "controller's listener"),
        ({"FETCH": (-2, -1)}, "the broker is too old"),
        ({"FETCH": (900, 901)}, "the client is too old"),
    ],
)
def test_versions_that_do_not_meet(changed: dict[str, tuple[int, int] | None], cause: str) -> None:
    """E4"""
    with pytest.raises(Problem) as caught:
        check_versions(HERE, served(**changed))
    assert cause in caught.value.remedy
    assert caught.value.code == "UNSUPPORTED_VERSION"


def partition(number: int, leader: int, isr: list[int]) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        partition_index=number, leader_id=leader, replica_nodes=[0, 1, 2], isr_nodes=isr
    )


def test_metadata() -> None:
    partitions = [partition(0, 0, [0, 1, 2]), partition(1, -1, []), partition(2, 1, [1])]
    response = MetadataResponse(
        brokers=[MetadataResponseBroker(0, "a", 1)],
        cluster_id="id",
        topics=[MetadataResponseTopic(name="t", partitions=partitions)],
    )
    result = check_metadata(response)
    assert result.status is Status.WARNING
    assert result.details["offline"] == ["t-1"]
    assert result.details["under_replicated"] == ["t-2"]
    with pytest.raises(Problem, match="no brokers"):
        check_metadata(MetadataResponse())


@pytest.mark.parametrize(
    ("topic", "min_isr", "code"),
    [
        (
            MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            1,
            "UNKNOWN_TOPIC_OR_PARTITION",
        ),
        (
            MetadataResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            1,
            "TOPIC_AUTHORIZATION_FAILED",
        ),
        (MetadataResponseTopic(partitions=[partition(0, -1, [])]), 1, "LEADER_NOT_AVAILABLE"),
        (MetadataResponseTopic(partitions=[partition(0, 1, [1])]), 2, "NOT_ENOUGH_REPLICAS"),
    ],
)
def test_a_topic_that_cannot_be_used(topic: MetadataResponseTopic, min_isr: int, code: str) -> None:
    """E3, E5, E7"""
    with pytest.raises(Problem) as caught:
        check_topic("t", topic, min_isr)
    assert caught.value.code == code
    assert caught.value.remedy


def test_a_topic_that_can() -> None:
    topic = MetadataResponseTopic(partitions=[partition(0, 1, [1, 2])])
    assert "1 partitions" in check_topic("t", topic, 2).text
    assert check_topic("t", topic, None).status is Status.OK


@pytest.mark.parametrize(
    ("advertised", "bootstrap", "code", "cause"),
    [
        ("localhost", "kafka.example", "CONNECTION_REFUSED", "which is this machine itself"),
        ("127.0.0.1", "10.0.0.5", "CONNECTION_REFUSED", "which is this machine itself"),
        ("0.0.0.0", "kafka.example", "CONNECTION_REFUSED", "not the address of a machine"),
        ("kafka", "localhost", "DNS", "like those of containers"),
        ("3f1c0a9b2d4e", "localhost", "DNS", "like those of containers"),
        ("10.1.2.3", "kafka.example", "TIMEOUT", "that fails: why"),
        ("localhost", "localhost", "CONNECTION_REFUSED", "that fails: why"),
    ],
)
def test_advertised_listeners(advertised: str, bootstrap: str, code: str, cause: str) -> None:
    """E6: the address that a broker gives is not one that the client can use."""
    why = Problem("why", "do that", code)
    trouble = explain_advertised(4, Address(advertised, 9092), Address(bootstrap, 19092), why)
    assert cause in trouble.cause
    assert f"{bootstrap}:19092" in trouble.cause
    assert "advertised.listeners of broker 4" in trouble.remedy
    assert trouble.code == "ADVERTISED_LISTENER"


@pytest.mark.parametrize(
    ("stamp", "skew", "status"),
    [
        (105, 0, Status.OK),
        (610, 500, Status.OK),
        (5110, 5000, Status.WARNING),
        (-4900, -5000, Status.WARNING),
    ],
)
def test_clocks(stamp: int, skew: int, status: Status) -> None:
    result = check_clock(stamp, 100, 110)
    assert result.details["skew_ms"] == skew
    assert result.status is status
