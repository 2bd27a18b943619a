"""Logins with raw requests, and the settings of a broker that requires them."""

from typing import Any

from penstock.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from penstock.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest
from penstock.security.scram_credential import ScramMechanism, salted_password
from tests.support.broker.in_process import RunningBroker, WireClient
from tests.support.protocol.scram_client import ScramClient

PLAIN_JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'user_admin="admin-secret" user_ann="ann-secret" user_bob="bob-secret";'
)
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

SASL_SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_JAAS,
    "connection.failed.authentication.delay.ms": "0",
}
"""The first listener needs no login, the second one does."""


def handshake(client: WireClient, mechanism: str, version: int = 1) -> Any:
    return client.request(SaslHandshakeRequest(mechanism), version)


def plain_token(user: str, password: str) -> bytes:
    return f"\0{user}\0{password}".encode()


def plain_login(client: WireClient, user: str, password: str | None = None) -> Any:
    """Logs in with PLAIN; returns the last response."""
    assert handshake(client, "PLAIN").error_code == 0
    token = plain_token(user, password or f"{user}-secret")
    return client.request(SaslAuthenticateRequest(token), 2)


def scram_login(client: WireClient, mechanism: ScramMechanism, user: str, password: str) -> Any:
    """Logs in with SCRAM; the server must prove that it knows the password."""
    assert handshake(client, mechanism.mechanism_name).error_code == 0
    scram = ScramClient(mechanism.digest, user, password)
    challenge = client.request(SaslAuthenticateRequest(scram.first()), 2)
    assert challenge.error_code == 0
    verdict = client.request(SaslAuthenticateRequest(scram.final(challenge.auth_bytes)), 2)
    if not verdict.error_code:
        assert scram.accepts(verdict.auth_bytes)
    return verdict


def logged_in(broker: RunningBroker, user: str, listener: str = "SASL_PLAINTEXT") -> WireClient:
    """Returns a connection of a user of `PLAIN_JAAS`."""
    client = broker.connect(listener)
    response = plain_login(client, user)
    assert response.error_code == 0, response.error_message
    return client


def set_password(
    client: WireClient,
    mechanism: ScramMechanism,
    user: str,
    password: str,
    iterations: int = 4096,
) -> Any:
    salted = salted_password(mechanism, password, b"salt", iterations)
    upsertion = ScramCredentialUpsertion(user, mechanism, iterations, b"salt", salted)
    request = AlterUserScramCredentialsRequest(upsertions=[upsertion])
    return client.request(request, 0).results[0]
