"""What it means when there is no TLS with a broker, and what to do about it (E3)."""

import ssl
from typing import Final

from penstock.client.errors import AuthenticationError

_HOSTNAME_MISMATCH: Final = (62, 64)
_NOT_YET_VALID: Final = 9
_EXPIRED: Final = 10
_TRUST: Final = "ssl_cafile, ssl_truststore_location or ssl_truststore_certificates"
_OWN_CERTIFICATE: Final = "ssl_certfile and ssl_keyfile, or ssl_keystore_location"


def handshake_failure(error: ssl.SSLError, address: str) -> AuthenticationError:
    """The error for the user. Trying again does not help.

    With TLS 1.3 the broker refuses a client's certificate only after the handshake: then this is
    the reason why the connection was lost.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return AuthenticationError(_untrusted(error, address))
    return AuthenticationError(_no_tls(error, address))


def _untrusted(error: ssl.SSLCertVerificationError, address: str) -> str:
    code, said = error.verify_code, error.verify_message.rstrip(".")
    if code in _HOSTNAME_MISMATCH:
        return (
            f"the certificate of broker {address} is not for this host ({said}): use a name that "
            "the certificate has in bootstrap_servers and in the broker's advertised.listeners, "
            'or switch the check off with ssl_endpoint_identification_algorithm=""'
        )
    if code in (_NOT_YET_VALID, _EXPIRED):
        return (
            f"the certificate of broker {address} is not valid now ({said}): renew it, or set this "
            "machine's clock"
        )
    return (
        f"the certificate of broker {address} is not trusted ({said}): set {_TRUST} to the "
        "certificate of the authority that signed it"
    )


def _no_tls(error: ssl.SSLError, address: str) -> str:
    # Those that OpenSSL did not make have no reason.
    reason: str = getattr(error, "reason", None) or str(error)
    start = f"no TLS with broker {address} ({reason})"
    if "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason):
        return (
            f"{start}: the broker wants a certificate of this client that it trusts: set "
            f"{_OWN_CERTIFICATE} to one that an authority in the broker's ssl.truststore has signed"
        )
    if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNEXPECTED_EOF_WHILE_READING"):
        return (
            f"{start}: this port does not speak TLS: set security_protocol to PLAINTEXT or "
            "SASL_PLAINTEXT, or use the port of a listener with SSL"
        )
    if "HANDSHAKE_FAILURE" in reason:
        return (
            f"{start}: the broker gives no reason. Does it want a certificate of this client (set "
            f"{_OWN_CERTIFICATE}), or is there no cipher suite that both sides have (compare "
            "ssl_cipher_suites with the broker's)?"
        )
    if "PROTOCOL" in reason or "CIPHER" in reason:
        return (
            f"{start}: both sides have no version or cipher suite in common: compare "
            "ssl_enabled_protocols and ssl_cipher_suites with the broker's"
        )
    return f"{start}: check that this port is a listener with SSL, and the ssl_ settings"
