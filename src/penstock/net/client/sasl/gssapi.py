"""SASL GSSAPI: logs in with a Kerberos ticket, from a keytab or the ticket cache (RFC 4752, X2)."""

import re
from collections.abc import Callable
from typing import Any, Final

from penstock.core.errors import KafkaError, nested_text
from penstock.net.client.errors import AuthenticationError, ConfigError, DisconnectError
from penstock.net.client.sasl.client import ClientMechanism, SaslClient, SaslSettings
from penstock.net.client.sasl.tickets import KerberosSettings, TicketSource
from penstock.net.kerberos import gss_error_text, is_kdc_away, load_gssapi, new_security_context
from penstock.security.jaas import KERBEROS_LOGIN_MODULE
from penstock.security.krb5_login import parse_krb5_login, service_name
from penstock.security.sasl.gssapi import GSSAPI, MAX_TOKEN_SIZE, NO_LAYER

DEFAULT_SERVICE_NAME: Final = "kafka"
_SETTING: Final = re.compile(r"`?sasl(?:\.[a-z]+)+`?")


class GssapiClient:
    """One security context with a broker, then the selection of no security layer."""

    mechanism = GSSAPI

    def __init__(self, tickets: TicketSource, service_name: str, host: str) -> None:
        self._tickets = tickets
        self._service = f"{service_name}@{host}"
        self._gssapi = load_gssapi()
        self._context: Any = None
        self._first_token = b""
        self._has_selected_layer = False
        self.user = "(no ticket)"

    def prepare(self) -> None:
        credentials = self._tickets.obtain()
        try:
            self.user = str(credentials.name)
            self._context = new_security_context(
                name=self._gssapi.Name(self._service, self._gssapi.NameType.hostbased_service),
                creds=credentials,
                mech=self._gssapi.MechType.kerberos,
                flags=self._gssapi.RequirementFlag.mutual_authentication
                | self._gssapi.RequirementFlag.integrity,
                usage="initiate",
            )
            self._first_token = self._context.step() or b""
        except self._gssapi.exceptions.GSSError as error:
            if is_kdc_away(error):
                raise DisconnectError(
                    f"{self.user} has a Kerberos ticket, but gets none for {self._service}: "
                    f"{gss_error_text(error)}"
                ) from None
            raise AuthenticationError(
                f"{self.user} gets no Kerberos ticket for {self._service.replace('@', '/', 1)}: "
                f"{gss_error_text(error)}",
                remedy="check `sasl_kerberos_service_name`, and that the broker's advertised host "
                "is the one in its principal",
            ) from None

    def initial_response(self) -> bytes:
        return self._first_token

    def evaluate_challenge(self, challenge: bytes) -> bytes | None:
        if self._has_selected_layer:
            return None
        if len(challenge) > MAX_TOKEN_SIZE:
            raise AuthenticationError(f"the broker sent a token of {len(challenge)} bytes")
        try:
            if not self._context.complete:
                return self._context.step(challenge) or b""
            return self._select_layer(bytes(self._context.unwrap(challenge).message))
        except self._gssapi.exceptions.GSSError as error:
            raise AuthenticationError(
                f"the broker's Kerberos token is not valid: {gss_error_text(error)}"
            ) from None

    def _select_layer(self, offer: bytes) -> bytes:
        if len(offer) != 4 or not offer[0] & NO_LAYER:
            raise AuthenticationError(
                "the broker requires a SASL security layer, which Kafka does not have"
            )
        self._has_selected_layer = True
        selection = bytes((NO_LAYER, 0, 0, 0)) + self.user.encode()
        return bytes(self._context.wrap(selection, False).message)


def _create(settings: SaslSettings) -> Callable[[str], SaslClient]:
    kerberos = settings.kerberos or KerberosSettings()
    if settings.username is not None:
        raise ConfigError(
            "`sasl_plain_username` is set, but `sasl_mechanism`=GSSAPI, its default, uses Kerberos "
            "tickets",
            remedy="set `sasl_mechanism` to PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512, or remove the "
            "user",
        )
    try:
        login = parse_krb5_login(settings.jaas_config)
        if kerberos.service_name is None and login.service_name is None:
            service = DEFAULT_SERVICE_NAME
        else:
            service = service_name(kerberos.service_name, login)
        tickets = TicketSource(login, kerberos.renewal)
    except KafkaError as error:
        cause = _SETTING.sub(_argument_name, nested_text(error))
        raise ConfigError(cause, remedy=_remedy(settings.jaas_config)) from None
    if login.keytab is not None:
        _check_keytab(login.keytab)
    return lambda host: GssapiClient(tickets, service, kerberos.domain_name or host)


def _remedy(jaas_config: str | None) -> str:
    if jaas_config is None or KERBEROS_LOGIN_MODULE in jaas_config:
        return ""  # the cause has its own
    return "set `sasl_mechanism` to the one of the login module: the default is GSSAPI"


def _check_keytab(keytab: str) -> None:
    # The library would only say that no ticket was found.
    try:
        with open(keytab, "rb"):
            pass
    except OSError as error:
        raise ConfigError(
            f"`sasl_jaas_config`: the keytab {keytab} cannot be read ({error.strerror})",
            remedy="correct keyTab, or let your user read the file",
        ) from None


def _argument_name(match: re.Match[str]) -> str:
    return f"`{match[0].strip('`').replace('.', '_')}`"


GSSAPI_MECHANISM: Final = ClientMechanism(GSSAPI, ("sasl_jaas_config",), _create)
