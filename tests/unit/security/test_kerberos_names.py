"""Names of Kerberos principals and `sasl.kerberos.principal.to.local.rules` (X2)."""

import pytest

from penstock.core.errors import ErrorCode, KafkaError
from penstock.security.kerberos_names import (
    KerberosName,
    PrincipalRules,
    parse_kerberos_name,
)


def user(principal: str, *rules: str) -> str:
    return PrincipalRules(rules, "REALM.COM").user_name(principal)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ann@REALM.COM", KerberosName("ann", None, "REALM.COM")),
        ("kafka/host.com@REALM.COM", KerberosName("kafka", "host.com", "REALM.COM")),
        ("ann", KerberosName("ann", None, None)),
        ("a/b/c", KerberosName("a/b/c", None, None)),
    ],
)
def test_names_are_taken_apart(text: str, expected: KerberosName) -> None:
    assert parse_kerberos_name(text) == expected
    assert str(expected) == text


@pytest.mark.parametrize("text", ["a/b/c@REALM.COM", "a@b@c", "@a/b"])
def test_malformed_names_are_refused(text: str) -> None:
    with pytest.raises(KafkaError, match="malformed") as caught:
        parse_kerberos_name(text)
    assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize(
    ("rules", "principal", "expected"),
    [
        ((), "ann@REALM.COM", "ann"),
        (("DEFAULT",), "kafka/host.com@REALM.COM", "kafka"),
        (("DEFAULT",), "ann", "ann"),
        (("RULE:[1:$1](App\\..*)s/App\\.(.*)/$1/g", "DEFAULT"), "App.shop@REALM.COM", "shop"),
        (("RULE:[1:$1](App\\..*)s/App\\.(.*)/$1/g", "DEFAULT"), "ann@REALM.COM", "ann"),
        (("RULE:[2:$1]", "DEFAULT"), "kafka/host.com@OTHER", "kafka"),
        (("RULE:[2:$2.$1;$0](.*;OTHER)s/;.*//",), "kafka/host@OTHER", "host.kafka"),
        (("RULE:[1:$1]/L",), "Ann@OTHER", "ann"),
        (("RULE:[1:$1]/U",), "Ann@OTHER", "ANN"),
        (("RULE:[1:$1]s/a/b//L",), "AaaA@OTHER", "abaa"),
        (("RULE:[1:$1]s/a/b/g/U",), "AaaA@OTHER", "ABBA"),
        (("RULE:[1:$1@$0](.*@OTHER)s/@.*//", "DEFAULT"), "ann@OTHER", "ann"),
        (("RULE:[1:$1]s/(x)?n+/\\$$1/",), "ann@OTHER", "a$"),
    ],
)
def test_the_first_rule_that_applies_decides(
    rules: tuple[str, ...], principal: str, expected: str
) -> None:
    assert user(principal, *rules) == expected


@pytest.mark.parametrize(
    ("rules", "principal", "message"),
    [
        (("DEFAULT",), "ann@OTHER", "no rule .* applies to ann@OTHER: DEFAULT"),
        (("RULE:[1:$1]",), "kafka/host@REALM.COM", "no rule"),
        (("RULE:[1:$1](b.*)",), "ann@REALM.COM", "no rule"),
        (("RULE:[1:$1@$0]",), "ann@REALM.COM", "not a simple name"),
        (("RULE:[2:$1/$2]",), "ann/admin@REALM.COM", "not a simple name"),
    ],
)
def test_principals_without_a_user_name_are_refused(
    rules: tuple[str, ...], principal: str, message: str
) -> None:
    with pytest.raises(KafkaError, match=message) as caught:
        user(principal, *rules)
    assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("default", "neither DEFAULT nor RULE"),
        ("RULE:[1:$1]trailing", "neither DEFAULT nor RULE"),
        ("RULE:[:$1]", "neither DEFAULT nor RULE"),
        ("RULE:[1:$2]", r"\$2 is not one of \$0 to \$1"),
        ("RULE:[1:$]", r"\$ is not one of"),
        ("RULE:[1:$1]([)", "not a regular expression"),
        ("RULE:[1:$1]s/(a)/$2/", "refers to a group"),
        ("RULE:[1:$1]s/a/$/", "refers to a group"),
    ],
)
def test_invalid_rules_are_refused(rule: str, message: str) -> None:
    with pytest.raises(KafkaError, match=message) as caught:
        PrincipalRules([rule], "REALM.COM")
    assert caught.value.code is ErrorCode.INVALID_CONFIG
