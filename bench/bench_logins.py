"""Logins per second and what one costs the broker, beside Apache Kafka's.

A login is a new connection, SaslHandshake, SaslAuthenticate, and one Metadata request, which shows
that the broker serves the client. Several clients log in at the same time. They share the cores
with the broker, so the processor time that the broker takes for a login counts more than the number
of logins in a second. Kafka is measured when its code is compiled.
"""

import asyncio
import os
import ssl
import statistics
import struct
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple
from unittest.mock import patch

from bench.bench_cluster_kafka import ProductionParts
from bench.broker_client import frame
from bench.broker_process import start_broker
from bench.cluster_process import process_cpu_seconds
from bench.report import Row, at_most
from penstock.client import Admin
from penstock.client.admin.model_security import ScramUpsertion
from penstock.net.client.sasl.client import SaslClient, SaslSettings
from penstock.net.client.sasl.mechanisms import login_factory
from penstock.net.client.sasl.token_sources import OAuthSettings
from penstock.protocol.frames import decode_response
from penstock.protocol.messages.metadata import MetadataRequest
from penstock.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest
from penstock.security.scram_credential import ScramMechanism
from tests.support.broker.certificates import Identity, make_identity, simple_name
from tests.support.kafka.broker import KafkaBroker
from tests.support.kerberos.kdc import BROKER, Realm, krb5_login_module, realm_of_this_process
from tests.support.oauth.provider import Provider, running_provider

ROUNDS: Final = 5
LOGINS: Final = 400
WARM_UP_LOGINS: Final = 3000
CLIENTS: Final = 8
USER: Final = "ann"
PASSWORD: Final = "ann-secret"
PLAIN_JAAS: Final = (
    f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
)
SCRAM_JAAS: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
OAUTH: Final = "org.apache.kafka.common.security.oauthbearer"
PROTOCOLS: Final = ("SASL_PLAINTEXT", "SASL_SSL", "SSL")
METADATA: Final = frame(MetadataRequest([]), 12)


class Login(NamedTuple):
    """A way to log in. `create` returns the SASL client of a connection; None for TLS alone."""

    name: str
    protocol: str
    create: Callable[[str], SaslClient] | None


class Contender(NamedTuple):
    """A broker in a process of its own, with the port of each security protocol."""

    pid: int
    ports: Mapping[str, int]


# --- the client


async def log_in(port: int, login: Login, tls: ssl.SSLContext | None) -> None:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=tls, server_hostname="localhost" if tls else None
    )
    if login.create is not None:
        client = login.create("localhost")
        if client.prepare is not None:
            client.prepare()
        writer.write(frame(SaslHandshakeRequest(client.mechanism), 1))
        await read_response(reader)
        token: bytes | None = client.initial_response()
        while token is not None:
            writer.write(frame(SaslAuthenticateRequest(token), 2))
            response = decode_response(SaslAuthenticateResponse, 2, await read_response(reader))[1]
            if response.error_code:
                raise RuntimeError(f"{login.name}: {response.error_message}")
            token = client.evaluate_challenge(response.auth_bytes)
    writer.write(METADATA)
    await read_response(reader)
    writer.close()
    await writer.wait_closed()


async def read_response(reader: asyncio.StreamReader) -> bytes:
    size: int = struct.unpack(">i", await reader.readexactly(4))[0]
    return await reader.readexactly(size)


async def log_in_often(port: int, login: Login, tls: ssl.SSLContext | None, count: int) -> None:
    async def log_in_in_turn() -> None:
        for _ in range(count // CLIENTS):
            await log_in(port, login, tls)

    await asyncio.gather(*(log_in_in_turn() for _ in range(CLIENTS)))


class Figures(NamedTuple):
    cpu_ms: float
    """The processor time of the broker for a login."""
    per_second: float


def measure(contender: Contender, login: Login, tls: ssl.SSLContext, count: int) -> Figures:
    context = None if login.protocol == "SASL_PLAINTEXT" else tls
    begun, begun_cpu = time.perf_counter(), process_cpu_seconds(contender.pid)
    asyncio.run(log_in_often(contender.ports[login.protocol], login, context, count))
    taken = time.perf_counter() - begun
    cpu = process_cpu_seconds(contender.pid) - begun_cpu
    return Figures(cpu / count * 1000, count / taken)


# --- the brokers


def write_pem(directory: Path, authority: Identity) -> tuple[Path, Path]:
    """Writes the key with its certificate, and the authority."""
    identity = make_identity(simple_name("localhost"), authority)
    key_store, trust_store = directory / "broker.pem", directory / "authority.pem"
    key_store.write_text(identity.key_pem() + identity.certificate_pem)
    trust_store.write_text(authority.certificate_pem)
    return key_store, trust_store


def security_settings(
    provider: Provider, realm: Realm, key_store: Path, trust_store: Path
) -> dict[str, str]:
    scram = [kind.mechanism_name for kind in ScramMechanism]
    mechanisms = ["PLAIN", "OAUTHBEARER", "GSSAPI", *scram]
    kerberos_jaas = krb5_login_module(realm.keytab(BROKER), BROKER)
    settings = {
        **provider.broker_settings(),
        "sasl.enabled.mechanisms": ",".join(mechanisms),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(key_store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trust_store),
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.kerberos.service.name": "kafka",
    }
    for listener in ("sasl_plaintext", "sasl_ssl"):
        prefix = f"listener.name.{listener}"
        settings[f"{prefix}.plain.sasl.jaas.config"] = PLAIN_JAAS
        settings[f"{prefix}.gssapi.sasl.jaas.config"] = kerberos_jaas
        for kind in ScramMechanism:
            settings[f"{prefix}.{kind.mechanism_name.lower()}.sasl.jaas.config"] = SCRAM_JAAS
    return settings


def kafka_settings() -> dict[str, str]:
    """What Kafka needs besides, because it has no default for it."""
    settings = {}
    for listener in ("sasl_plaintext", "sasl_ssl"):
        prefix = f"listener.name.{listener}.oauthbearer.sasl"
        settings[f"{prefix}.jaas.config"] = f"{OAUTH}.OAuthBearerLoginModule required;"
        handler = f"{OAUTH}.OAuthBearerValidatorCallbackHandler"
        settings[f"{prefix}.server.callback.handler.class"] = handler
    return settings


def create_users(bootstrap: str) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.alter_user_scram_credentials(
            ScramUpsertion(USER, kind, PASSWORD) for kind in ScramMechanism
        )


def client_context(directory: Path, authority: Identity, trust_store: Path) -> ssl.SSLContext:
    identity = make_identity(simple_name("client"), authority)
    chain = directory / "client.pem"
    chain.write_text(identity.key_pem() + identity.certificate_pem)
    context = ssl.create_default_context(cafile=str(trust_store))
    context.load_cert_chain(chain)
    return context


def logins_of(provider: Provider, realm: Realm) -> list[Login]:
    names = ["PLAIN", *(kind.mechanism_name for kind in ScramMechanism)]
    factories = {
        **{
            name: login_factory(SaslSettings(name, username=USER, password=PASSWORD))
            for name in names
        },
        "OAUTHBEARER (RS256)": login_factory(
            SaslSettings("OAUTHBEARER", oauth=OAuthSettings(token_provider=provider.token))
        ),
        "GSSAPI": login_factory(
            SaslSettings("GSSAPI", jaas_config=krb5_login_module(realm.keytab(USER), USER))
        ),
    }
    return [
        *(Login(name, "SASL_PLAINTEXT", create) for name, create in factories.items()),
        Login("PLAIN over TLS", "SASL_SSL", factories["PLAIN"]),
        Login("TLS with a client certificate", "SSL", None),
    ]


def rows_of(login: Login, ours: Contender, kafka: Contender, tls: ssl.SSLContext) -> list[Row]:
    for contender in (ours, kafka):
        measure(contender, login, tls, WARM_UP_LOGINS if contender is kafka else LOGINS)
    pairs = [
        (measure(ours, login, tls, LOGINS), measure(kafka, login, tls, LOGINS))
        for _ in range(ROUNDS)
    ]
    ratio = statistics.median(first.cpu_ms / second.cpu_ms for first, second in pairs)
    rates = [statistics.median(pair[side].per_second for pair in pairs) for side in (0, 1)]
    costs = [statistics.median(pair[side].cpu_ms for pair in pairs) for side in (0, 1)]
    return [
        Row(login.name, rates[0], "logins/s"),
        Row("  Kafka", rates[1], "logins/s"),
        Row("  processor time of the broker", costs[0], "ms"),
        Row("  Kafka", costs[1], "ms"),
        at_most("  of Kafka's", ratio, "times", 1),
    ]


def run() -> list[Row]:
    with ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-"))
        provider = stack.enter_context(running_provider())
        realm = stack.enter_context(realm_of_this_process())
        realm.add(USER)
        directory = Path(name)
        authority = make_identity(simple_name("authority"))
        key_store, trust_store = write_pem(directory, authority)
        settings = security_settings(provider, realm, key_store, trust_store)
        tls = client_context(directory, authority, trust_store)
        listeners = ",".join(f"{name}://127.0.0.1:0" for name in ("PLAINTEXT", *PROTOCOLS))
        server = stack.enter_context(
            start_broker(directory / "penstock", {"listeners": listeners, **settings})
        )
        allowed_urls = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={provider.url}/jwks"
        java_options = f"{allowed_urls} {realm.java_option}"
        stack.enter_context(patch.dict(os.environ, JAVA_TOOL_OPTIONS=java_options))
        kafka = stack.enter_context(
            KafkaBroker(
                ProductionParts.find(),
                directory / "kafka",
                {**settings, **kafka_settings()},
                listeners=PROTOCOLS,
            )
        )
        ours = Contender(server.pid, dict(zip(PROTOCOLS, server.ports[1:], strict=True)))
        theirs = Contender(kafka.pid, kafka.ports)
        create_users(f"127.0.0.1:{server.ports[0]}")
        create_users(kafka.bootstrap)
        return [
            row for login in logins_of(provider, realm) for row in rows_of(login, ours, theirs, tls)
        ]
