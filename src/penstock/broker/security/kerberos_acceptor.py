"""The server's side of Kerberos logins: the broker's keytab, and security contexts (X2)."""

import asyncio
from typing import Any

from penstock.core.errors import ErrorCode, KafkaError
from penstock.net.kerberos import (
    acquire_keys,
    default_realm,
    gss_error_text,
    load_gssapi,
    new_security_context,
)
from penstock.security.krb5_login import ANY_PRINCIPAL
from penstock.security.sasl.gssapi import GssError, KeytabSettings


class KeytabContext:
    """A security context that is accepted with the keys of a keytab."""

    def __init__(self, credentials: Any) -> None:
        self._gssapi = load_gssapi()
        self._credentials = credentials
        self._context: Any = None
        self._prepared: tuple[bytes, bytes | GssError] | None = None
        self.is_established = False
        self.client = ""

    async def prepare(self, token: bytes) -> None:
        # The library reads the keytab, and writes to its replay cache.
        self._prepared = await asyncio.to_thread(self._attempt, token)

    def accept(self, token: bytes) -> bytes:
        prepared, self._prepared = self._prepared, None
        if prepared is None or prepared[0] != token:
            prepared = self._attempt(token)
        answer = prepared[1]
        if isinstance(answer, GssError):
            raise answer
        self.is_established = bool(self._context.complete)
        if self.is_established:
            try:
                self.client = str(self._context.initiator_name)
            except UnicodeDecodeError:
                raise GssError("the name of the principal is not UTF-8") from None
        return answer

    def wrap(self, message: bytes) -> bytes:
        try:
            return bytes(self._context.wrap(message, False).message)
        except self._gssapi.exceptions.GSSError as error:
            raise GssError(gss_error_text(error)) from None

    def unwrap(self, message: bytes) -> bytes:
        try:
            return bytes(self._context.unwrap(message).message)
        except self._gssapi.exceptions.GSSError as error:
            raise GssError(gss_error_text(error)) from None

    def _attempt(self, token: bytes) -> tuple[bytes, bytes | GssError]:
        try:
            if self._context is None:
                self._context = new_security_context(creds=self._credentials, usage="accept")
            return token, self._context.step(token) or b""
        except self._gssapi.exceptions.GSSError as error:
            return token, GssError(gss_error_text(error))


class KeytabAcceptor:
    """Accepts security contexts with the keys of one principal in a keytab."""

    def __init__(self, settings: KeytabSettings) -> None:
        """Raises KafkaError if there is no library, no keytab, or no such principal in it."""
        gssapi = load_gssapi()
        try:
            with open(settings.keytab, "rb"):
                pass  # the library would only say that no key was found
            principal = None if settings.principal == ANY_PRINCIPAL else settings.principal
            self._credentials = acquire_keys(settings.keytab, principal)
        except OSError as error:
            raise _unusable(
                f"the keytab {settings.keytab} cannot be read ({error.strerror})",
                "correct keyTab, or let the user of the broker read the file",
            ) from None
        except gssapi.exceptions.GSSError as error:
            raise _unusable(
                f"the keytab {settings.keytab} has no keys of {settings.principal} "
                f"({gss_error_text(error)})",
                f"compare principal with klist -k {settings.keytab}",
            ) from None
        self.default_realm = default_realm()

    def new_context(self) -> KeytabContext:
        return KeytabContext(self._credentials)


def _unusable(cause: str, remedy: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_CONFIG, cause, subject="sasl.jaas.config of GSSAPI", remedy=remedy
    )
