"""The tokens of a broker: found by HMAC, prepared for logins, and told from no others (X2)."""

import asyncio
import base64
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.security import delegation_tokens
from penstock.broker.security.delegation_tokens import DelegationTokens
from penstock.broker.workers import Workers
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    Change,
    DelegationTokenRecord,
    Delete,
    LoginSecretRecord,
    Put,
)
from penstock.security.delegation_token import token_hmac
from penstock.security.scram_credential import ScramCredential, ScramMechanism
from tests.support.clock import ManualClock
from tests.support.protocol.scram_client import credential_from_password

SECRET = "the brokers' own"
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "delegation.token.secret.key": SECRET,
}
SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
STORED = DelegationTokenRecord("stored", "User:ann", "User:ann", (), 0, 9_000, 1_000)


class Broker:
    def __init__(self, workers: Workers) -> None:
        self.image = ClusterImage()
        self.image.apply([Put(LoginSecretRecord(b"secret")), Put(STORED)])
        self.clock = ManualClock(0)
        config = BrokerConfig.from_properties(SETTINGS)
        self.tokens = DelegationTokens(config, self.image, self.clock, workers)

    def apply(self, *changes: Change) -> None:
        self.image.apply(changes)
        self.tokens.apply(changes)


@asynccontextmanager
async def broker() -> AsyncIterator[Broker]:
    workers = Workers()
    running = Broker(workers)
    try:
        yield running
    finally:
        await running.tokens.close()
        workers.close()


def test_the_hmac_is_kafkas() -> None:
    """As javax.crypto computes HmacSHA512 of the id with the secret as the key."""
    assert base64.b64encode(token_hmac("secret", "tokenId")).decode() == (
        "9xK3mSxj/bjgpe9Tdbs6+23xcnW9UiZAFn2ypV28j4V7ykiGPSMrsKTacd2Qfma1nY72uD5yhh57fiTu8ZZ/7g=="
    )


def test_tokens_are_found_by_their_hmacs() -> None:
    async def scenario() -> None:
        async with broker() as running:
            tokens, image = running.tokens, running.image
            assert tokens.find(image, token_hmac(SECRET, "stored")) == STORED
            assert tokens.find(image, b"") is None
            renewed = replace(STORED, expiry_ms=2_000)
            running.apply(Put(renewed))
            assert tokens.find(image, token_hmac(SECRET, "stored")) == renewed
            running.apply(Delete(STORED.key))
            assert tokens.find(image, token_hmac(SECRET, "stored")) is None

    asyncio.run(scenario())


def test_a_login_needs_the_hmac_and_ends_with_the_token() -> None:
    async def scenario() -> None:
        async with broker() as running:
            password = base64.b64encode(token_hmac(SECRET, "stored")).decode()
            for mechanism in ScramMechanism:
                login = running.tokens.login(mechanism, "stored")
                assert login.credential == credential_from_password(
                    mechanism, password, login.credential.salt
                )
                assert (login.owner, login.expires_ms, login.is_expired) == ("ann", 1_000, False)
            running.clock.advance(1_001)
            assert running.tokens.login(SHA_256, "stored").is_expired

    asyncio.run(scenario())


def test_an_unknown_id_has_the_salt_that_a_token_would_have() -> None:
    async def scenario() -> None:
        async with broker() as running:
            known = running.tokens.login(SHA_256, "stored")
            running.apply(Delete(STORED.key))
            unknown = running.tokens.login(SHA_256, "stored")
            assert unknown.owner is None
            assert unknown.credential.salt == known.credential.salt
            assert unknown.credential.iterations == known.credential.iterations
            assert unknown.credential.stored_key != known.credential.stored_key

    asyncio.run(scenario())


def test_a_principal_that_is_no_user_does_not_log_in() -> None:
    async def scenario() -> None:
        async with broker() as running:
            running.apply(Put(replace(STORED, owner="Group:admins")))
            assert running.tokens.login(SHA_256, "stored").owner is None

    asyncio.run(scenario())


def test_credentials_are_computed_before_the_first_login(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a thread, for the mechanisms of the listeners: not for SCRAM-SHA-512 here."""
    threads: list[str] = []

    def compute(mechanism: ScramMechanism, hmac: bytes, salt: bytes) -> ScramCredential:
        threads.append(threading.current_thread().name.partition("_")[0])
        return ScramCredential(salt, b"stored", b"server", 4096)

    monkeypatch.setattr(delegation_tokens, "token_credential", compute)

    async def scenario() -> None:
        async with broker() as running:
            running.apply(Put(replace(STORED, token_id="new")))
            running.apply(Put(replace(STORED, token_id="removed")))
            running.apply(Delete(replace(STORED, token_id="removed").key))
            this = asyncio.current_task()
            await asyncio.gather(*(task for task in asyncio.all_tasks() if task is not this))
            for token_id in ("stored", "new"):
                assert running.tokens.login(SHA_256, token_id).owner == "ann"
            assert threads == ["penstock-compute"] * 2
            running.tokens.login(SHA_512, "new")
            assert threads[2:] == [threading.current_thread().name]

    asyncio.run(scenario())
