"""The client's connections: TLS, logins, and what it says when they fail (X1, X2, E3)."""

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
"""Much less than the 30 s after which a request gives up, much more than a handshake takes."""


class Authority:
    """An authority, whom it knows, and somebody whom it does not."""

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
    return next(each.port for each in broker.addresses if each.listener == listener)


def options(broker: RunningBroker, listener: str, host: str, **given: Any) -> CommonOptions:
    address = f"{host}:{port_of(broker, listener)}"
    protocol = "SSL" if listener == "MUTUAL" else listener
    base = {"bootstrap_servers": address, "security_protocol": protocol}
    return resolve(CommonOptions, {**base, **given})


def connect(
    broker: RunningBroker,
    listener: str,
    loop: str = "asyncio",
    *,
    host: str = "localhost",
    deadline_ms: int = 20_000,
    **given: Any,
) -> Cluster:
    """The cluster as a client sees it that asks until `deadline_ms` have passed."""
    found: list[Cluster] = []

    async def scenario() -> None:
        clock = SystemClock()
        network = create_network_client(options(broker, listener, host, **given), clock=clock)
        await network.start()
        try:
            deadline = clock.monotonic_ms() + deadline_ms
            answer = await network.request_any(
                MetadataRequest([]), MetadataResponse, deadline_ms=deadline
            )
            assert answer.brokers
            # The broker's own address is used from now on, not that of the settings.
            cluster = await network.update_metadata()
            await network.ready(0)
            found.append(cluster)
        finally:
            await network.close()

    run(scenario, loop)
    return found[0]


def failure(
    kind: type[ClientError], broker: RunningBroker, listener: str, loop: str, **given: Any
) -> str:
    """What the client says, which must be soon."""
    started = time.monotonic()
    with pytest.raises(kind) as caught:
        connect(broker, listener, loop, **given)
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


# --- What works


def test_plain(secured: RunningBroker, loop: str) -> None:
    cluster = connect(secured, "SASL_PLAINTEXT", loop, **plain("ann", "ann-secret"))
    assert cluster.nodes[0].port == port_of(secured, "SASL_PLAINTEXT")


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram(secured: RunningBroker, mechanism: str) -> None:
    jaas = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="carl" password="carl-secret";'
    )
    assert connect(secured, "SASL_PLAINTEXT", sasl_mechanism=mechanism, sasl_jaas_config=jaas).nodes


def test_tls(secured: RunningBroker, authority: Authority, loop: str) -> None:
    cluster = connect(secured, "SSL", loop, **trusting(authority.own))
    assert cluster.nodes[0].host == "localhost"


def test_tls_with_the_names_of_kafka_python(
    secured: RunningBroker, authority: Authority, tmp_path: Path
) -> None:
    path = tmp_path / "ca.pem"
    path.write_text(authority.own.certificate_pem)
    assert connect(secured, "SSL", ssl_cafile=str(path)).nodes


def test_mutual_tls(secured: RunningBroker, authority: Authority, loop: str) -> None:
    given = trusting(authority.own) | showing(authority.alice)
    assert connect(secured, "MUTUAL", loop, **given).nodes


@pytest.mark.parametrize(
    "login",
    [
        plain("ann", "ann-secret"),
        plain("carl", "carl-secret") | {"sasl_mechanism": "SCRAM-SHA-512"},
    ],
    ids=["plain", "scram"],
)
def test_login_over_tls(
    secured: RunningBroker, authority: Authority, loop: str, login: dict[str, Any]
) -> None:
    assert connect(secured, "SASL_SSL", loop, **trusting(authority.own), **login).nodes


def test_a_name_that_is_not_checked(secured: RunningBroker, authority: Authority) -> None:
    given = trusting(authority.own) | {"ssl_endpoint_identification_algorithm": ""}
    assert connect(secured, "SSL", host="127.0.0.1", **given).nodes


# --- What is refused, at once and for good


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize("user", ["ann", "nobody"])
def test_a_wrong_password(secured: RunningBroker, loop: str, mechanism: str, user: str) -> None:
    """E3: which user and mechanism, what to check, never the password."""
    given = plain(user, "not-the-secret") | {"sasl_mechanism": mechanism}
    said = failure(AuthenticationError, secured, "SASL_PLAINTEXT", loop, **given)
    assert user in said
    assert mechanism in said
    assert "check the user name and the password" in said
    assert "not-the-secret" not in said


def test_a_mechanism_that_the_listener_does_not_have(
    secured: RunningBroker, authority: Authority, loop: str
) -> None:
    """E3"""
    given = plain("carl", "carl-secret") | {"sasl_mechanism": "SCRAM-SHA-256"}
    said = failure(
        AuthenticationError, secured, "SASL_SSL", loop, **given, **trusting(authority.own)
    )
    assert "sasl_mechanism=SCRAM-SHA-256" in said
    assert "PLAIN, SCRAM-SHA-512" in said


def test_a_login_that_nobody_asked_for(secured: RunningBroker, loop: str) -> None:
    said = failure(
        AuthenticationError,
        secured,
        "PLAINTEXT",
        loop,
        **plain("ann", "ann-secret"),
        security_protocol="SASL_PLAINTEXT",
    )
    assert "security_protocol" in said


def test_an_authority_that_is_not_trusted(
    secured: RunningBroker, authority: Authority, loop: str
) -> None:
    """E3"""
    said = failure(AuthenticationError, secured, "SSL", loop, **trusting(authority.stranger))
    assert "not trusted" in said
    assert "ssl_truststore_location" in said


def test_a_name_that_the_certificate_does_not_have(
    secured: RunningBroker, authority: Authority, loop: str
) -> None:
    """E3"""
    said = failure(
        AuthenticationError, secured, "SSL", loop, host="127.0.0.1", **trusting(authority.own)
    )
    assert "not for this host" in said
    assert "127.0.0.1" in said


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize("who", ["nobody", "stranger"])
def test_a_broker_that_wants_to_know_the_client(
    secured: RunningBroker, authority: Authority, loop: str, version: str, who: str
) -> None:
    """E3"""
    given = trusting(authority.own) | {"ssl_enabled_protocols": version}
    if who == "stranger":
        given |= showing(authority.stranger)
    said = failure(AuthenticationError, secured, "MUTUAL", loop, **given)
    assert "client certificate" in said
    assert "ssl_keystore_location" in said


# --- The wrong kind of port: it may also be a broker that goes down, so the caller's time counts


def first_failure(broker: RunningBroker, listener: str, loop: str, **given: Any) -> str:
    """What a client says that tries once."""
    said: list[str] = []

    async def scenario() -> None:
        network = create_network_client(
            options(broker, listener, "localhost", **given), clock=SystemClock()
        )
        try:
            with pytest.raises(DisconnectError) as caught:
                await network.request(-1, MetadataRequest([]), MetadataResponse)
            said.append(caught.value.message)
        finally:
            await network.close()

    started = time.monotonic()
    run(scenario, loop)
    assert time.monotonic() - started < QUICK_S
    return said[0]


def test_a_plain_client_on_a_port_with_tls(secured: RunningBroker, loop: str) -> None:
    said = first_failure(secured, "SSL", loop, security_protocol="PLAINTEXT")
    assert "security_protocol" in said


def test_a_tls_client_on_a_port_without(
    secured: RunningBroker, authority: Authority, loop: str
) -> None:
    said = first_failure(
        secured, "PLAINTEXT", loop, security_protocol="SSL", **trusting(authority.own)
    )
    assert "set security_protocol to PLAINTEXT" in said


def test_a_client_that_does_not_log_in(secured: RunningBroker, loop: str) -> None:
    said = first_failure(secured, "SASL_PLAINTEXT", loop, security_protocol="PLAINTEXT")
    assert "set security_protocol to SASL_PLAINTEXT" in said


@pytest.mark.parametrize(
    ("listener", "protocol"),
    [("SSL", "PLAINTEXT"), ("PLAINTEXT", "SSL"), ("SASL_PLAINTEXT", "PLAINTEXT")],
)
def test_a_client_that_tries_again_says_why_when_its_time_is_up(
    secured: RunningBroker, listener: str, protocol: str
) -> None:
    """E6: however the time runs out, in an attempt or between two."""
    said = failure(
        ClientError, secured, listener, "asyncio", security_protocol=protocol, deadline_ms=300
    )
    assert "security_protocol" in said
