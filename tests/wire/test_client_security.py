"""Connections of the client: TLS, logins and their errors (X1, X2, E3)."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock.client.errors import AuthenticationError, ClientError, DisconnectError
from penstock.client.network import create_network_client
from penstock.client.settings import CommonOptions, resolve
from penstock.core.system_clock import SystemClock
from penstock.net.client.cluster import Cluster
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from penstock.security.scram_credential import ScramMechanism
from tests.support.broker.certificates import Identity, make_identity, simple_name
from tests.support.broker.faults import watching
from tests.support.broker.in_process import RunningBroker, running_broker
from tests.support.broker.logins import PLAIN_JAAS, set_password
from tests.support.broker.net_server import run

LISTENERS = ("PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL", "MUTUAL")
QUICK_S = 5.0
"""Much shorter than the request timeout of 30 s, much longer than a handshake."""


class Authority:
    """A certificate authority with certificates that it has signed, and one that is not trusted."""

    def __init__(self) -> None:
        self.own = make_identity(simple_name("authority"))
        self.broker = make_identity(simple_name("broker"), self.own)
        self.alice = make_identity(simple_name("alice"), self.own)
        self.stranger = make_identity(simple_name("stranger"))


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def settings(authority: Authority) -> Mapping[str, str]:
    protocols = ",".join(f"{name}:{'SSL' if name == 'MUTUAL' else name}" for name in LISTENERS)
    return {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in LISTENERS),
        "advertised.listeners": ",".join(f"{name}://localhost:0" for name in LISTENERS),
        "listener.security.protocol.map": protocols,
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_JAAS,
        "listener.name.sasl_ssl.plain.sasl.jaas.config": PLAIN_JAAS,
        "listener.name.sasl_ssl.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "connection.failed.authentication.delay.ms": "0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": authority.broker.key_pem(),
        "ssl.keystore.certificate.chain": authority.broker.certificate_pem,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.own.certificate_pem,
        "listener.name.mutual.ssl.client.auth": "required",
    }


@pytest.fixture(scope="module")
def secured(
    tmp_path_factory: pytest.TempPathFactory, settings: Mapping[str, str]
) -> Iterator[RunningBroker]:
    with watching(), running_broker(tmp_path_factory.mktemp("secured"), settings) as running:
        with running.connect("PLAINTEXT") as admin:
            for mechanism in ScramMechanism:
                assert set_password(admin, mechanism, "carl", "carl-secret").error_code == 0
        yield running


def port_of(broker: RunningBroker, listener: str) -> int:
    return next(address.port for address in broker.addresses if address.listener == listener)


def options(broker: RunningBroker, listener: str, host: str, **settings: Any) -> CommonOptions:
    address = f"{host}:{port_of(broker, listener)}"
    protocol = "SSL" if listener == "MUTUAL" else listener
    base = {"bootstrap_servers": address, "security_protocol": protocol}
    return resolve(CommonOptions, {**base, **settings})


def connect(
    broker: RunningBroker,
    listener: str,
    loop: str = "asyncio",
    *,
    host: str = "localhost",
    deadline_ms: int = 20_000,
    **settings: Any,
) -> Cluster:
    """Returns the cluster that a client connects to, with retries until `deadline_ms`."""
    clusters: list[Cluster] = []

    async def scenario() -> None:
        clock = SystemClock()
        network = create_network_client(options(broker, listener, host, **settings), clock=clock)
        await network.start()
        try:
            deadline = clock.monotonic_ms() + deadline_ms
            response = await network.request_any(
                MetadataRequest([]), MetadataResponse, deadline_ms=deadline
            )
            assert response.brokers
            # From here on the address that the broker advertises is used, not that of the settings.
            cluster = await network.update_metadata()
            await network.ready(0)
            clusters.append(cluster)
        finally:
            await network.close()

    run(scenario, loop)
    return clusters[0]


def failure(
    kind: type[ClientError], broker: RunningBroker, listener: str, loop: str, **settings: Any
) -> str:
    """Returns the error message of the client, which must be raised soon."""
    started = time.monotonic()
    with pytest.raises(kind) as caught:
        connect(broker, listener, loop, **settings)
    assert time.monotonic() - started < QUICK_S
    return caught.value.message


def plain(user: str, password: str) -> dict[str, Any]:
    return {
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }


def trusting(identity: Identity) -> dict[str, Any]:
    return {
        "ssl_truststore_type": "PEM",
        "ssl_truststore_certificates": identity.certificate_pem,
    }


def showing(identity: Identity) -> dict[str, Any]:
    return {
        "ssl_keystore_type": "PEM",
        "ssl_keystore_key": identity.key_pem(),
        "ssl_keystore_certificate_chain": identity.certificate_pem,
    }


@pytest.fixture(params=["asyncio", "uvloop"])
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# --- successful connections


def test_a_plain_login(secured: RunningBroker, loop: str) -> None:
    cluster = connect(secured, "SASL_PLAINTEXT", loop, **plain("ann", "ann-secret"))
    assert cluster.nodes[0].port == port_of(secured, "SASL_PLAINTEXT")


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_scram_login(secured: RunningBroker, mechanism: str) -> None:
    jaas = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="carl" password="carl-secret";'
    )
    assert connect(secured, "SASL_PLAINTEXT", sasl_mechanism=mechanism, sasl_jaas_config=jaas).nodes


def test_a_tls_connection(secured: RunningBroker, authority: Authority, loop: str) -> None:
    cluster = connect(secured, "SSL", loop, **trusting(authority.own))
    assert cluster.nodes[0].host == "localhost"


def test_tls_with_the_names_of_kafka_python(
    secured: RunningBroker, authority: Authority, tmp_path: Path
) -> None:
    path = tmp_path / "ca.pem"
    path.write_text(authority.own.certificate_pem)
    assert connect(secured, "SSL", ssl_cafile=str(path)).nodes


def test_mutual_tls(secured: RunningBroker, authority: Authority, loop: str) -> None:
    settings = trusting(authority.own) | showing(authority.alice)
    assert connect(secured, "MUTUAL", loop, **settings).nodes


@pytest.mark.parametrize(
    "login",
    [
        plain("ann", "ann-secret"),
        plain("carl", "carl-secret") | {"sasl_mechanism": "SCRAM-SHA-512"},
    ],
    ids=["plain", "scram"],
)
def test_a_login_over_tls(
    secured: RunningBroker, authority: Authority, loop: str, login: dict[str, Any]
) -> None:
    assert connect(secured, "SASL_SSL", loop, **trusting(authority.own), **login).nodes


def test_host_name_verification_can_be_disabled(
    secured: RunningBroker, authority: Authority
) -> None:
    settings = trusting(authority.own) | {"ssl_endpoint_identification_algorithm": ""}
    assert connect(secured, "SSL", host="127.0.0.1", **settings).nodes


# --- permanent errors


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize("user", ["ann", "nobody"])
def test_a_wrong_password_raises_an_error(
    secured: RunningBroker, loop: str, mechanism: str, user: str
) -> None:
    """E3: the error has user, mechanism and a remedy, but never the password."""
    settings = plain(user, "not-the-secret") | {"sasl_mechanism": mechanism}
    message = failure(AuthenticationError, secured, "SASL_PLAINTEXT", loop, **settings)
    assert user in message
    assert mechanism in message
    assert "check the user name and the password" in message
    assert "not-the-secret" not in message


def test_an_unsupported_mechanism_raises_an_error(
    secured: RunningBroker, authority: Authority, loop: str
) -> None:
    """E3"""
    settings = plain("carl", "carl-secret") | {"sasl_mechanism": "SCRAM-SHA-256"}
    message = failure(
        AuthenticationError, secured, "SASL_SSL", loop, **settings, **trusting(authority.own)
    )
    assert "sasl_mechanism=SCRAM-SHA-256" in message
    assert "PLAIN, SCRAM-SHA-512" in message


def test_a_login_at_a_listener_without_sasl_raises_an_error(
    secured: RunningBroker, loop: str
) -> None:
    message = failure(
        AuthenticationError,
        secured,
        "PLAINTEXT",
        loop,
        **plain("ann", "ann-secret"),
        security_protocol="SASL_PLAINTEXT",
    )
    assert "security_protocol" in message


def test_an_untrusted_authority_raises_an_error(
    secured: RunningBroker, authority: Authority, loop: str
) -> None:
    """E3"""
    message = failure(AuthenticationError, secured, "SSL", loop, **trusting(authority.stranger))
    assert "not trusted" in message
    assert "ssl_truststore_location" in message


def test_a_host_name_mismatch_raises_an_error(
    secured: RunningBroker, authority: Authority, loop: str
) -> None:
    """E3"""
    message = failure(
        AuthenticationError, secured, "SSL", loop, host="127.0.0.1", **trusting(authority.own)
    )
    assert "not for this host" in message
    assert "127.0.0.1" in message


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize("client", ["nobody", "stranger"])
def test_a_missing_client_certificate_raises_an_error(
    secured: RunningBroker, authority: Authority, loop: str, version: str, client: str
) -> None:
    """E3"""
    settings = trusting(authority.own) | {"ssl_enabled_protocols": version}
    if client == "stranger":
        settings |= showing(authority.stranger)
    message = failure(AuthenticationError, secured, "MUTUAL", loop, **settings)
    assert "client certificate" in message
    assert "ssl_keystore_location" in message


# --- wrong ports: the broker might be shutting down, so the client retries until its timeout


def first_failure(broker: RunningBroker, listener: str, loop: str, **settings: Any) -> str:
    """Returns the error message of a client that tries once."""
    messages: list[str] = []

    async def scenario() -> None:
        network = create_network_client(
            options(broker, listener, "localhost", **settings), clock=SystemClock()
        )
        try:
            with pytest.raises(DisconnectError) as caught:
                await network.request(-1, MetadataRequest([]), MetadataResponse)
            messages.append(caught.value.message)
        finally:
            await network.close()

    started = time.monotonic()
    run(scenario, loop)
    assert time.monotonic() - started < QUICK_S
    return messages[0]


def test_the_error_of_a_plaintext_client_on_a_tls_port(secured: RunningBroker, loop: str) -> None:
    message = first_failure(secured, "SSL", loop, security_protocol="PLAINTEXT")
    assert "security_protocol" in message


def test_the_error_of_a_tls_client_on_a_plaintext_port(
    secured: RunningBroker, authority: Authority, loop: str
) -> None:
    message = first_failure(
        secured, "PLAINTEXT", loop, security_protocol="SSL", **trusting(authority.own)
    )
    assert "set security_protocol to PLAINTEXT" in message


def test_the_error_of_a_client_without_a_login(secured: RunningBroker, loop: str) -> None:
    message = first_failure(secured, "SASL_PLAINTEXT", loop, security_protocol="PLAINTEXT")
    assert "set security_protocol to SASL_PLAINTEXT" in message


@pytest.mark.parametrize(
    ("listener", "protocol"),
    [("SSL", "PLAINTEXT"), ("PLAINTEXT", "SSL"), ("SASL_PLAINTEXT", "PLAINTEXT")],
)
def test_the_timeout_error_of_retries_has_the_reason(
    secured: RunningBroker, listener: str, protocol: str
) -> None:
    """E6: applies whether the time runs out during an attempt or between two."""
    message = failure(
        ClientError, secured, listener, "asyncio", security_protocol=protocol, deadline_ms=300
    )
    assert "security_protocol" in message
