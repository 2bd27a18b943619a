"""The names in a listener's own certificate, which a new one must keep (X2)."""

import re
import ssl
from typing import Final, NamedTuple

from penstock.net.tls.key_stores import invalid, with_lines
from penstock.net.tls.settings import TlsSettings, read_own_key
from penstock.net.tls.subject_names import alternative_names_of, subject_of

_CERTIFICATE: Final = re.compile(
    rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL
)


class OwnCertificate(NamedTuple):
    """What clients and other brokers recognise a listener by."""

    subject: str
    alternative_names: frozenset[bytes]
    """GeneralNames in DER."""


def own_certificate(settings: TlsSettings) -> OwnCertificate | None:
    """Returns the names in the certificate of the key store; None if there is no certificate.

    Raises KafkaError if the key store cannot be read.
    """
    key = read_own_key(settings)
    match = None if key is None else _CERTIFICATE.search(with_lines(key.pem))
    if match is None:
        return None
    der = ssl.PEM_cert_to_DER_cert(match[0].decode("ascii"))
    return OwnCertificate(subject_of(der), alternative_names_of(der))


def check_names_are_kept(
    old: OwnCertificate, new: OwnCertificate, *, dn_may_change: bool, san_may_change: bool
) -> None:
    """Raises KafkaError if the new certificate has other names, and they may not change.

    As Kafka does: brokers and clients may know the broker by its distinguished name, and
    alternative names that are missing would cut off clients that connect by them.
    """
    if not dn_may_change and _canonical(old.subject) != _canonical(new.subject):
        raise invalid(
            f"the new certificate is for {new.subject}, the one in use for {old.subject}: use one "
            "with the same distinguished name, or set ssl.allow.dn.changes=true"
        )
    if not san_may_change and not old.alternative_names <= new.alternative_names:
        raise invalid(
            "the new certificate lacks subject alternative names of the one in use: use one that "
            "has them, or set ssl.allow.san.changes=true"
        )


def _canonical(subject: str) -> str:
    return re.sub(r"\s+", " ", subject).casefold()
