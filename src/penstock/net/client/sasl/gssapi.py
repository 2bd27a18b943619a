"""SASL GSSAPI: logs in with a Kerberos ticket, from a keytab or the ticket cache (RFC 4752, X2)."""

import itertools
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from penstock.core.errors import KafkaError, nested_text
from penstock.net.client.errors import AuthenticationError, ConfigError
from penstock.net.client.sasl.client import ClientMechanism, SaslClient, SaslSettings
from penstock.net.kerberos import gss_error_text, load_gssapi, new_security_context
from penstock.security.jaas import KERBEROS_LOGIN_MODULE, login_module
from penstock.security.sasl.gssapi import GSSAPI, MAX_TOKEN_SIZE, NO_LAYER

DEFAULT_SERVICE_NAME: Final = "kafka"
_MIN_LIFETIME_S: Final = 60
"""Tickets with less time left are replaced."""

_cache_numbers = itertools.count(1)


class TicketSource:
    """The credentials of a client, which all its connections share."""

    def __init__(self, keytab: str | None, principal: str | None, cache: str | None) -> None:
        """With a keytab, tickets are obtained with its key; otherwise they are in a cache."""
        self._gssapi = load_gssapi()
        self._keytab = keytab
        self._principal = principal
        self._cache = cache
        self._lock = threading.Lock()
        self._credentials: Any = None

    def obtain(self) -> Any:
        """Returns credentials that are valid for some time. Blocks: it may ask the KDC."""
        with self._lock:
            if self._keytab is None or not self._is_valid():
                self._credentials = self._acquire()
            return self._credentials

    def _is_valid(self) -> bool:
        if self._credentials is None:
            return False
        try:
            # None is an unlimited lifetime.
            lifetime = self._credentials.lifetime
        except self._gssapi.exceptions.GSSError:
            return False
        return lifetime is None or bool(lifetime > _MIN_LIFETIME_S)

    def _acquire(self) -> Any:
        store: dict[str, str] = {}
        if self._keytab is not None:
            store["client_keytab"] = f"FILE:{self._keytab}"
            # A new cache each time, because the old one has the expired ticket.
            store["ccache"] = f"MEMORY:penstock-{next(_cache_numbers)}"
        elif self._cache is not None:
            store["ccache"] = self._cache
        name = None
        if self._principal is not None:
            name = self._gssapi.Name(self._principal, self._gssapi.NameType.kerberos_principal)
        return self._gssapi.Credentials(
            usage="initiate",
            name=name,
            mechs=[self._gssapi.MechType.kerberos],
            store=store or None,
        )

    @property
    def remedy(self) -> str:
        if self._keytab is not None:
            return (
                f"check the principal and the keytab {self._keytab} with kinit -k -t, and the KDC "
                "in krb5.conf"
            )
        return "run kinit, or name a keytab and a principal in `sasl_jaas_config`"


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
        try:
            credentials = self._tickets.obtain()
            self.user = str(credentials.name)
        except self._gssapi.exceptions.GSSError as error:
            raise AuthenticationError(
                f"there is no Kerberos ticket: {gss_error_text(error)}",
                remedy=self._tickets.remedy,
            ) from None
        try:
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


def _jaas_options(text: str | None) -> Mapping[str, str]:
    if not text:
        return {}
    try:
        return login_module(text, KERBEROS_LOGIN_MODULE).options
    except KafkaError as error:
        message = error.message.replace("sasl.jaas.config", "`sasl_jaas_config`", 1)
        raise ConfigError(message) from None


def _ticket_source(options: Mapping[str, str]) -> TicketSource:
    keytab = options.get("keyTab", "").removeprefix("FILE:") or None
    principal = options.get("principal") or None
    if keytab is not None and options.get("useKeyTab", "true").lower() == "true":
        if principal is None:
            raise ConfigError(
                "`sasl_jaas_config` has a keyTab but no principal",
                remedy='write principal="…" before the ;',
            )
        if not Path(keytab).is_file():
            raise ConfigError(
                f"`sasl_jaas_config`: the keytab {keytab} does not exist", remedy="correct keyTab"
            )
    else:
        keytab = None
    try:
        return TicketSource(keytab, principal, options.get("ticketCache") or None)
    except KafkaError as error:
        raise ConfigError(nested_text(error)) from None


def _create(settings: SaslSettings) -> Callable[[str], SaslClient]:
    options = _jaas_options(settings.jaas_config)
    service_name = (
        settings.kerberos_service_name or options.get("serviceName") or DEFAULT_SERVICE_NAME
    )
    tickets = _ticket_source(options)
    return lambda host: GssapiClient(
        tickets, service_name, settings.kerberos_domain_name or host
    )


GSSAPI_MECHANISM: Final = ClientMechanism(GSSAPI, ("sasl_jaas_config",), _create)
