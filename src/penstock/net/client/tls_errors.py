"""Errors of TLS handshakes with brokers: the cause in plain words, and the remedy (E3)."""

import ssl
from typing import Final

from penstock.net.client.errors import AuthenticationError

_HOSTNAME_MISMATCH: Final = (62, 64)
_NOT_YET_VALID: Final = 9
_EXPIRED: Final = 10
_TRUST: Final = "`ssl_cafile`, `ssl_truststore_location` or `ssl_truststore_certificates`"
_OWN_CERTIFICATE: Final = "`ssl_certfile` and `ssl_keyfile`, or `ssl_keystore_location`"


def handshake_error(error: ssl.SSLError, address: str) -> AuthenticationError:
    """Returns the error for the user. Retrying does not help.

    With TLS 1.3 a broker rejects a client's certificate only after the handshake, so that this is
    also the reason why a connection was lost.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return _verification_error(error, address)
    # Errors that do not come from OpenSSL have no reason.
    reason: str = getattr(error, "reason", None) or str(error)
    return AuthenticationError(
        f"no TLS with broker {address} ({reason})", remedy=_handshake_remedy(reason)
    )


def _verification_error(error: ssl.SSLCertVerificationError, address: str) -> AuthenticationError:
    code, detail = error.verify_code, error.verify_message.rstrip(".")
    if code in _HOSTNAME_MISMATCH:
        problem = "not for this host"
        remedy = (
            "use a name that the certificate has in `bootstrap_servers` and in the broker's "
            "advertised.listeners, or switch the check off with "
            '`ssl_endpoint_identification_algorithm`=""'
        )
    elif code in (_NOT_YET_VALID, _EXPIRED):
        problem = "not valid now"
        remedy = "renew it, or set this machine's clock"
    else:
        problem = "not trusted"
        remedy = f"set {_TRUST} to the certificate of the authority that signed it"
    return AuthenticationError(
        f"the certificate of broker {address} is {problem} ({detail})", remedy=remedy
    )


def _handshake_remedy(reason: str) -> str:
    if "ALERT_CERTIFICATE_EXPIRED" in reason:
        return f"the client certificate has expired: renew it ({_OWN_CERTIFICATE})"
    if "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason):
        return (
            "the broker demands a client certificate that it trusts: set "
            f"{_OWN_CERTIFICATE} to one that an authority in the broker's ssl.truststore has signed"
        )
    if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNEXPECTED_EOF_WHILE_READING"):
        return (
            "this port does not speak TLS: set `security_protocol` to PLAINTEXT or "
            "SASL_PLAINTEXT, or use the port of a listener with SSL"
        )
    if "HANDSHAKE_FAILURE" in reason:
        return (
            "the broker gives no reason. Does it demand a client certificate (set "
            f"{_OWN_CERTIFICATE}), or do both sides have no cipher suite in common (compare "
            "`ssl_cipher_suites` with the broker's)?"
        )
    if "PROTOCOL" in reason or "CIPHER" in reason:
        return (
            "both sides have no version or cipher suite in common: compare "
            "`ssl_enabled_protocols` and `ssl_cipher_suites` with the broker's"
        )
    return "check that this port is a listener with SSL, and the ssl_ settings"
