"""Delegation tokens: created, renewed and ended at one broker, accepted and refused by all."""

import json
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.core.errors import ErrorCode
from penstock.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from penstock.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from penstock.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from penstock.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from penstock.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.security.scram_credential import ScramMechanism
from tests.compat.mixed.security import MECHANISMS, at_logins
from tests.compat.mixed.view import WAIT_S, MixedView
from tests.support.broker.in_process import WireClient
from tests.support.broker.logins import handshake, scram_login
from tests.support.history.cluster import BROKER_IDS
from tests.support.protocol.scram_client import ScramClient

_FIELDS = {
    *("version", "owner", "tokenRequester", "renewers"),
    *("issueTimestamp", "maxTimestamp", "expiryTimestamp", "tokenId"),
}
_NONE, _REFUSED = ErrorCode.NONE, ErrorCode.SASL_AUTHENTICATION_FAILED
_RENEWER = "CN=r, O=x/y"


def change_tokens(view: MixedView, through: int, user: str) -> None:
    """The user exists at all brokers, with the password `<user>-new`."""
    with _logged_in(view, through, user) as client:
        request = CreateDelegationTokenRequest(renewers=[CreatableRenewers("User", _RENEWER)])
        created, short = client.request(request, 3), client.request(request, 3)
        assert created.error_code == 0
    path = f"/delegation_token/tokens/{created.token_id}"
    assert json.loads(view.zookeeper.get(path)[0]).keys() == _FIELDS
    for mechanism in MECHANISMS:
        _wait_for_login(view, mechanism, created, _NONE)
    for broker_id in BROKER_IDS:
        renewed = _renew_at(view, broker_id, user, created)
        _wait_for_expiry(view, user, created.token_id, renewed)
    ending = next(broker_id for broker_id in BROKER_IDS if broker_id != through)
    with _logged_in(view, ending, user) as client:
        assert client.request(ExpireDelegationTokenRequest(created.hmac, -1), 2).error_code == 0
        assert client.request(ExpireDelegationTokenRequest(short.hmac, 1), 2).error_code == 0
    for token in (created, short):  # the second one is removed by the controller
        _wait_for_login(view, MECHANISMS[0], token, _REFUSED)
        _wait_for_removal(view, f"/delegation_token/tokens/{token.token_id}")


def _wait_for_removal(view: MixedView, path: str) -> None:
    view.cluster.poll(lambda: f"{path} exists" if view.zookeeper.exists(path) else "", WAIT_S)


def _renew_at(view: MixedView, broker_id: int, user: str, token: Any) -> int:
    with _logged_in(view, broker_id, user) as client:
        period_ms = 1_000_000 + broker_id
        renewed = client.request(RenewDelegationTokenRequest(token.hmac, period_ms), 2)
        assert renewed.error_code == 0
        return int(renewed.expiry_timestamp_ms)


def _wait_for_expiry(view: MixedView, user: str, token_id: str, expiry_ms: int) -> None:
    def problem() -> str:
        for broker_id in BROKER_IDS:
            with _logged_in(view, broker_id, user) as client:
                response = client.request(DescribeDelegationTokenRequest(None), 3)
            tokens = {token.token_id: token for token in response.tokens}
            if token_id not in tokens or tokens[token_id].expiry_timestamp != expiry_ms:
                return f"broker {broker_id} has {tokens}"
            assert tokens[token_id].renewers[0].principal_name == _RENEWER
        return ""

    view.cluster.poll(problem, WAIT_S)


def _wait_for_login(
    view: MixedView, mechanism: ScramMechanism, token: Any, expected: ErrorCode
) -> None:
    def problem() -> str:
        for broker_id in BROKER_IDS:
            with at_logins(view, broker_id) as client:
                code = _log_in(client, mechanism, token)
            if code is not expected:
                return f"broker {broker_id} says {code.name}"
        return ""

    view.cluster.poll(problem, WAIT_S)


def _log_in(client: WireClient, mechanism: ScramMechanism, token: Any) -> ErrorCode:
    password = b64encode(token.hmac).decode()
    scram = ScramClient(mechanism.digest, token.token_id, password, extensions=",tokenauth=true")
    assert handshake(client, mechanism.mechanism_name).error_code == 0
    challenge = client.request(SaslAuthenticateRequest(scram.first()), 2)
    if challenge.error_code:
        return ErrorCode(challenge.error_code)  # Kafka refuses an unknown id at once
    verdict = client.request(SaslAuthenticateRequest(scram.final(challenge.auth_bytes)), 2)
    return ErrorCode(verdict.error_code)


@contextmanager
def _logged_in(view: MixedView, broker_id: int, user: str) -> Iterator[WireClient]:
    with at_logins(view, broker_id) as client:
        verdict = scram_login(client, MECHANISMS[0], user, f"{user}-new")
        assert verdict.error_code == 0, verdict.error_message
        yield client
