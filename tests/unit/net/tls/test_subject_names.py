"""Names in certificates, as Kafka shows them."""

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID, ObjectIdentifier

from penstock.net.tls.subject_names import subject_of
from tests.support.broker.certificates import make_identity

A = x509.NameAttribute
R = x509.RelativeDistinguishedName


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            x509.Name(
                [
                    A(NameOID.COUNTRY_NAME, "DE"),
                    A(NameOID.STATE_OR_PROVINCE_NAME, "Hessen"),
                    A(NameOID.LOCALITY_NAME, "Frankfurt"),
                    A(NameOID.STREET_ADDRESS, "Ring 1"),
                    A(NameOID.ORGANIZATION_NAME, "Example, Inc."),
                    A(NameOID.ORGANIZATIONAL_UNIT_NAME, "Müller & Söhne"),
                    A(NameOID.DOMAIN_COMPONENT, "example"),
                    A(NameOID.USER_ID, "u1"),
                    A(NameOID.COMMON_NAME, 'a+b=c;<d>#"\\'),
                ]
            ),
            'CN=a\\+b\\=c\\;\\<d\\>\\#\\"\\\\,UID=u1,DC=example,OU=Müller & Söhne,'
            "O=Example\\, Inc.,STREET=Ring 1,L=Frankfurt,ST=Hessen,C=DE",
        ),
        (
            x509.Name([A(NameOID.EMAIL_ADDRESS, "a@b"), A(NameOID.COMMON_NAME, " x y ")]),
            "CN=\\ x y\\ ,1.2.840.113549.1.9.1=#1603614062",
        ),
        (
            x509.Name([A(ObjectIdentifier("2.999.16384.3"), "x"), A(NameOID.COMMON_NAME, "  ")]),
            "CN=\\ \\ ,2.999.16384.3=#0c0178",
        ),
        (
            x509.Name([R([A(NameOID.COMMON_NAME, "x"), A(NameOID.USER_ID, "y")])]),
            "CN=x+UID=y",
        ),
        (x509.Name([A(NameOID.COMMON_NAME, "n" * 60)] * 3), ",".join(["CN=" + "n" * 60] * 3)),
        (x509.Name([]), ""),
    ],
)
def test_the_subject_in_the_form_of_rfc_2253(name: x509.Name, expected: str) -> None:
    """X2: the name that ssl.principal.mapping.rules and ACLs are written for."""
    assert subject_of(make_identity(name).der) == expected
