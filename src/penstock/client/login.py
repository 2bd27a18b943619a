"""How a client proves who it is: SASL PLAIN and SCRAM, from its settings (X2, E3)."""

import base64
import binascii
import re
import secrets
from collections.abc import Callable
from hmac import compare_digest
from typing import Final, NamedTuple, Protocol

from penstock.client.errors import AuthenticationError, ConfigError
from penstock.client.settings import CommonOptions
from penstock.core.errors import KafkaError
from penstock.security.jaas import PLAIN_LOGIN_MODULE, SCRAM_LOGIN_MODULE, LoginModule, parse_jaas
from penstock.security.plain import PLAIN
from penstock.security.scram import encode_saslname
from penstock.security.scram_credential import (
    MIN_ITERATIONS,
    ScramMechanism,
    random_text,
    salted_password,
)

_MAX_ITERATIONS: Final = 1_000_000
"""A broker that asks for more work than this before it is trusted at all gets none."""

_MECHANISMS: Final = (PLAIN, *(mechanism.mechanism_name for mechanism in ScramMechanism))
_HEADER: Final = "n,,"
_VALUE: Final = r"[^,\0]+"
_SERVER_FIRST: Final = re.compile(
    rf"(?P<mandatory>m={_VALUE},)?r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>[A-Za-z0-9/+=]+),"
    rf"i=(?P<iterations>[1-9][0-9]{{0,9}})(?:,[A-Za-z]+={_VALUE})*"
)
_SERVER_FINAL: Final = re.compile(
    rf"(?:e=(?P<error>{_VALUE})|v=(?P<verifier>[A-Za-z0-9/+=]+))(?:,[A-Za-z]+={_VALUE})*"
)


class ClientLogin(Protocol):
    """One login on one connection: say `first`, then `next` to all that comes back, until None.

    AuthenticationError where the broker refuses, or does not know the password either.
    """

    mechanism: str
    user: str

    def first(self) -> bytes: ...

    def next(self, challenge: bytes) -> bytes | None: ...


class Account(NamedTuple):
    """A user with the password. The password is in no text that is made of it."""

    user: str
    password: str
    token: bool = False
    """Whether it is a delegation token, with its HMAC as the password."""

    def __repr__(self) -> str:
        return f"Account({self.user!r})"


class PlainLogin:
    """Sends the password as it is: only TLS keeps it secret."""

    mechanism = PLAIN

    def __init__(self, account: Account) -> None:
        self.user = account.user
        self._password = account.password

    def first(self) -> bytes:
        return f"\0{self.user}\0{self._password}".encode()

    def next(self, challenge: bytes) -> bytes | None:
        return None


class ScramLogin:
    """Proves to know the password without sending it, and wants the same proof of the broker."""

    def __init__(self, mechanism: ScramMechanism, account: Account, nonce: str) -> None:
        """`nonce` is fresh for each login: `random_text(secrets.randbits(130))`."""
        self.mechanism = mechanism.mechanism_name
        self.user = account.user
        self._hashes = mechanism
        self._password = account.password
        self._nonce = nonce
        token = ",tokenauth=true" if account.token else ""
        self._bare = f"n={encode_saslname(account.user)},r={nonce}{token}"
        self._signature: bytes | None = None
        self._done = False

    def first(self) -> bytes:
        return (_HEADER + self._bare).encode()

    def next(self, challenge: bytes) -> bytes | None:
        if self._done:
            raise self._failed("the broker goes on after the login has ended")
        try:
            message = challenge.decode()
        except UnicodeDecodeError:
            raise self._failed("the broker's message is not UTF-8") from None
        if self._signature is None:
            return self._proof(message)
        self._check_broker(message, self._signature)
        self._done = True
        return None

    def _proof(self, message: str) -> bytes:
        match = _SERVER_FIRST.fullmatch(message)
        if match is None:
            raise self._failed("the broker's first message cannot be read")
        if match["mandatory"]:
            raise self._failed("the broker wants an extension that this client does not have")
        nonce = match["nonce"]
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise self._failed("the broker's nonce does not go on from this client's")
        iterations = int(match["iterations"])
        if not MIN_ITERATIONS <= iterations <= _MAX_ITERATIONS:
            raise self._failed(
                f"the broker asks for {iterations} iterations, allowed are {MIN_ITERATIONS} to "
                f"{_MAX_ITERATIONS}: set the user's password again with as many"
            )
        hashes = self._hashes
        salted = salted_password(hashes, self._password, self._base64(match["salt"]), iterations)
        binding = base64.b64encode(_HEADER.encode()).decode()
        final = f"c={binding},r={nonce}"
        signed = f"{self._bare},{message},{final}".encode()
        client_key = hashes.hmac(salted, b"Client Key")
        signature = hashes.hmac(hashes.hash(client_key), signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._signature = hashes.hmac(hashes.hmac(salted, b"Server Key"), signed)
        return f"{final},p={base64.b64encode(proof).decode()}".encode()

    def _check_broker(self, message: str, expected: bytes) -> None:
        match = _SERVER_FINAL.fullmatch(message)
        if match is None:
            raise self._failed("the broker's last message cannot be read")
        if match["error"] is not None:
            raise self._failed(
                f"the broker says {match['error']}: check the user name and the password"
            )
        if not compare_digest(self._base64(match["verifier"]), expected):
            raise self._failed(
                "the broker does not know the password. Somebody may be posing as the broker: "
                "check bootstrap_servers, and use security_protocol=SASL_SSL"
            )

    def _base64(self, text: str) -> bytes:
        try:
            return base64.b64decode(text, validate=True)
        except binascii.Error:
            raise self._failed("the broker's message is not base64 where it must be") from None

    def _failed(self, reason: str) -> AuthenticationError:
        return AuthenticationError(
            f"the login of user {self.user} with {self.mechanism} failed: {reason}"
        )


def random_nonce() -> str:
    return random_text(secrets.randbits(130))


def login_of(
    settings: CommonOptions, nonce: Callable[[], str] = random_nonce
) -> Callable[[str], ClientLogin] | None:
    """What makes the login for a connection to a host; None where the protocol has no SASL.

    ConfigError where the settings are not enough for it.
    """
    if not settings["security_protocol"].startswith("SASL_"):
        return None
    name = settings["sasl_mechanism"].upper()
    if name not in _MECHANISMS:
        hint = " (Kafka's default)" if name == "GSSAPI" else ""
        raise ConfigError(
            f"sasl_mechanism={name}{hint} is not supported yet: set sasl_mechanism to one of "
            f"{', '.join(_MECHANISMS)}, and sasl_plain_username and sasl_plain_password"
        )
    mechanism = ScramMechanism.of_name(name)
    account = _account(settings, PLAIN_LOGIN_MODULE if mechanism is None else SCRAM_LOGIN_MODULE)
    if mechanism is None:
        return lambda host: PlainLogin(account)
    return lambda host: ScramLogin(mechanism, account, nonce())


def _account(settings: CommonOptions, module: str) -> Account:
    jaas = settings["sasl_jaas_config"]
    user, password = settings["sasl_plain_username"], settings["sasl_plain_password"]
    if jaas is not None:
        if user is not None or password is not None:
            raise ConfigError(
                "set sasl_jaas_config, or sasl_plain_username and sasl_plain_password, not both"
            )
        return _from_jaas(jaas, module)
    mechanism = settings["sasl_mechanism"]
    for setting, value in (("sasl_plain_username", user), ("sasl_plain_password", password)):
        if not value:
            raise ConfigError(f"{setting} is missing: sasl_mechanism={mechanism} needs it")
    return _checked(Account(user or "", password or ""), "sasl_plain_username/password")


def _from_jaas(text: str, expected: str) -> Account:
    module = _module(text)
    if module.name != expected:
        raise ConfigError(
            f"sasl_jaas_config has {module.name}, but sasl_mechanism needs {expected}: change one"
        )
    values = []
    for option in ("username", "password"):
        value = module.options.get(option)
        if not value:
            raise ConfigError(f'sasl_jaas_config has no {option}: write {option}="…" before the ;')
        values.append(value)
    token = module.options.get("tokenauth", "").lower() == "true"
    return _checked(Account(values[0], values[1], token), "sasl_jaas_config")


def _module(text: str) -> LoginModule:
    try:
        modules = parse_jaas(text)
    except KafkaError as error:
        message = error.message.replace("sasl.jaas.config", "sasl_jaas_config", 1)
        raise ConfigError(message) from None
    if len(modules) != 1:
        raise ConfigError(f"sasl_jaas_config has {len(modules)} login modules: one is expected")
    return modules[0]


def _checked(account: Account, setting: str) -> Account:
    try:
        encoded = (account.user + account.password).encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{setting}: user name or password is not valid Unicode") from None
    if b"\0" in encoded:
        raise ConfigError(f"{setting}: user name and password cannot have a NUL character")
    return account
