"""GSSAPI in clients, with a Kerberos library made of scripted parts: layers and renewal (X2)."""

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.net.client.errors import AuthenticationError, ConfigError, DisconnectError
from penstock.net.client.sasl import gssapi as client_module
from penstock.net.client.sasl import tickets as tickets_module
from penstock.net.client.sasl.client import SaslSettings
from penstock.net.client.sasl.gssapi import GssapiClient
from penstock.net.client.sasl.mechanisms import login_factory
from penstock.net.client.sasl.tickets import KerberosSettings, TicketRenewal, TicketSource
from penstock.security.jaas import KERBEROS_LOGIN_MODULE, PLAIN_LOGIN_MODULE
from penstock.security.krb5_login import Krb5Login
from penstock.security.sasl.gssapi import MAX_TOKEN_SIZE

KEYTAB_LOGIN = Krb5Login("/ann.keytab", "ann", uses_cache=False)


class GSSError(Exception):
    min_code = 0


class KdcAwayError(GSSError):
    min_code = 2529639068  # KRB5_KDC_UNREACH


class ScriptedContext:
    """Wraps messages in brackets, and is complete after one token of the broker."""

    complete = False

    def step(self, token: bytes | None = None) -> bytes | None:
        if token is None:
            return b"ticket"
        if token != b"ap-rep":
            raise GSSError("not the broker's token")
        self.complete = True
        return None

    def wrap(self, message: bytes, encrypt: bool) -> SimpleNamespace:
        assert not encrypt
        return SimpleNamespace(message=b"[" + message + b"]")

    def unwrap(self, message: bytes) -> SimpleNamespace:
        if message[:1] + message[-1:] != b"[]":
            raise GSSError("the signature is wrong")
        return SimpleNamespace(message=message[1:-1])


class ScriptedLibrary(SimpleNamespace):
    """Issues tickets that live for 100 s, or none while `fails`."""

    def __init__(self) -> None:
        super().__init__(
            exceptions=SimpleNamespace(GSSError=GSSError),
            NameType=SimpleNamespace(kerberos_principal=1, hostbased_service=2),
            MechType=SimpleNamespace(kerberos=1),
            RequirementFlag=SimpleNamespace(mutual_authentication=2, integrity=32),
            Name=lambda name, kind: name,
            Credentials=self._acquire,
            acquired=[],
            failing=set(),
            failure=GSSError("no such client"),
        )

    def _acquire(self, **options: Any) -> SimpleNamespace:
        store = options["store"] or {}
        if ("client_keytab" if "client_keytab" in store else "cache") in self.failing:
            raise self.failure
        self.acquired.append(store)
        return SimpleNamespace(name="ann@REALM", lifetime=100, number=len(self.acquired))


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> ScriptedLibrary:
    scripted = ScriptedLibrary()
    for module in (client_module, tickets_module):
        monkeypatch.setattr(module, "load_gssapi", lambda: scripted)
        monkeypatch.setattr(module, "gss_error_text", str)
    monkeypatch.setattr(tickets_module, "acquire_keys", lambda keytab, principal: None)
    monkeypatch.setattr(client_module, "new_security_context", lambda **_: ScriptedContext())
    return scripted


@pytest.fixture
def client(library: ScriptedLibrary) -> GssapiClient:
    """A login whose security context is established."""
    login = GssapiClient(TicketSource(KEYTAB_LOGIN, TicketRenewal()), "kafka", "b")
    login.prepare()
    assert login.initial_response() == b"ticket"
    assert login.evaluate_challenge(b"ap-rep") == b""
    return login


@pytest.mark.parametrize("offer", [b"\x01\0\0\0", b"\x07\0\0\0", b"\x01\x01\0\0"])
def test_a_client_selects_no_security_layer(client: GssapiClient, offer: bytes) -> None:
    """The size that Java's server offers beside no layer means nothing."""
    assert client.evaluate_challenge(b"[" + offer + b"]") == b"[\x01\0\0\0ann@REALM]"
    assert client.evaluate_challenge(b"") is None


@pytest.mark.parametrize(
    ("challenge", "message"),
    [
        (b"[\x06\0\0\0]", "requires a SASL security layer"),
        (b"[\x01\0\0]", "requires a SASL security layer"),
        (b"[\x01\0\0\0\0]", "requires a SASL security layer"),
        (b"[\x01\0\0\0", "token is not valid: the signature is wrong"),
        (b"x" * (MAX_TOKEN_SIZE + 1), "a token of 65537 bytes"),
    ],
)
def test_a_client_refuses_other_offers(
    client: GssapiClient, challenge: bytes, message: str
) -> None:
    with pytest.raises(AuthenticationError, match=message):
        client.evaluate_challenge(challenge)


def test_a_broker_that_cannot_prove_its_key_is_refused(library: ScriptedLibrary) -> None:
    login = GssapiClient(TicketSource(KEYTAB_LOGIN, TicketRenewal()), "kafka", "b")
    login.prepare()
    with pytest.raises(AuthenticationError, match="token is not valid: not the broker's token"):
        login.evaluate_challenge(b"forged")


def new_source(times: list[float], login: Krb5Login = KEYTAB_LOGIN) -> TicketSource:
    renewal = TicketRenewal(0.8, 0.0, min_time_before_relogin_ms=5_000)
    return TicketSource(login, renewal, lambda: times[-1])


def test_a_ticket_is_replaced_when_its_renewal_is_due(library: ScriptedLibrary) -> None:
    times = [0.0]
    source = new_source(times)
    for now, number in [(0.0, 1), (79.0, 1), (80.0, 2), (159.0, 2), (300.0, 3)]:
        times.append(now)
        assert source.obtain().number == number
    caches = [store["ccache"] for store in library.acquired]
    assert len(set(caches)) == 3
    assert all(cache.startswith("MEMORY:") for cache in caches)


def test_a_valid_ticket_is_kept_while_the_kdc_is_away(library: ScriptedLibrary) -> None:
    times = [0.0]
    source = new_source(times)
    source.obtain()
    library.failing = {"client_keytab"}
    times.append(85.0)
    assert source.obtain().number == 1
    library.failing = set()
    times.append(89.0)  # too soon after the last attempt
    assert source.obtain().number == 1
    times.append(90.0)
    assert source.obtain().number == 2
    times.append(187.0)  # near its end, each login tries
    assert source.obtain().number == 3
    library.failing = {"client_keytab"}
    times.append(287.0)
    with pytest.raises(AuthenticationError, match="no Kerberos ticket: no such client; check"):
        source.obtain()


def test_connecting_is_retried_while_the_kdc_is_away(library: ScriptedLibrary) -> None:
    """A client that has logged in before waits for the KDC; one that starts says so at once."""
    library.failing, library.failure = {"client_keytab"}, KdcAwayError("no KDC")
    times = [0.0]
    source = new_source(times)
    with pytest.raises(AuthenticationError, match="no Kerberos ticket: no KDC"):
        source.obtain()
    library.failing = set()
    source.obtain()
    library.failing = {"client_keytab"}
    times.append(100.0)
    with pytest.raises(DisconnectError, match="the Kerberos ticket has expired: no KDC"):
        source.obtain()


def test_a_cache_is_read_for_each_login_and_a_keytab_used_without_one(
    library: ScriptedLibrary,
) -> None:
    cached = new_source([0.0], Krb5Login(cache="FILE:/tickets"))
    cached.obtain()
    cached.obtain()
    assert library.acquired == [{"ccache": "FILE:/tickets"}] * 2
    library.failing = {"cache"}
    with pytest.raises(AuthenticationError, match="run kinit"):
        cached.obtain()
    both = new_source([0.0], KEYTAB_LOGIN._replace(uses_cache=True))
    both.obtain()
    assert library.acquired[-1]["client_keytab"] == "FILE:/ann.keytab"


@pytest.mark.parametrize(
    ("options", "service", "message"),
    [
        ("useKeyTab=true", None, "useKeyTab=true, but no keyTab; add"),
        ('useKeyTab=true keyTab="/no/file"', None, "a keyTab, but no principal"),
        (
            'useKeyTab=true keyTab="/no/file" principal=ann',
            None,
            "keytab /no/file cannot be read .No such file",
        ),
        ("principal=ann", None, "neither useKeyTab=true nor useTicketCache=true"),
        ("useTicketCache=true serviceName=shop", "kafka", "is kafka, but serviceName in"),
    ],
)
def test_invalid_settings_are_refused(
    library: ScriptedLibrary, options: str, service: str | None, message: str
) -> None:
    settings = SaslSettings(
        "GSSAPI",
        jaas_config=f"{KERBEROS_LOGIN_MODULE} required {options};",
        kerberos=KerberosSettings(service),
    )
    with pytest.raises(ConfigError, match=message) as caught:
        login_factory(settings)
    assert "sasl_" in caught.value.message
    assert "sasl.jaas" not in caught.value.message


def test_a_user_name_needs_another_mechanism(library: ScriptedLibrary) -> None:
    """GSSAPI is the default, so `sasl_mechanism` may have been forgotten."""
    with pytest.raises(ConfigError, match=r"sasl_plain_username is set.*set sasl_mechanism to"):
        login_factory(SaslSettings("GSSAPI", username="ann", password="secret"))
    plain = f'{PLAIN_LOGIN_MODULE} required username="ann" password="secret";'
    with pytest.raises(ConfigError, match=r"must be .*Krb5LoginModule.*; set sasl_mechanism to"):
        login_factory(SaslSettings("GSSAPI", jaas_config=plain))
