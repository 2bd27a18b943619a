"""Requests about delegation tokens get the answers of Kafka 4.3.1 (X2).

The same requests are sent to both brokers. What differs from run to run, ids and times, has names
instead.
"""

import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.protocol.fields import Message
from penstock.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from penstock.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from penstock.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from penstock.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from penstock.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from penstock.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.security.acl import AclOperation, AclPermission, PatternType, ResourceType
from tests.support.broker.in_process import WireClient, running_broker
from tests.support.broker.logins import AUTHORIZER, PLAIN_JAAS, handshake, plain_login
from tests.support.kafka.broker import KafkaBroker, KafkaParts
from tests.support.protocol.scram_client import ScramClient

_HOUR_MS = 3_600_000
_SETTLE_S = 0.2
"""Kafka's controller responds before its broker knows of a change."""
BROKER_SETTINGS = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.plaintext.plain.sasl.jaas.config": PLAIN_JAAS.replace(
        "required ", 'required username="admin" password="admin-secret" '
    ),
    "listener.name.plaintext.scram-sha-256.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
    "authorizer.class.name": AUTHORIZER,
    "super.users": "User:admin;User:ANONYMOUS",
    "connection.failed.authentication.delay.ms": "0",
}
KAFKA_SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "inter.broker.listener.name": "PLAINTEXT",
}
PENSTOCK_SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
}
SECRET = {"delegation.token.secret.key": "the brokers' own"}

Connect = Callable[[], WireClient]
_Answers = list[tuple[str, Any]]


@contextmanager
def kafka(directory: Path, settings: dict[str, str]) -> Iterator[Connect]:
    settings = {**BROKER_SETTINGS, **settings, **KAFKA_SETTINGS}
    with KafkaBroker(KafkaParts.find(), directory, settings) as broker:
        yield lambda: WireClient(("127.0.0.1", broker.port))


@contextmanager
def penstock(directory: Path, settings: dict[str, str]) -> Iterator[Connect]:
    settings = {**BROKER_SETTINGS, **settings, **PENSTOCK_SETTINGS}
    with running_broker(directory, settings) as broker:
        yield lambda: WireClient(("127.0.0.1", broker.addresses[0].port))


class _Script:
    """Sends requests, and notes the responses without ids and times."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self.answers: _Answers = []

    def send(self, client: WireClient, what: str, request: Message, version: int) -> Any:
        response = client.request(request, version)
        self.answers.append((what, _stable(response)))
        if not isinstance(request, DescribeDelegationTokenRequest):
            time.sleep(_SETTLE_S)
        return response

    @contextmanager
    def user(self, name: str) -> Iterator[WireClient]:
        client = self._connect()
        try:
            assert plain_login(client, name).error_code == 0
            yield client
        finally:
            client.sock.close()

    @contextmanager
    def holder(self, token: Any) -> Iterator[WireClient]:
        client = self._connect()
        scram = ScramClient(
            "sha256",
            token.token_id,
            b64encode(token.hmac).decode(),
            extensions=",tokenauth=true",
        )
        try:
            assert handshake(client, "SCRAM-SHA-256").error_code == 0
            challenge = client.request(SaslAuthenticateRequest(scram.first()), 2)
            verdict = client.request(SaslAuthenticateRequest(scram.final(challenge.auth_bytes)), 2)
            assert verdict.error_code == 0
            self.answers.append(("session", round(verdict.session_lifetime_ms / _HOUR_MS)))
            yield client
        finally:
            client.sock.close()


def _stable(value: Any) -> Any:
    """Returns the fields of a response: times as hours from now, ids and HMACs by their sizes."""
    if isinstance(value, list):
        return sorted(map(_stable, value), key=str)
    if not hasattr(value, "__struct_fields__"):
        return value
    fields: dict[str, Any] = {}
    for name in value.__struct_fields__:
        field = getattr(value, name)
        if "timestamp" in name and field > 0:
            fields[name] = f"now + {round((field - time.time() * 1000) / _HOUR_MS)} h"
        elif name in ("token_id", "hmac"):
            fields[name] = len(field)
        else:
            fields[name] = _stable(field)
    return fields


def run(connect: Connect) -> _Answers:
    """Sends every kind of request, right and wrong."""
    script = _Script(connect)
    send = script.send
    create, describe_all = CreateDelegationTokenRequest, DescribeDelegationTokenRequest(None)
    with script.user("ann") as ann, script.user("bob") as bob, script.user("admin") as admin:
        bobs = [CreatableRenewers("User", "bob")]
        token = send(ann, "create", create(renewers=bobs), 3)
        for version in (1, 2, 3):
            send(ann, f"describe {version}", describe_all, version)
            send(bob, f"create {version}", create(max_lifetime_ms=5 * _HOUR_MS), version)
        mine = [DescribeDelegationTokenOwner("User", "bob")]
        for who, client in (("ann", ann), ("bob", bob), ("admin", admin)):
            send(client, f"{who} sees", describe_all, 3)
            send(client, f"{who} sees bob's", DescribeDelegationTokenRequest(mine), 3)
            send(client, f"{who} sees none", DescribeDelegationTokenRequest([]), 3)
        send(ann, "for another", create("User", "bob"), 3)
        send(admin, "for another, as a super user", create("User", "ann"), 3)
        send(ann, "renewer is a group", create(renewers=[CreatableRenewers("Group", "g")]), 3)
        send(bob, "renew", RenewDelegationTokenRequest(token.hmac, -1), 2)
        send(bob, "renew for long", RenewDelegationTokenRequest(token.hmac, 1000 * _HOUR_MS), 2)
        send(bob, "renew for 2 hours", RenewDelegationTokenRequest(token.hmac, 2 * _HOUR_MS), 1)
        send(admin, "renew as a stranger", RenewDelegationTokenRequest(token.hmac, -1), 2)
        send(admin, "expire as a stranger", ExpireDelegationTokenRequest(token.hmac, -1), 2)
        send(ann, "renew nothing", RenewDelegationTokenRequest(b"x", -1), 2)
        send(ann, "expire nothing", ExpireDelegationTokenRequest(b"", -1), 2)
        send(ann, "expire", ExpireDelegationTokenRequest(token.hmac, 1000 * _HOUR_MS), 1)
        with script.holder(token) as holder:
            for request in (
                create(),
                describe_all,
                RenewDelegationTokenRequest(token.hmac, -1),
                ExpireDelegationTokenRequest(token.hmac, -1),
            ):
                send(holder, f"with a token: {type(request).__name__}", request, 2)
        send(ann, "expire now", ExpireDelegationTokenRequest(token.hmac, 0), 2)
        send(ann, "renew an expired one", RenewDelegationTokenRequest(token.hmac, -1), 2)
        send(admin, "as a stranger too", RenewDelegationTokenRequest(token.hmac, -1), 2)
        send(ann, "expire an expired one", ExpireDelegationTokenRequest(token.hmac, 5), 2)
        send(ann, "remove an expired one", ExpireDelegationTokenRequest(token.hmac, -1), 2)
        send(ann, "what is left", describe_all, 3)
        acls = [
            (ResourceType.USER, "User:ann", AclOperation.CREATE_TOKENS),
            (ResourceType.USER, "User:ann", AclOperation.DESCRIBE_TOKENS),
        ]
        for kind, name, operation in acls:
            acl = AclCreation(
                kind, name, PatternType.LITERAL, "User:bob", "*", operation, AclPermission.ALLOW
            )
            send(admin, "allow", CreateAclsRequest([acl]), 3)
            send(bob, f"after {operation.name}", create("User", "ann"), 3)
            send(bob, f"sees after {operation.name}", describe_all, 3)
    return script.answers


def run_disabled(connect: Connect) -> _Answers:
    """Sends the requests to a broker without a secret."""
    script = _Script(connect)
    with script.user("ann") as ann:
        for request, version in (
            (CreateDelegationTokenRequest(), 3),
            (CreateDelegationTokenRequest("User", "bob"), 3),
            (RenewDelegationTokenRequest(b"x", -1), 2),
            (ExpireDelegationTokenRequest(b"x", -1), 2),
            (DescribeDelegationTokenRequest(None), 3),
            (DescribeDelegationTokenRequest([]), 3),
        ):
            script.send(ann, type(request).__name__, request, version)
    return script.answers


@pytest.mark.long
@pytest.mark.parametrize(
    ("settings", "requests"), [(SECRET, run), ({}, run_disabled)], ids=["enabled", "disabled"]
)
def test_the_answers_are_those_of_kafka(
    tmp_path: Path, settings: dict[str, str], requests: Callable[[Connect], _Answers]
) -> None:
    with kafka(tmp_path / "kafka", settings) as connect:
        expected = requests(connect)
    with penstock(tmp_path / "penstock", settings) as connect:
        answers = requests(connect)
    assert len(answers) == len(expected)
    for answer, kafkas in zip(answers, expected, strict=True):
        assert answer == kafkas
