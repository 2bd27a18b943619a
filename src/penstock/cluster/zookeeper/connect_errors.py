"""Why a connection to ZooKeeper failed, and what to do about it."""

import ssl
from typing import Final, NamedTuple

_HOSTNAME_MISMATCH: Final = (62, 64)
_INVALID_TIMES: Final = (9, 10)
_NOT_TLS: Final = (
    "WRONG_VERSION_NUMBER",
    "RECORD_LAYER_FAILURE",
    "UNEXPECTED_EOF_WHILE_READING",
)


class ConnectFailure(NamedTuple):
    """The reason of the last failure, with the server's address, and the remedy."""

    reason: str
    remedy: str


NO_RESPONSE: Final = ConnectFailure(
    "no response in time", "check zookeeper.connect and that a majority of the servers is up"
)


def explain_failure(address: str, error: BaseException, *, uses_tls: bool) -> ConnectFailure:
    """Finds the error of TLS among the causes, if there is one."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return ConnectFailure(f"{address}: {_reason(cause)}", _tls_remedy(cause))
        cause = cause.__cause__ or cause.__context__
    remedy = NO_RESPONSE.remedy
    if not uses_tls and "broken" in str(error):
        remedy = (
            "if this is the port for TLS (secureClientPort), set zookeeper.ssl.client.enable=true"
        )
    return ConnectFailure(f"{address}: {error}", remedy)


def _reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message.rstrip('.')}"
    return getattr(error, "reason", None) or str(error)


def _tls_remedy(error: ssl.SSLError) -> str:
    reason = _reason(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _HOSTNAME_MISMATCH:
            return (
                "use a name that the certificate has in zookeeper.connect, or set "
                "zookeeper.ssl.endpoint.identification.algorithm to nothing"
            )
        if error.verify_code in _INVALID_TIMES:
            return "renew ZooKeeper's certificate, or set this machine's clock"
        return "set zookeeper.ssl.truststore.location to the authority of ZooKeeper's certificate"
    if "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason):
        return "set zookeeper.ssl.keystore.location to a certificate that ZooKeeper trusts"
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError) or reason in _NOT_TLS:
        return "use ZooKeeper's secureClientPort, or set zookeeper.ssl.client.enable=false"
    return "check zookeeper.ssl.enabled.protocols and zookeeper.ssl.cipher.suites"
