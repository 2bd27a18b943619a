"""The Kerberos tickets of a client: obtained with a keytab, or found in the ticket cache (X2)."""

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

from penstock.net.client.errors import AuthenticationError, ClientError, DisconnectError
from penstock.net.kerberos import acquire_keys, gss_error_text, is_kdc_away, load_gssapi
from penstock.security.krb5_login import Krb5Login


@dataclass(frozen=True, slots=True)
class TicketRenewal:
    """When a client with a keytab obtains its next ticket; Kafka's `sasl.kerberos.…` settings."""

    window_factor: float = 0.8
    """The part of its life after which a ticket is replaced."""
    jitter: float = 0.05
    """The random addition to it, as a part of the life."""
    min_time_before_relogin_ms: int = 60_000


@dataclass(frozen=True, slots=True)
class KerberosSettings:
    service_name: str | None = None
    """The first part of the brokers' principals; if None, that of the JAAS configuration."""
    domain_name: str | None = None
    """The host in the brokers' principals; if None, the host of each connection."""
    renewal: TicketRenewal = field(default_factory=TicketRenewal)


@dataclass(frozen=True, slots=True)
class _Ticket:
    credentials: Any
    renewal_s: float
    """When the next one is due."""
    expiry_s: float


_NO_LIMIT: Final = float("inf")


class TicketSource:
    """The credentials of a client, which all its connections share.

    There is no thread that renews them: a ticket is only needed to log in on a new connection, so
    each login obtains the next ticket if it is due. A ticket cache is read for each login, because
    others renew its tickets.
    """

    def __init__(
        self,
        login: Krb5Login,
        renewal: TicketRenewal,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises KafkaError if the Kerberos library is not installed."""
        self._gssapi = load_gssapi()
        self._login = login
        self._renewal = renewal
        self._monotonic_s = monotonic_s
        self._jitter = random.random()
        self._lock = threading.Lock()
        self._ticket: _Ticket | None = None
        self._memory_cache = _new_memory_cache()
        self._last_login_s = -_NO_LIMIT

    def obtain(self) -> Any:
        """Returns credentials that have not expired. Blocks: it may ask the KDC.

        Raises AuthenticationError if there are none; DisconnectError if there were some before and
        the KDC cannot be asked now.
        """
        with self._lock:
            if self._login.keytab is None:
                return self._from_cache()
            if self._login.uses_cache:
                try:
                    return self._from_cache()
                except AuthenticationError:
                    pass  # like Java, the keytab is for when the cache has no ticket
            return self._from_keytab(self._login.keytab)

    def _from_cache(self) -> Any:
        store = None if self._login.cache is None else {"ccache": self._login.cache}
        try:
            credentials = self._acquire(store)
            _ = credentials.lifetime  # raises an error if they have expired
        except self._gssapi.exceptions.GSSError as error:
            raise AuthenticationError(
                f"there is no Kerberos ticket: {gss_error_text(error)}",
                remedy="run kinit, or name a keytab and a principal in `sasl_jaas_config`",
            ) from None
        return credentials

    def _from_keytab(self, keytab: str) -> Any:
        now_s = self._monotonic_s()
        ticket = self._ticket
        if ticket is not None and not self._is_due(ticket, now_s):
            return ticket.credentials
        self._last_login_s = now_s
        try:
            credentials = self._acquire(
                {"client_keytab": f"FILE:{keytab}", "ccache": self._memory_cache}
            )
            lifetime_s = credentials.lifetime
        except self._gssapi.exceptions.GSSError as error:
            if ticket is not None and now_s < ticket.expiry_s:
                return ticket.credentials  # the KDC may be back before it expires
            raise self._refused_keytab(keytab, error) from None
        # The library would take the next ticket from the cache of this one.
        self._memory_cache = _new_memory_cache()
        self._ticket = self._new_ticket(credentials, now_s, lifetime_s)
        return credentials

    def _refused_keytab(self, keytab: str, error: Exception) -> ClientError:
        reason = gss_error_text(error)
        if self._ticket is not None and is_kdc_away(error):
            return DisconnectError(f"the Kerberos ticket has expired: {reason}")
        try:
            acquire_keys(keytab, self._login.principal)
        except self._gssapi.exceptions.GSSError:
            # The library has tried its ticket cache then, and complains about that.
            reason = f"the keytab {keytab} has no keys of {self._login.principal}"
        return AuthenticationError(
            f"there is no Kerberos ticket: {reason}",
            remedy=f"check the principal and the keytab with kinit -k -t {keytab}, and the KDC in "
            "krb5.conf",
        )

    def _new_ticket(self, credentials: Any, now_s: float, lifetime_s: float | None) -> _Ticket:
        if lifetime_s is None:
            return _Ticket(credentials, _NO_LIMIT, _NO_LIMIT)
        renewal = self._renewal
        window = renewal.window_factor + renewal.jitter * self._jitter
        return _Ticket(credentials, now_s + lifetime_s * min(window, 1.0), now_s + lifetime_s)

    def _is_due(self, ticket: _Ticket, now_s: float) -> bool:
        """Returns whether to obtain the next ticket now: not too often, unless this one would
        expire meanwhile, like Kafka."""
        min_time_s = self._renewal.min_time_before_relogin_ms / 1000
        return now_s >= ticket.renewal_s and (
            now_s - self._last_login_s >= min_time_s or ticket.expiry_s - now_s < min_time_s
        )

    def _acquire(self, store: dict[str, str] | None) -> Any:
        name = None
        if self._login.principal is not None:
            kind = self._gssapi.NameType.kerberos_principal
            name = self._gssapi.Name(self._login.principal, kind)
        return self._gssapi.Credentials(
            usage="initiate", name=name, mechs=[self._gssapi.MechType.kerberos], store=store
        )


def _new_memory_cache() -> str:
    return f"MEMORY:penstock-{uuid4().hex}"
