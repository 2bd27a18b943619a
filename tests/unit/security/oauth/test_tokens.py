"""Which tokens a broker accepts (X2): signature, issuer, audience, times, hostile input."""

import json
import time

import jwt
import pytest

from penstock.security.oauth.claim_rules import ClaimRules
from penstock.security.oauth.jwt import InvalidTokenError, encode_base64url, parse_jwt
from penstock.security.oauth.key_refresh import KeyRefresh, RefreshSettings
from penstock.security.oauth.key_set import KeySetError, parse_key_set
from penstock.security.oauth.unsecured import UnsecuredRules
from penstock.security.sasl.oauthbearer import OAuthBearerServer, UnsecuredTokenValidator
from tests.support.oauth.provider import AUDIENCE, ISSUER, Provider

PROVIDER = Provider("http://issuer.test")
KEYS = parse_key_set(PROVIDER.jwks)
RULES = ClaimRules(ISSUER, frozenset([AUDIENCE]))


def accept(token: str) -> str:
    parsed = parse_jwt(token)
    KEYS.verify(parsed)
    return RULES.check(parsed.claims, int(time.time() * 1000)).principal_name


def unsigned(header: object, claims: object) -> str:
    parts = (encode_base64url(json.dumps(part).encode()) for part in (header, claims))
    return ".".join(parts) + "."


def test_a_signed_token_is_accepted() -> None:
    assert accept(PROVIDER.token("ann")) == "ann"


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": 1000}, "expired"),
        ({"exp": None}, "'exp' is missing"),
        ({"exp": "soon"}, "not a number"),
        ({"nbf": 4e9, "exp": 5e9}, "valid in"),
        ({"iat": None}, "'iat' is missing"),
        ({"iss": "https://other.test"}, "issuer"),
        ({"aud": "other"}, "audience"),
        ({"aud": None}, "audience"),
        ({"sub": " "}, "'sub'"),
        ({"scope": ["a", "a"]}, "duplicates"),
    ],
)
def test_wrong_claims_are_refused(claims: dict[str, object], reason: str) -> None:
    # PyJWT refuses to encode some of these claims, so they are signed as bytes.
    values = {"sub": "ann", "iss": ISSUER, "aud": AUDIENCE, "iat": 1.0, "exp": 5e9, **claims}
    token = jwt.api_jws.encode(
        json.dumps(values).encode(), PROVIDER.key, "RS256", {"kid": PROVIDER.key_id}
    )
    with pytest.raises(InvalidTokenError, match=reason):
        accept(token)


def test_algorithms_without_the_issuers_key_are_refused() -> None:
    claims = {"sub": "ann", "iss": ISSUER, "aud": AUDIENCE, "iat": 1, "exp": 5e9}
    with pytest.raises(InvalidTokenError, match="not accepted"):
        accept(unsigned({"alg": "none"}, claims))
    header = {"alg": "HS256", "kid": PROVIDER.key_id}
    with pytest.raises(InvalidTokenError, match="not accepted"):
        accept(unsigned(header, claims) + "AAAA")


def test_tampered_and_foreign_tokens_are_refused() -> None:
    head, claims, signature = PROVIDER.token("ann").split(".")
    forged = encode_base64url(b'{"sub":"admin","exp":5000000000,"iat":1}')
    with pytest.raises(InvalidTokenError, match="signature is wrong"):
        accept(f"{head}.{forged}.{signature}")
    with pytest.raises(InvalidTokenError, match="signature is wrong"):
        accept(f"{head}.{claims}.{signature[:-8]}AAAAAAAA")
    stranger = Provider("http://stranger.test")
    with pytest.raises(InvalidTokenError, match="signature is wrong"):
        accept(stranger.token("ann"))
    stranger.rotate("key-2")
    with pytest.raises(InvalidTokenError, match="no key with the id 'key-2'"):
        accept(stranger.token("ann"))


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a.b",
        "a.b.c.d.e",
        "!.!.!",
        "x" * 100_000,
        f"{encode_base64url(b'[' * 30_000)}.e30.e30",
        f"{encode_base64url(b'[]')}.e30.e30",
        unsigned({"alg": 5}, {}),
        unsigned({"alg": "RS256", "crit": ["x"]}, {}),
        unsigned({"alg": "RS256"}, {}).replace("e30", encode_base64url(bytes(40))),
    ],
)
def test_hostile_tokens_are_refused(token: str) -> None:
    with pytest.raises(InvalidTokenError):
        accept(token)


def test_only_public_keys_for_signatures_are_used() -> None:
    key = json.loads(PROVIDER.jwks)["keys"][0]
    for changes in ({"use": "enc"}, {"kty": "oct", "k": "AAAA"}, {"n": "AQAB"}, {"n": 5}):
        with pytest.raises(KeySetError, match="no RSA or EC key"):
            parse_key_set(json.dumps({"keys": [{**key, **changes}, 7]}).encode())
    for document in (b"", b"[]", b"{}", b'{"keys": 1}'):
        with pytest.raises(KeySetError):
            parse_key_set(document)


def test_unknown_keys_cost_one_fetch_in_the_back_off() -> None:
    schedule = KeyRefresh(RefreshSettings(3_600_000, 100, 10_000), 0)
    schedule.succeeded(0, has_changed=True, was_scheduled=True)
    fetches = 0
    for now_ms in range(0, 100_000, 10):  # a stream of tokens with unknown keys
        if schedule.allows_fetch(now_ms):
            fetches += 1
            schedule.succeeded(now_ms, has_changed=False, was_scheduled=False)
    assert fetches <= 17  # 100 ms, 200 ms, … 10 s, then one in 10 s
    schedule.succeeded(200_000, has_changed=True, was_scheduled=False)
    assert schedule.allows_fetch(200_100)


def test_a_refused_client_acknowledges_the_error() -> None:
    reasons: list[str] = []
    validator = UnsecuredTokenValidator(UnsecuredRules(), lambda: 0)
    server = OAuthBearerServer(validator, reasons.append)
    challenge = server.step(b"n,,\x01auth=Bearer abc\x01\x01")
    assert challenge == b'{"status":"invalid_token"}'
    assert reasons
    with pytest.raises(Exception, match="invalid_token"):
        server.step(b"\x01")
    assert not server.done


def test_unsecured_tokens_name_their_user() -> None:
    validator = UnsecuredTokenValidator(UnsecuredRules(), lambda: 0)
    server = OAuthBearerServer(validator, lambda reason: None)
    token = unsigned({"alg": "none"}, {"sub": "ann", "exp": 60})
    assert server.step(f"n,,\x01auth=Bearer {token}\x01extra=value\x01\x01".encode()) == b""
    assert (server.principal_name, server.expires_ms) == ("ann", 60_000)
