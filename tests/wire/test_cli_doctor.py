"""`penstock doctor`: every step, and what it makes of everything that can be wrong (E3-E7)."""

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, NamedTuple, TypeVar

import pytest

from penstock.cli.doctor import probes as doctor_probes
from penstock.client.admin.admin import Admin
from penstock.client.admin.model_security import AclBinding
from penstock.core.errors import ErrorCode
from penstock.protocol.api import api
from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Message
from penstock.protocol.messages.header import RequestHeader
from penstock.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from penstock.protocol.messages.sasl_handshake import SaslHandshakeResponse
from penstock.security.acl import AclOperation, AclPermission, PatternType, ResourceType
from tests.support.broker.certificates import Identity, make_identity, simple_name
from tests.support.broker.fake_brokers import FakeBroker, fake_broker
from tests.support.broker.in_process import RunningBroker
from tests.support.broker.logins import AUTHORIZER, PLAIN_JAAS
from tests.support.client.cli import Cli
from tests.support.protocol.requests import make_topic

T = TypeVar("T")
LISTENERS = ("PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL", "MUTUAL")
LOGIN = ("sasl.mechanism=PLAIN", "sasl.plain.username=ann", "sasl.plain.password=ann-secret")
STEPS = [
    "address",
    "name",
    "connection",
    "versions",
    "login",
    "metadata",
    "advertised listeners",
    "topic",
    "produce",
    "fetch",
    "clock",
    "group coordinator",
]


class Authority:
    def __init__(self) -> None:
        self.own = make_identity(simple_name("authority"))
        self.broker = make_identity(simple_name("broker"), self.own)
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
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_JAAS,
        "listener.name.sasl_ssl.plain.sasl.jaas.config": PLAIN_JAAS,
        "connection.failed.authentication.delay.ms": "0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": authority.broker.key_pem(),
        "ssl.keystore.certificate.chain": authority.broker.certificate_pem,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.own.certificate_pem,
        "listener.name.mutual.ssl.client.auth": "required",
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:ANONYMOUS;User:admin",
        "offsets.topic.num.partitions": "2",
    }


class Diagnosis(NamedTuple):
    """What the doctor says."""

    ok: bool
    steps: dict[str, dict[str, Any]]
    problem: dict[str, str]

    @property
    def text(self) -> str:
        return f"{self.problem['cause']} → {self.problem['todo']}"


def doctor(address: str, *arguments: str, settings: tuple[str, ...] = ()) -> Diagnosis:
    options = [word for setting in settings for word in ("-X", setting)]
    quick = ("-X", "socket.connection.setup.timeout.ms=1500", "--timeout", "5")
    result = Cli().attempt("doctor", address, *quick, *arguments, *options, "--json")
    output = json.loads(result.stdout)
    assert result.exit_code == (0 if output["ok"] else 1)
    return Diagnosis(output["ok"], {row["step"]: row for row in output["steps"]}, output["problem"])


def diagnose_failure(
    step: str, address: str, *arguments: str, settings: tuple[str, ...] = ()
) -> Diagnosis:
    """It must fail in this step, which is the last one but for cleaning up."""
    diagnosis = doctor(address, *arguments, settings=settings)
    assert not diagnosis.ok
    assert diagnosis.problem["step"] == step, diagnosis.problem
    assert [name for name in diagnosis.steps if name != "clean up"][-1] == step
    return diagnosis


def address_of(broker: RunningBroker, listener: str = "PLAINTEXT", host: str = "localhost") -> str:
    port = next(address.port for address in broker.addresses if address.listener == listener)
    return f"{host}:{port}"


def trusting(identity: Identity) -> tuple[str, ...]:
    return ("ssl.truststore.type=PEM", f"ssl.truststore.certificates={identity.certificate_pem}")


# --- All is well


def test_every_step(broker: RunningBroker) -> None:
    diagnosis = doctor(address_of(broker))
    assert diagnosis.ok, diagnosis.problem
    assert list(diagnosis.steps) == [*STEPS, "clean up"]
    assert {step["status"] for step in diagnosis.steps.values()} == {"ok"}
    assert diagnosis.steps["metadata"]["details"]["brokers"][0]["host"] == "localhost"
    assert diagnosis.steps["clock"]["details"] == {"skew_ms": 0}
    with Admin(bootstrap_servers=address_of(broker)) as admin:
        assert not [name for name in admin.list_topics() if name.startswith("penstock-doctor")]


def test_for_people(broker: RunningBroker) -> None:
    result = Cli()("doctor", address_of(broker))
    lines = result.stdout.splitlines()
    assert lines[0].startswith("ok       address               localhost:")
    assert lines[0].endswith(" ms)")
    assert lines[-1] == "all is well"
    assert "\x1b" not in result.stdout
    port = free_port()
    failed = Cli().attempt("doctor", f"localhost:{port}")
    assert failed.exit_code == 1
    assert failed.stdout.splitlines()[-2].startswith("failed   connection ")
    assert "→ start the broker" in failed.stdout.splitlines()[-1]


def test_tls_and_a_login(broker: RunningBroker, authority: Authority) -> None:
    with broker.connect("PLAINTEXT") as client:
        make_topic(client, "doctored", 1)
    with Admin(bootstrap_servers=address_of(broker)) as admin:
        allow(admin, "User:ann")
    settings = ("security.protocol=SASL_SSL", *LOGIN, *trusting(authority.own))
    diagnosis = doctor(address_of(broker, "SASL_SSL"), "--topic", "doctored", settings=settings)
    assert diagnosis.ok, diagnosis.problem
    assert diagnosis.steps["TLS"]["details"]["names"] == ["localhost"]
    assert diagnosis.steps["login"]["text"] == "user ann with PLAIN"
    assert diagnosis.steps["produce"]["text"] == "a record is in doctored-0 at offset 0"
    assert diagnosis.steps["clock"]["status"] == "skipped"


def allow(admin: Admin, principal: str) -> None:
    """The topic and the group that the doctor uses."""
    named = ((ResourceType.TOPIC, "doctored"), (ResourceType.GROUP, "penstock-doctor"))
    admin.create_acls(
        [
            AclBinding(
                kind,
                name,
                PatternType.LITERAL,
                principal,
                "*",
                AclOperation.ALL,
                AclPermission.ALLOW,
            )
            for kind, name in named
        ]
    )


@pytest.mark.parametrize("filled", [False, True])
def test_read_only(broker: RunningBroker, filled: bool) -> None:
    name = f"looked-at-{filled}"
    with broker.connect("PLAINTEXT") as client:
        make_topic(client, name, 1)
    if filled:
        Cli(address_of(broker))("produce", name, stdin="a\n")
    diagnosis = doctor(address_of(broker), "--topic", name, "--read-only")
    assert diagnosis.ok, diagnosis.problem
    assert diagnosis.steps["produce"]["status"] == "skipped"
    assert diagnosis.steps["fetch"]["status"] == "ok"
    end = Cli(address_of(broker)).json("offsets", name, "--time", "latest")[0]["offset"]
    assert end == int(filled)
    assert doctor(address_of(broker), "--read-only").steps["topic"]["status"] == "skipped"


# --- The way there


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def test_an_address_that_is_none() -> None:
    """E6"""
    assert "web page" in diagnose_failure("address", "http://localhost:9092").text


def test_a_setting_that_is_none() -> None:
    diagnosis = diagnose_failure("address", "localhost:9092", settings=("security.protocol=TLS",))
    assert "PLAINTEXT" in diagnosis.text


def test_a_name_that_nobody_knows() -> None:
    """E6"""
    diagnosis = diagnose_failure("name", "no-such-broker.invalid:9092")
    assert diagnosis.problem["error"] == "DNS"


def test_a_port_where_nothing_listens() -> None:
    """E6"""
    diagnosis = diagnose_failure("connection", f"localhost:{free_port()}")
    assert "nothing listens there" in diagnosis.text


def test_packets_that_are_dropped() -> None:
    """E6: a full queue of connections drops packets as firewalls do."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        with socket.create_connection(address), socket.socket() as second:
            second.setblocking(False)
            second.connect_ex(address)
            diagnosis = diagnose_failure(
                "connection",
                f"127.0.0.1:{address[1]}",
                settings=("socket.connection.setup.timeout.ms=150",),
            )
    assert "did not respond within" in diagnosis.text
    assert "firewalls" in diagnosis.text


@contextmanager
def running(make: Callable[[], AbstractAsyncContextManager[T]]) -> Iterator[T]:
    """Something that needs a loop, on a thread of its own."""
    loop = asyncio.new_event_loop()
    ready = threading.Event()
    result: list[T] = []
    end = asyncio.Event()

    async def serve() -> None:
        async with make() as made:
            result.append(made)
            ready.set()
            await end.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert ready.wait(60)
        yield result[0]
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join(10)
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


@asynccontextmanager
async def stranger(response: Callable[[bytes], bytes]) -> AsyncIterator[int]:
    """A server that responds to the first bytes, and then closes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(response(await reader.read(1024)))
            await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()
        await asyncio.sleep(0)


def web(request: bytes) -> bytes:
    return b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"


def zookeeper(request: bytes) -> bytes:
    return b"Zookeeper version: 3.9.2\nMode: standalone\n" if request == b"srvr\n" else b""


def other(request: bytes) -> bytes:
    return b"220 mail.example ESMTP\r\n"


def nothing(request: bytes) -> bytes:
    return b""


@pytest.mark.parametrize(
    ("respond", "cause"),
    [
        (web, "is a web server"),
        (zookeeper, "is ZooKeeper, not a broker"),
        (other, "it sends '220 mail.example ESMTP'"),
        (nothing, "does not respond as Kafka does"),
    ],
)
@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_something_else_at_the_port(
    respond: Callable[[bytes], bytes], cause: str, protocol: str
) -> None:
    """E6"""
    with running(lambda: stranger(respond)) as port:
        diagnosis = diagnose_failure(
            "TLS" if protocol == "SSL" else "versions",
            f"127.0.0.1:{port}",
            settings=(f"security.protocol={protocol}",),
        )
    assert cause in diagnosis.text


def test_a_port_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """E6"""
    monkeypatch.setattr(doctor_probes, "_LISTEN_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        quick = ("socket.connection.setup.timeout.ms=150",)
        diagnosis = diagnose_failure("versions", address, settings=quick)
    assert "does not respond as Kafka does" in diagnosis.text
    assert "ZooKeeper" in diagnosis.problem["todo"]


# --- TLS and logins


def test_a_port_with_tls_spoken_to_without(broker: RunningBroker) -> None:
    diagnosis = diagnose_failure("versions", address_of(broker, "SSL"))
    assert "uses TLS" in diagnosis.text
    assert "set security.protocol=SSL" in diagnosis.text


def test_a_port_without_tls_spoken_to_with(broker: RunningBroker) -> None:
    diagnosis = diagnose_failure("TLS", address_of(broker), settings=("security.protocol=SSL",))
    assert "without TLS" in diagnosis.text
    assert "set security.protocol=PLAINTEXT" in diagnosis.text


def test_an_authority_that_is_not_trusted(broker: RunningBroker, authority: Authority) -> None:
    """E3"""
    settings = ("security.protocol=SSL", *trusting(authority.stranger))
    diagnosis = diagnose_failure("TLS", address_of(broker, "SSL"), settings=settings)
    assert "not trusted" in diagnosis.problem["cause"]
    assert "ssl.truststore.location" in diagnosis.problem["todo"]


def test_a_certificate_for_another_host(broker: RunningBroker, authority: Authority) -> None:
    """E3"""
    settings = ("security.protocol=SSL", *trusting(authority.own))
    diagnosis = diagnose_failure("TLS", address_of(broker, "SSL", "127.0.0.1"), settings=settings)
    assert "not for this host" in diagnosis.problem["cause"]
    assert "advertised.listeners" in diagnosis.problem["todo"]


def test_a_broker_that_wants_a_certificate(broker: RunningBroker, authority: Authority) -> None:
    """E3: with TLS 1.3 it says so only after the handshake."""
    for version, step in (("TLSv1.2", "TLS"), ("TLSv1.3", "versions")):
        settings = (
            "security.protocol=SSL",
            f"ssl.enabled.protocols={version}",
            *trusting(authority.own),
        )
        diagnosis = diagnose_failure(step, address_of(broker, "MUTUAL"), settings=settings)
        assert "client certificate" in diagnosis.text


def test_a_login_that_is_missing(broker: RunningBroker) -> None:
    """E3"""
    diagnosis = diagnose_failure("login", address_of(broker, "SASL_PLAINTEXT"))
    assert "requires a login with PLAIN, SCRAM-SHA-256" in diagnosis.problem["cause"]
    assert "security.protocol=SASL_PLAINTEXT" in diagnosis.problem["todo"]


def test_a_login_on_a_listener_without_authentication(broker: RunningBroker) -> None:
    diagnosis = diagnose_failure(
        "login", address_of(broker), settings=("security.protocol=SASL_PLAINTEXT", *LOGIN)
    )
    assert "expects no login" in diagnosis.text


def test_a_wrong_password(broker: RunningBroker) -> None:
    """E3: who, with what; never the password."""
    diagnosis = diagnose_failure(
        "login",
        address_of(broker, "SASL_PLAINTEXT"),
        settings=("security.protocol=SASL_PLAINTEXT", *LOGIN[:2], "sasl.plain.password=guess"),
    )
    assert "user ann" in diagnosis.text
    assert "check the user name and the password" in diagnosis.text
    assert "guess" not in diagnosis.text


def test_a_mechanism_that_the_broker_does_not_have(broker: RunningBroker) -> None:
    """E3"""
    diagnosis = diagnose_failure(
        "login",
        address_of(broker, "SASL_PLAINTEXT"),
        settings=("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=SCRAM-SHA-512", *LOGIN[1:]),
    )
    assert "it supports PLAIN, SCRAM-SHA-256" in diagnosis.text


# --- The cluster

MetadataOf = Callable[[FakeBroker], MetadataResponse]


def fake(
    metadata: MetadataOf, versions: dict[ApiKey, tuple[int, int]] | None = None
) -> "AbstractAsyncContextManager[FakeBroker]":
    """A broker that has nothing but metadata."""
    brokers: list[FakeBroker] = []

    def respond(header: RequestHeader, request: Message) -> Message | None:
        if isinstance(request, MetadataRequest):
            return metadata(brokers[0])
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)

    @asynccontextmanager
    async def serve() -> AsyncIterator[FakeBroker]:
        async with fake_broker(respond, versions) as broker:
            brokers.append(broker)
            yield broker

    return serve()


def itself(broker: FakeBroker) -> MetadataResponseBroker:
    return MetadataResponseBroker(0, "127.0.0.1", broker.port)


def test_versions_that_do_not_meet() -> None:
    """E4"""
    versions = {key: (api(key).min_version, api(key).max_version) for key in ApiKey}
    versions[ApiKey.FETCH] = (500, 501)
    with running(lambda: fake(lambda broker: MetadataResponse(), versions)) as broker:
        diagnosis = diagnose_failure("versions", broker.address)
    assert "serves FETCH in versions 500 to 501" in diagnosis.text
    assert "the client is too old" in diagnosis.text


def test_a_cluster_without_brokers() -> None:
    with running(lambda: fake(lambda broker: MetadataResponse(cluster_id="x"))) as broker:
        assert "has no brokers" in diagnose_failure("metadata", broker.address).text


@pytest.mark.parametrize(
    ("host", "cause"),
    [
        ("no-such-container", "like those of containers"),
        ("127.0.0.1", "that fails: 127.0.0.1:1 refuses connections"),
    ],
)
def test_an_advertised_listener_that_cannot_be_reached(host: str, cause: str) -> None:
    """E6"""

    def metadata(broker: FakeBroker) -> MetadataResponse:
        return MetadataResponse(
            cluster_id="x", brokers=[itself(broker), MetadataResponseBroker(1, host, 1)]
        )

    with running(lambda: fake(metadata)) as broker:
        diagnosis = diagnose_failure("advertised listeners", broker.address)
    assert cause in diagnosis.text
    assert "set advertised.listeners of broker 1" in diagnosis.problem["todo"]


def test_an_advertised_listener_of_another_cluster(broker: RunningBroker) -> None:
    """E6"""

    def metadata(fake: FakeBroker) -> MetadataResponse:
        port = broker.addresses[0].port
        brokers = [itself(fake), MetadataResponseBroker(1, "127.0.0.1", port)]
        return MetadataResponse(cluster_id="x", brokers=brokers)

    with running(lambda: fake(metadata)) as first:
        assert "another cluster" in diagnose_failure("advertised listeners", first.address).text


def test_a_partition_without_a_leader() -> None:
    """A warning in general; a failure for the topic that was given."""

    def metadata(broker: FakeBroker) -> MetadataResponse:
        partition = MetadataResponsePartition(leader_id=-1, replica_nodes=[5])
        topic = MetadataResponseTopic(name="t", partitions=[partition])
        return MetadataResponse(cluster_id="x", brokers=[itself(broker)], topics=[topic])

    with running(lambda: fake(metadata, _only_metadata())) as broker:
        diagnosis = diagnose_failure("topic", broker.address, "--topic", "t", "--timeout", "0.5")
    assert diagnosis.steps["metadata"]["status"] == "warning"
    assert "t-0" in diagnosis.steps["metadata"]["todo"]
    assert "partition t-0 has no leader" in diagnosis.text


def _only_metadata() -> dict[ApiKey, tuple[int, int]]:
    versions = {key: (api(key).min_version, api(key).max_version) for key in ApiKey}
    del versions[ApiKey.DESCRIBE_CONFIGS]
    return versions


def test_too_few_replicas(broker: RunningBroker) -> None:
    """E7"""
    with broker.connect("PLAINTEXT") as client:
        make_topic(client, "lonely", 1, {"min.insync.replicas": "2"})
    diagnosis = diagnose_failure("topic", address_of(broker), "--topic", "lonely")
    assert "1 in-sync replicas, but min.insync.replicas=2" in diagnosis.text
    assert diagnosis.problem["error"] == "NOT_ENOUGH_REPLICAS"


def test_a_topic_that_does_not_exist(broker: RunningBroker) -> None:
    """E5"""
    assert (
        "there is no topic nowhere"
        in diagnose_failure("topic", address_of(broker), "--topic", "nowhere").text
    )


def test_a_topic_that_one_may_not_use(broker: RunningBroker) -> None:
    """E3"""
    with broker.connect("PLAINTEXT") as client:
        make_topic(client, "secret", 1)
    login = ("security.protocol=SASL_PLAINTEXT", *LOGIN)
    address = address_of(broker, "SASL_PLAINTEXT")
    diagnosis = diagnose_failure("topic", address, "--topic", "secret", settings=login)
    assert diagnosis.problem["error"] == "TOPIC_AUTHORIZATION_FAILED"
    diagnosis = diagnose_failure("topic", address, settings=login)
    assert "name a topic with --topic" in diagnosis.text
