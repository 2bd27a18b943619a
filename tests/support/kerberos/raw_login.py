"""GSSAPI logins with raw requests: each token is at hand, to be sent twice or altered."""

from collections.abc import Callable
from pathlib import Path

from penstock.net.client.sasl.client import SaslClient, SaslSettings
from penstock.net.client.sasl.mechanisms import login_factory
from penstock.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.support.broker.in_process import WireClient
from tests.support.kerberos.kdc import HOST, krb5_login_module


def prepared_login(keytab: Path, principal: str) -> SaslClient:
    """Returns a login that has its ticket for the broker."""
    jaas_config = krb5_login_module(keytab, principal)
    login = login_factory(SaslSettings("GSSAPI", jaas_config=jaas_config))(HOST)
    assert login.prepare is not None
    login.prepare()
    return login


def log_in(login: SaslClient, send: Callable[[bytes], bytes]) -> None:
    """Sends the tokens of a login with `send`, which returns the challenge for a token."""
    token: bytes | None = login.initial_response()
    while token is not None:
        token = login.evaluate_challenge(send(token))


def authenticate(client: WireClient, token: bytes) -> SaslAuthenticateResponse:
    response = client.request(SaslAuthenticateRequest(token), 2)
    assert isinstance(response, SaslAuthenticateResponse)
    return response


def start_login(client: WireClient, version: int = 1) -> None:
    assert client.request(SaslHandshakeRequest("GSSAPI"), version).error_code == 0
