"""What the mechanisms of SASL have in common on the server's side (X2)."""

from typing import Protocol

from penstock.core.errors import ErrorCode, KafkaError


class SaslServer(Protocol):
    """One log-in of one client: feed it what the client sends until it is done.

    `step` returns what to send back. It raises `SASL_AUTHENTICATION_FAILED` where the client is
    refused; the machine is of no use afterwards, and neither is it once it is done.
    """

    @property
    def mechanism(self) -> str: ...

    @property
    def done(self) -> bool: ...

    @property
    def principal_name(self) -> str:
        """Who logged in; only when done."""
        ...

    def step(self, response: bytes) -> bytes: ...


def refused(message: str) -> KafkaError:
    """The client is not let in. The message reaches it: it must not tell which users exist."""
    return KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, message)


def bad_credentials(mechanism: str) -> KafkaError:
    """The one answer to an unknown user and to a wrong password."""
    return refused(
        f"authentication failed: wrong user name or password (SASL mechanism {mechanism})"
    )


def illegal_state(mechanism: str) -> KafkaError:
    """Something came after the exchange had ended."""
    return KafkaError(
        ErrorCode.ILLEGAL_SASL_STATE,
        f"the {mechanism} exchange has already ended; open a new connection to log in again",
    )


def not_done(mechanism: str) -> KafkaError:
    """The name was asked for too early."""
    return KafkaError(
        ErrorCode.ILLEGAL_SASL_STATE, f"the {mechanism} exchange has not ended, so nobody logged in"
    )
