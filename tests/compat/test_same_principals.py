"""Certificates have the names that Kafka gives them (X2)."""

from base64 import b64decode, b64encode
from itertools import product
from random import Random

import pytest
from cryptography import x509
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID, ObjectIdentifier

from penstock.core.errors import KafkaError
from penstock.net.tls.subject_names import subject_of
from penstock.security.principal import SslPrincipalMapper
from tests.support.broker.certificates import make_identity, simple_name
from tests.support.kafka.broker import JAVA_DIRECTORY, KafkaParts

pytestmark = pytest.mark.long

SEED = 18
ATTRIBUTES = (
    NameOID.COMMON_NAME,
    NameOID.ORGANIZATION_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
    NameOID.LOCALITY_NAME,
    NameOID.STATE_OR_PROVINCE_NAME,
    NameOID.STREET_ADDRESS,
    NameOID.DOMAIN_COMPONENT,
    NameOID.USER_ID,
    NameOID.EMAIL_ADDRESS,
    NameOID.SERIAL_NUMBER,
    NameOID.TITLE,
    NameOID.SURNAME,
    ObjectIdentifier("2.999.16384.3"),
    ObjectIdentifier("1.3.6.1.4.1.99999.1"),
)
VALUES = (
    "ann",
    "Ann Smith",
    "  two  spaces  ",
    " ",
    "a,b",
    "a+b=c",
    '"quoted"',
    "<tag>;x",
    "#hash",
    "a#b",
    "back\\slash",
    "slash/slash",
    "Müller",
    "ключ",
    "日本",
    "\U0001f511",
    "tab\tnewline\n",
    "nul\0nul",
    "del\x7f",
    "dollar$1",
    "a" * 64,
)
TYPES = (_ASN1Type.UTF8String, _ASN1Type.PrintableString, _ASN1Type.BMPString, _ASN1Type.T61String)

NAMES = (
    "CN=Duke,OU=ServiceUsers,O=Org,C=US",
    "cn=duke,ou=ServiceUsers",
    "CN=duke, OU=SME, O=mycp, L=Fulton, ST=MD, C=US",
    "CN=Doe\\, John+UID=jd,OU=a/b",
    "CN=\\ x\\ ,1.2.840.113549.1.9.1=#1603614062",
    "CN=İstanbul,OU=Straße,O=ǅ",
    "UID=a.b-c_d@x,DC=example,DC=com",
    "",
    "CN=$1\\\\,OU=x",
)
RULES = (
    "",
    "DEFAULT",
    " DEFAULT ",
    "DEFAULT,DEFAULT",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/U,DEFAULT",
    "RULE:^CN=(.*?), OU=(.*?), O=(.*?), L=(.*?), ST=(.*?), C=(.*?)$/$1@$2/L , DEFAULT",
    "RULE:^cn=(.*?),ou=(.*?)$/$1@$2/L,DEFAULT",
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,DEFAULT",
    "RULE:CN=(.*),OU=(.*)/$2$1$0/,DEFAULT",
    "RULE:CN=(.*),OU=a\\/b/$1\\/x/,DEFAULT",
    "RULE:^UID=(?<user>[^@]*)@.*$/${user}/U",
    "RULE:(.*)/$1$11$9/,DEFAULT",
    "RULE:(.*)/\\$1/L",
    "RULE:.*/a\\\\b/",
    "RULE:.*/const/,RULE:.*/other/",
    "RULE:^CN=.*$//L,DEFAULT",
    "RULE:.*/x/X",
    "RULE:.*/x",
    "RULE:([/x/",
    "RULE:(.*)/$2/",
    "RULE:(.*)/$/",
    "RULE:(.*)/${none}/",
    "rule:.*/x/",
    "nonsense",
    "DEFAULT, nonsense",
    "RULE:.*/x/LU",
    "RULE:.*/x/ L",
    "RULE:(?i)cn=(\\w+).*/$1/,DEFAULT",
    "RULE:CN=(\\w+)++,.*/$1/,DEFAULT",
    "RULE:[^,]*,([^,]*),?.*/$1/U,DEFAULT",
)


def encode(text: str) -> str:
    return b64encode(text.encode()).decode()


def ask_kafka(parts: KafkaParts, lines: list[str]) -> list[str | None]:
    run = parts.run(JAVA_DIRECTORY / "MapPrincipals.java", stdin="\n".join(lines) + "\n")
    return [
        b64decode(line[1:]).decode() if line.startswith(":") else None
        for line in run.stdout.splitlines()
    ]


def random_name(random: Random) -> x509.Name:
    parts = []
    for _ in range(random.randint(1, 5)):
        kinds = random.sample(ATTRIBUTES, random.choice((1, 1, 1, 2, 3)))
        parts.append(
            x509.RelativeDistinguishedName(
                x509.NameAttribute(
                    kind,
                    random.choice(VALUES),
                    _type=random.choice(TYPES),
                    _validate=False,
                )
                for kind in kinds
            )
        )
    return x509.Name(parts)


def certificates() -> list[bytes]:
    random, authority = Random(SEED), make_identity(simple_name("authority"))
    made: list[bytes] = []
    for attribute, value in product(ATTRIBUTES, VALUES):
        entry = x509.NameAttribute(attribute, value, _type=_ASN1Type.UTF8String, _validate=False)
        name = x509.Name([entry])
        made.append(make_identity(name, authority).der)
    while len(made) < 600:
        try:
            made.append(make_identity(random_name(random), authority).der)
        except (ValueError, UnicodeError):  # a value that the type cannot have
            continue
    return made


def test_distinguished_names_are_javas(kafka_parts: KafkaParts) -> None:
    made = certificates()
    theirs = ask_kafka(kafka_parts, [f"SUBJECT {b64encode(der).decode()}" for der in made])
    pairs = zip(map(subject_of, made), theirs, strict=True)
    assert [(ours, javas) for ours, javas in pairs if ours != javas] == []


def test_mapped_names_are_kafkas(kafka_parts: KafkaParts) -> None:
    cases = list(product(RULES, NAMES))
    theirs = ask_kafka(kafka_parts, [f"MAP {encode(rule)} {encode(name)}" for rule, name in cases])
    ours: list[str | None] = []
    for rules, name in cases:
        try:
            ours.append(SslPrincipalMapper(rules).name(name))
        except KafkaError:
            ours.append(None)
    different = {
        case: (own, kafkas)
        for case, own, kafkas in zip(cases, ours, theirs, strict=True)
        if own != kafkas
    }
    assert different == {}
