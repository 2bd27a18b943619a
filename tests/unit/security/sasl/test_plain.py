"""SASL PLAIN (X2)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ErrorCode, KafkaError
from penstock.security.sasl.plain import PlainServer
from penstock.security.sasl.server import SaslServer

USERS = {"ann": "secret", "bob": "pässword", "nobody": ""}


def refusal(response: bytes) -> str:
    server = PlainServer(USERS)
    with pytest.raises(KafkaError) as raised:
        server.step(response)
    assert raised.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert not server.done
    return raised.value.message


@pytest.mark.parametrize(
    "response", [b"\0ann\0secret", b"ann\0ann\0secret", "\0bob\0pässword".encode()]
)
def test_a_user_logs_in(response: bytes) -> None:
    server: SaslServer = PlainServer(USERS)
    assert server.mechanism == "PLAIN"
    assert server.step(response) == b""
    assert server.done
    assert server.principal_name == response.split(b"\0")[1].decode()


def test_wrong_user_and_wrong_password_have_the_same_error() -> None:
    assert refusal(b"\0ann\0wrong") == refusal(b"\0eve\0secret") == refusal(b"\0nobody\0x")


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (b"\0\0secret", "no user name"),
        (b"\0ann\0", "no password"),
        (b"\0nobody\0", "no password"),
        (b"ann\0secret", "got 2 parts"),
        (b"\0ann\0sec\0ret", "got 4 parts"),
        (b"", "got 1 parts"),
        (b"\0ann\0\xff", "not UTF-8"),
        (b"bob\0ann\0secret", "authorization id"),
    ],
)
def test_the_error_of_an_invalid_message_has_the_reason(response: bytes, reason: str) -> None:
    assert reason in refusal(response)


def test_a_completed_exchange_cannot_be_continued() -> None:
    server = PlainServer(USERS)
    with pytest.raises(KafkaError, match="nobody logged in"):
        _ = server.principal_name
    server.step(b"\0ann\0secret")
    with pytest.raises(KafkaError) as raised:
        server.step(b"\0ann\0secret")
    assert raised.value.code is ErrorCode.ILLEGAL_SASL_STATE


def test_a_failed_exchange_cannot_be_continued() -> None:
    server = PlainServer(USERS)
    with pytest.raises(KafkaError):
        server.step(b"\0ann\0wrong")
    with pytest.raises(KafkaError) as raised:
        server.step(b"\0ann\0secret")
    assert raised.value.code is ErrorCode.ILLEGAL_SASL_STATE


@given(st.binary(max_size=20))
def test_only_the_exact_message_authenticates(response: bytes) -> None:
    assert refusal(response)
